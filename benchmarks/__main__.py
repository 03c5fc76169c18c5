"""`python -m benchmarks`: Regard compared with its peers."""

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import RegardError

app = typer.Typer(help="Regard beside its peers: same work, one run, ratios.", no_args_is_help=True)


@app.command()
def text(
    repeats: Annotated[int, typer.Option(min=1, help="How often each timing is taken.")] = 3,
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens in a batch, on its larger side.")] = 16_000,
) -> None:
    """Files to batches: padding, the time of preparation beside the bare tokenizer library, peak memory.

    Example: python -m benchmarks text --repeats 3
    """
    from benchmarks.text import bench as run
    from regard.plots.console import console

    run(console(), repeats, batch_tokens)


@app.command()
def decode(
    device: Annotated[str, typer.Option(help="cpu or cuda; cuda where there is one, if not given.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="How often each timing is taken.")] = 5,
    models: Annotated[str, typer.Option(help="Which models, of base, small, gpt2.")] = "base,small,gpt2",
) -> None:
    """Decoding beside transformers and, on a CPU, CTranslate2: the same weights, the same work, in turns.

    Example: python -m benchmarks decode --models small
    """
    from benchmarks.decode import bench as run
    from regard.plots.console import console

    run(console(), _device(device), repeats, models.split(","))


@app.command()
def train(
    device: Annotated[str, typer.Option(help="cpu or cuda; cuda where there is one, if not given.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="How often each timing is taken.")] = 3,
    work: Annotated[str, typer.Option(help="On a CPU petit, multi30k; on a GPU gpt2, base; all if not given.")] = "",
    nanogpt: Annotated[Path | None, typer.Option(help="A checkout of nanoGPT, to be measured beside gpt2.")] = None,
) -> None:
    """Training steps beside Hugging Face, torch.nn.Transformer and nanoGPT: the same shapes and sentences, in turns.

    Example: python -m benchmarks train --device cpu --work petit
    """
    from benchmarks.train import bench as run
    from regard.plots.console import console

    run(console(), _device(device), repeats, [name.strip() for name in work.split(",") if name.strip()], nanogpt)


@app.command()
def serve(
    model: Annotated[str, typer.Option(help="A bundled translator.")] = "fr-en",
    clients: Annotated[int, typer.Option(min=1, help="So many at once.")] = 32,
    sentences: Annotated[int, typer.Option(min=1, help="That each way translates.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="How often each timing is taken.")] = 5,
) -> None:
    """The server: many clients at once beside one at a time, and one client beside a direct call, in turns.

    Example: python -m benchmarks serve --clients 32
    """
    from benchmarks.serve import bench as run
    from regard.plots.console import console

    run(console(), model, clients, sentences, repeats)


def _device(wanted: str) -> str:
    """The device that is asked for, or the best there is."""
    import torch

    if wanted not in ("", "cpu", "cuda"):
        raise RegardError(f"--device {wanted} is neither cpu nor cuda")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise RegardError("--device cuda, and there is no GPU here that PyTorch can use")
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
