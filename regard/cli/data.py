"""`regard data`: the bundled bilingual world, and a look at your own text."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Text: the bundled bilingual world, and a look at your own.", no_args_is_help=True)


@app.command()
def petit(
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs to write; the other splits have 1,000.")] = 50_000,
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


@app.command()
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
        typer.echo(f"\n{lines} would stop a training run; mend them, or train with --set data.skip_bad=true.", err=True)
        raise typer.Exit(1)


def _number(column: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise ValueError(f"--columns takes numbers, and {column!r} is none: --columns 2,1") from None
