"""The commands. Each imports what it needs when it is called, so that `regard --help` does not wait for torch."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard import __version__

app = typer.Typer(
    help="The Transformer of “Attention Is All You Need”: readable, trainable, fast and visible.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="Text: the bundled bilingual world, and a look at your own.", no_args_is_help=True)
bench = typer.Typer(help="Regard beside its peers: same work, one run, ratios.", no_args_is_help=True)
app.add_typer(data, name="data")
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """See the commands below; each has an example in its own help."""


@app.command()
def demo() -> None:
    """Show what there is: a tiny model's shapes, and its attention on one sentence.

    Example: regard demo
    """
    from regard.demo import demo as run
    from regard.view.console import console

    run(console())


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A run, a model's folder (Regard's or Hugging Face's) or a GGUF file.")],
    folder: Annotated[Path, typer.Argument(help="A folder, which is made.")],
    to: Annotated[str, typer.Option(help="huggingface or ctranslate2.")] = "huggingface",
    dtype: Annotated[
        str, typer.Option(help="float32, float16, bfloat16; for ctranslate2 also int8, int16, int8_float16 …")
    ] = "float32",
) -> None:
    """Write a model for another engine: Hugging Face's transformers (and what reads its folders), or CTranslate2.

    Example: regard export runs/fr-en fr-en-ct2 --to ctranslate2 --dtype int8
    """
    from regard.api import load
    from regard.interop.export import export as write

    write(load(model), folder, to, dtype)  # type: ignore[arg-type]  # checked there
    size = sum(file.stat().st_size for file in folder.iterdir())
    typer.echo(f"{folder}: {size / 1e6:,.1f} MB for {to}, {dtype}; README.md in it says how it is loaded")


@data.command()
def petit(
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs to write.")] = 50_000,
    out: Annotated[Path, typer.Option(help="A folder, which is made.")] = Path("petit"),
    seed: Annotated[int, typer.Option(help="Another seed, other pairs.")] = 0,
) -> None:
    """Write Petit, the bundled French–English world, as ordinary files.

    Train, dev, test and compositional, each with its gold word alignments (.align) and phenomena (.tags).

    Example: regard data petit --pairs 20000 --out petit
    """
    from regard.text.petit.files import write_petit

    for name, count in write_petit(pairs, out, seed).items():
        typer.echo(f"{out / name}.fr  {out / name}.en  {count:,} pairs")


@data.command()
def check(
    files: Annotated[list[str], typer.Argument(help="Aligned files, one for each side; or one of TSV, JSONL or text.")],
    columns: Annotated[str, typer.Option(help="Columns of a TSV file, counted from 1: 2,1")] = "",
    keys: Annotated[str, typer.Option(help="Keys of a JSONL file: fr,en")] = "",
    test: Annotated[list[str] | None, typer.Option(help="Test files, one option a file, to look for leaks.")] = None,
    labelled: Annotated[
        bool, typer.Option("--labelled", help="The second side is a class, not a translation.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Bad lines are no failure: exit with 0.")] = False,
) -> None:
    """Report on a corpus: counts, lengths, ratio outliers, duplicates, leaks into the test set, and bad lines.

    Exits with 1 when there are lines that training would refuse. A leak is a test sentence of over 20 characters.

    Example: regard data check train.fr train.en --test test.fr --test test.en
    """
    from regard.text.corpus import Corpus
    from regard.text.report import report
    from regard.view.console import console
    from regard.view.data import show_report

    numbers = tuple(_number(column) for column in columns.split(",")) if columns else ()
    names = tuple(key.strip() for key in keys.split(",")) if keys else ()
    corpus = Corpus(tuple(files), numbers, names)
    for suffix, option in ((".tsv", "--columns 2,1"), (".jsonl", "--keys fr,en")):
        if corpus.sides == 1 and suffix in Path(files[0]).suffixes[-2:]:
            typer.echo(
                f"{files[0]} is read as plain text; for its sides name {option}, or what they are called.", err=True
            )
    if labelled and corpus.sides != 2:
        raise ValueError(f"--labelled is for a text and its class: here are {corpus.sides} sides; name two --columns")
    found = report(corpus, [Corpus(tuple(test), numbers, names)] if test else [], labelled)
    show_report(console(), corpus, found)
    if not found.rows:
        raise ValueError(f"{corpus.files[0]}: not one row could be read")
    refused = sum(count for kind, count in found.problems.counts.items() if kind != "too long")
    if refused and not skip_bad:
        lines = f"{refused:,} line{'s' * (refused > 1)}"
        typer.echo(f"\n{lines} would stop a training run; mend them, or train with --skip-bad.", err=True)
        raise typer.Exit(1)


@bench.command()
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


def _number(column: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise ValueError(f"--columns takes numbers, and {column!r} is none: --columns 2,1") from None


def main() -> None:
    """The `regard` command: a mistake of the user's ends with its message, not with a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"regard: {error}", err=True)
        sys.exit(2)
