"""`regard data`: write the bundled corpus, or check your own."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared_options import Force, parse_columns, parse_keys
from regard.data.corpus import Corpus
from regard.errors import RegardError
from regard.training.corpus_folder import find_corpus_files, training_languages

app = typer.Typer(help="Write the bundled French–English corpus, or check your own.", no_args_is_help=True)


@app.command()
def petit(
    pairs: Annotated[
        int, typer.Option(min=1, help="Number of training pairs; the other splits have 1,000 each.")
    ] = 50_000,
    out: Annotated[Path, typer.Option(help="Folder to write: new or empty.")] = Path("petit"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    force: Force = False,
) -> None:
    """Write Petit, the bundled French–English corpus, as plain files.

    Writes train, dev, test and compositional splits, each with gold word alignments (.align), phenomena (.tags)
    and parts of speech (.conll).

    Example: regard data petit --pairs 20000 --out petit
    """
    from regard.petit.corpus_files import write_petit

    for name, count in write_petit(pairs, out, seed, force).items():
        typer.echo(f"{out / name}.fr  {out / name}.en  {count:,} pairs")


@app.command()
def check(
    files: Annotated[
        list[str],
        typer.Argument(help="Aligned files, one per side; a TSV, JSONL or text file; or a folder, as for train."),
    ],
    columns: Annotated[str, typer.Option(help="Columns of a TSV file, counted from 1: 2,1")] = "",
    keys: Annotated[str, typer.Option(help="Keys of a JSONL file: fr,en")] = "",
    test: Annotated[list[str] | None, typer.Option(help="Test file to search for leaks. Repeatable.")] = None,
    languages: Annotated[
        str, typer.Option(help="Languages of a folder's files, if there are more than two: fr,en")
    ] = "",
    labelled: Annotated[
        bool, typer.Option("--labelled", help="The second side is a class, not a translation.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Exit with 0 even if there are bad lines.")] = False,
) -> None:
    """Report on a corpus: counts, lengths, length ratios, duplicates, leaked test sentences and bad lines.

    Exits with 1 if training would reject any line. A leak is a test sentence of more than 20 characters that occurs in
    the corpus. For a folder, the files that regard train would use are checked, and its dev and test sentences count as
    test sentences.

    Example: regard data check train.fr train.en --test test.fr --test test.en
    """
    from regard.data.corpus_report import report_corpus
    from regard.plots.console import console
    from regard.plots.corpus_tables import show_report

    if len(files) == 1 and Path(files[0]).is_dir():
        if columns or keys or labelled:
            raise RegardError(f"{files[0]} is a folder: --columns, --keys and --labelled are for files")
        corpora, tests = _corpora_of_folder(Path(files[0]), languages, test or [])
    else:
        if languages:
            raise RegardError(f"{files[0]} is not a folder: --languages is for folders")
        corpora, tests = _corpus_of_files(files, columns, keys, test or [], labelled)
    bad_lines, is_misaligned = 0, False
    for number, corpus in enumerate(corpora):
        if number > 0:
            typer.echo("\n", nl=False)
        report = report_corpus(corpus, tests, labelled)
        show_report(console(), corpus, report)
        if not report.rows:
            raise RegardError(f"{corpus.files[0]}: no row could be read")
        is_misaligned |= "unequal lines" in report.problems.counts
        bad_lines += sum(count for kind, count in report.problems.counts.items() if kind != "too long")
    if bad_lines and not skip_bad:
        lines = "1 line" if bad_lines == 1 else f"{bad_lines:,} lines"
        # Skipping cannot help if the files are misaligned: which lines are pairs is unknown.
        alternative = "" if is_misaligned else ", or train with --set data.skip_bad=true"
        typer.echo(f"\n{lines} would stop a training run: fix them{alternative}.", err=True)
        raise typer.Exit(1)


def _corpora_of_folder(folder: Path, languages: str, test: list[str]) -> tuple[list[Corpus], list[Corpus]]:
    """Return the training corpora that `regard train` would use, and the folder's dev and test files or those named."""
    from regard.plots.console import console
    from regard.plots.corpus_tables import show_corpus_folder

    suffixes = [language.strip() for language in languages.split(",")] if languages else training_languages(folder)
    if len(suffixes) != 2:
        raise RegardError(f"{folder} has files in {', '.join(suffixes)}: choose two languages, --languages fr,en")
    files = find_corpus_files(folder, suffixes)
    show_corpus_folder(console(), folder, files)
    train = [corpus.within(folder) for corpus in files.train]
    if test:
        return train, [Corpus(tuple(test))]
    held_out = [files.validation, *files.tests] if files.validation else [*files.tests]
    return train, [corpus.within(folder) for corpus in held_out]


def _corpus_of_files(
    files: list[str], columns: str, keys: str, test: list[str], labelled: bool
) -> tuple[list[Corpus], list[Corpus]]:
    """Return the corpus that the arguments name, and the test set."""
    numbers, names = parse_columns(columns), parse_keys(keys)
    corpus = Corpus(tuple(files), numbers, names)
    for suffix, option in ((".tsv", "--columns 2,1"), (".jsonl", "--keys fr,en")):
        if corpus.sides == 1 and suffix in Path(files[0]).suffixes[-2:]:
            typer.echo(
                f"{files[0]} is read as plain text; to read its fields, add {option} (with your own names).", err=True
            )
    if labelled and corpus.sides != 2:
        raise RegardError(f"--labelled needs two sides, a text and its class: {corpus.sides} given; name two --columns")
    return [corpus], [Corpus(tuple(test), numbers, names)] if test else []
