"""`python -m benchmarks`: the command line of the benchmarks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    help="Measure Regard next to other engines: the same work in the same run, reported as ratios.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

JsonFile = Annotated[
    Path | None,
    typer.Option(help="Also write the tables to this file, with the command, the commit, the date and the machine."),
]


@app.command()
def text(
    repeats: Annotated[int, typer.Option(min=1, help="Number of timings of each engine.")] = 3,
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens per batch, counted on the larger side.")] = 16_000,
    json: JsonFile = None,
) -> None:
    """Measure data preparation: padding, time compared with the tokenizer library, peak memory.

    Example: python -m benchmarks text --repeats 3
    """
    from benchmarks.text import measure_all
    from regard.plots.console import console

    _save(json, measure_all(console(), repeats, batch_tokens))


@app.command()
def large(
    pairs: Annotated[int, typer.Option(min=1_000, help="Number of sentence pairs to generate.")] = 1_000_000,
    packed: Annotated[bool, typer.Option(help="Pack sentences into rows, as on a GPU.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Folder for the text; needs about 150 bytes per pair.")] = None,
    json: JsonFile = None,
) -> None:
    """Measure the preparation of a large corpus: time and memory of each stage, on generated text.

    Example: python -m benchmarks large --pairs 10000000 --folder /tmp
    """
    from benchmarks.large_text import measure
    from regard.plots.console import console

    _save(json, measure(console(), pairs, folder, packed))


@app.command()
def decode(
    device: Annotated[str, typer.Option(help="cpu or cuda; defaults to cuda if available.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="Number of timings of each engine.")] = 5,
    models: Annotated[
        str, typer.Option(help="Models to measure, separated by commas: base, small, gpt2.")
    ] = "base,small,gpt2",
    engines: Annotated[
        str, typer.Option(help="Engines to measure, separated by commas, such as ctranslate2-int8. Defaults to all.")
    ] = "",
    json: JsonFile = None,
) -> None:
    """Measure decoding next to transformers and, on a CPU, CTranslate2, with the same weights.

    Example: python -m benchmarks decode --models small

    Example: python -m benchmarks decode --engines ctranslate2-int8,compiled-int8
    """
    from benchmarks.decode import measure_all
    from regard.plots.console import console

    chosen = [name for name in engines.split(",") if name]
    _save(json, measure_all(console(), _device(device), repeats, models.split(","), chosen))


@app.command()
def train(
    device: Annotated[str, typer.Option(help="cpu or cuda; defaults to cuda if available.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="Number of timings of each engine.")] = 3,
    work: Annotated[
        str,
        typer.Option(help="Workloads, separated by commas: petit, multi30k (CPU); gpt2, base (GPU). Defaults to all."),
    ] = "",
    nanogpt: Annotated[Path | None, typer.Option(help="Checkout of nanoGPT to measure next to gpt2.")] = None,
    json: JsonFile = None,
) -> None:
    """Measure training next to Hugging Face, torch.nn.Transformer and nanoGPT, with the same shapes and sentences.

    Example: python -m benchmarks train --device cpu --work petit
    """
    from benchmarks.train import measure_all
    from regard.plots.console import console

    names = [name.strip() for name in work.split(",") if name.strip()]
    _save(json, measure_all(console(), _device(device), repeats, names, nanogpt))


@app.command()
def serve(
    model: Annotated[str, typer.Option(help="Bundled translator to serve.")] = "fr-en",
    clients: Annotated[int, typer.Option(min=1, help="Number of simultaneous clients.")] = 32,
    sentences: Annotated[int, typer.Option(min=1, help="Number of sentences to translate.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="Number of timings of each engine.")] = 5,
    json: JsonFile = None,
) -> None:
    """Measure the server: many clients next to one client, and one client next to direct calls.

    Example: python -m benchmarks serve --clients 32
    """
    from benchmarks.serve import measure_all
    from regard.plots.console import console

    _save(json, measure_all(console(), model, clients, sentences, repeats))


@app.command()
def start(
    repeats: Annotated[int, typer.Option(min=1, help="Number of timings of each command.")] = 7,
    json: JsonFile = None,
) -> None:
    """Measure how long regard translate takes from the shell, next to importing torch.

    Example: python -m benchmarks start
    """
    from benchmarks.start import measure_all
    from regard.plots.console import console

    _save(json, measure_all(console(), repeats))


def _save(file: Path | None, tables: list["Table"]) -> None:
    """Write the tables to the file, if there is one."""
    if file is not None:
        from benchmarks.figure_files import write_figures

        write_figures(file, sys.argv[1:], tables)


def _device(requested: str) -> str:
    """Return the requested device, or the best available one."""
    import torch

    if requested not in ("", "cpu", "cuda"):
        raise RegardError(f"--device must be cpu or cuda, not {requested}")
    if requested == "cuda" and not torch.cuda.is_available():
        raise RegardError("--device cuda requires a GPU that PyTorch can use")
    return requested or ("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    """Run the command line; errors in the input end with a message instead of a traceback."""
    try:
        app(prog_name="python -m benchmarks")
    except RegardError as error:
        typer.echo(f"benchmarks: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
