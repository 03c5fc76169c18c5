"""`regard bench`: Regard beside its peers."""

from typing import Annotated

import typer

app = typer.Typer(help="Regard beside its peers: same work, one run, ratios.", no_args_is_help=True)


@app.command()
def text(
    repeats: Annotated[int, typer.Option(min=1, help="How often each timing is taken.")] = 3,
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens in a batch, on its larger side.")] = 16_000,
) -> None:
    """Files to batches: padding, the time of preparation beside the bare tokenizer library, peak memory.

    Example: regard bench text --repeats 3
    """
    from regard.bench.text import bench as run
    from regard.view.console import console

    run(console(), repeats, batch_tokens)


@app.command()
def decode(
    device: Annotated[str, typer.Option(help="cpu or cuda; cuda where there is one, if not given.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="How often each timing is taken.")] = 5,
    models: Annotated[str, typer.Option(help="Which models, of base, small, gpt2.")] = "base,small,gpt2",
) -> None:
    """Decoding beside transformers and, on a CPU, CTranslate2: the same weights, the same work, in turns.

    Example: regard bench decode --models small
    """
    import torch

    from regard.bench.decode import bench as run
    from regard.view.console import console

    if device not in ("", "cpu", "cuda"):
        raise ValueError(f"--device {device} is neither cpu nor cuda")
    run(console(), device or ("cuda" if torch.cuda.is_available() else "cpu"), repeats, models.split(","))
