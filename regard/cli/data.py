"""`regard data`: the bundled bilingual world, and a look at your own text."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared_options import Force
from regard.data.corpus import Corpus
from regard.errors import RegardError
from regard.training.corpus_folder import find_corpus_files, training_languages

app = typer.Typer(help="Text: the bundled bilingual world, and a look at your own.", no_args_is_help=True)


@app.command()
def petit(
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs to write; the other splits have 1,000.")] = 50_000,
    out: Annotated[Path, typer.Option(help="The folder to write: a new or an empty one.")] = Path("petit"),
    seed: Annotated[int, typer.Option(help="Another seed, other pairs.")] = 0,
    force: Force = False,
) -> None:
    """Write Petit, the bundled French–English world, as ordinary files.

    Train, dev, test and compositional, each with its gold word alignments (.align) and phenomena (.tags).

    Example: regard data petit --pairs 20000 --out petit
    """
    from regard.petit.corpus_files import write_petit

    for name, count in write_petit(pairs, out, seed, force).items():
        typer.echo(f"{out / name}.fr  {out / name}.en  {count:,} pairs")


@app.command()
def check(
    files: Annotated[
        list[str],
        typer.Argument(help="Aligned files, one a side; one of TSV, JSONL or text; or a folder as for train."),
    ],
    columns: Annotated[str, typer.Option(help="Columns of a TSV file, counted from 1: 2,1")] = "",
    keys: Annotated[str, typer.Option(help="Keys of a JSONL file: fr,en")] = "",
    test: Annotated[list[str] | None, typer.Option(help="Test files, one option a file, to look for leaks.")] = None,
    languages: Annotated[str, typer.Option(help="Of a folder, how its names end, if not in two ways: fr,en")] = "",
    labelled: Annotated[
        bool, typer.Option("--labelled", help="The second side is a class, not a translation.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Bad lines are no failure: exit with 0.")] = False,
) -> None:
    """Report on a corpus: counts, lengths, ratio outliers, duplicates, leaks into the test set, and bad lines.

    Exits with 1 when there are lines that training would refuse. A leak is a test sentence of over 20 characters.
    Of a folder, what regard train would find there is looked at; leaks are those of its dev and test files.

    Example: regard data check train.fr train.en --test test.fr --test test.en
    """
    from regard.data.corpus_report import report_corpus
    from regard.plots.console import console
    from regard.plots.corpus_tables import show_report

    if len(files) == 1 and Path(files[0]).is_dir():
        if columns or keys or labelled:
            raise RegardError(f"{files[0]} is a folder: --columns, --keys and --labelled are for files")
        corpora, tests = _found(Path(files[0]), languages, test or [])
    else:
        if languages:
            raise RegardError(f"{files[0]} is no folder: --languages is for what is sought in one")
        corpora, tests = _named(files, columns, keys, test or [], labelled)
    refused, parted = 0, False
    for number, corpus in enumerate(corpora):
        typer.echo("\n" * (number > 0), nl=False)
        found = report_corpus(corpus, tests, labelled)
        show_report(console(), corpus, found)
        if not found.rows:
            raise RegardError(f"{corpus.files[0]}: not one row could be read")
        parted |= "unequal lines" in found.problems.counts
        refused += sum(count for kind, count in found.problems.counts.items() if kind != "too long")
    if refused and not skip_bad:
        lines = f"{refused:,} line{'s' * (refused > 1)}"
        instead = "" if parted else ", or train with --set data.skip_bad=true"  # which lines are pairs is not known
        typer.echo(f"\n{lines} would stop a training run; mend them{instead}.", err=True)
        raise typer.Exit(1)


def _found(folder: Path, languages: str, test: list[str]) -> tuple[list[Corpus], list[Corpus]]:
    """What `regard train` would learn from in a folder, and its dev and test files, or the test files named."""
    from regard.plots.console import console
    from regard.plots.corpus_tables import show_found

    ends = [each.strip() for each in languages.split(",")] if languages else training_languages(folder)
    if len(ends) != 2:
        raise RegardError(f"two languages are looked at, and here are {', '.join(ends)}: name two, --languages fr,en")
    found = find_corpus_files(folder, ends)
    show_found(console(), folder, found)
    tests = [found.validation, *found.tests] if found.validation else [*found.tests]
    if test:
        return [corpus.within(folder) for corpus in found.train], [Corpus(tuple(test))]
    return [corpus.within(folder) for corpus in found.train], [corpus.within(folder) for corpus in tests]


def _named(
    files: list[str], columns: str, keys: str, test: list[str], labelled: bool
) -> tuple[list[Corpus], list[Corpus]]:
    """The corpus that the arguments name, and the test set."""
    numbers = tuple(_number(column) for column in columns.split(",")) if columns else ()
    names = tuple(key.strip() for key in keys.split(",")) if keys else ()
    corpus = Corpus(tuple(files), numbers, names)
    for suffix, option in ((".tsv", "--columns 2,1"), (".jsonl", "--keys fr,en")):
        if corpus.sides == 1 and suffix in Path(files[0]).suffixes[-2:]:
            typer.echo(
                f"{files[0]} is read as plain text; for its sides name {option}, or what they are called.", err=True
            )
    if labelled and corpus.sides != 2:
        raise RegardError(f"--labelled is for a text and its class: here are {corpus.sides} sides; name two --columns")
    return [corpus], [Corpus(tuple(test), numbers, names)] if test else []


def _number(column: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise RegardError(f"--columns takes numbers, and {column!r} is none: --columns 2,1") from None
