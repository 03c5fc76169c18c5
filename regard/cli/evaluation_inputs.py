"""What `regard evaluate` and `regard compare` share: options, test sets, checks and output files."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.shared_options import MODEL_HELP, parse_columns, parse_keys
from regard.errors import RegardError

SYSTEM_HELP = f"{MODEL_HELP} Also accepted: a text file with translations, one per line."

Columns = Annotated[str, typer.Option(help="Columns of a TSV file, counted from 1, source first: 1,2")]
Keys = Annotated[str, typer.Option(help="Keys of a JSONL file, source first: fr,en")]
ReferenceFiles = Annotated[list[str] | None, typer.Option(help="A file with references. Repeatable.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first N rows.")]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Skip invalid lines, or sentences of a tagger, instead of stopping at the first."),
]
Precision = Annotated[
    str,
    typer.Option(
        help="float32, or bfloat16, int8 or auto to translate with a faster copy and see what it costs in quality."
    ),
]
JsonFile = Annotated[Path | None, typer.Option(help="Write all results as JSON.")]


def make_corpus(files: list[str], references: list[str] | None, columns: str, keys: str) -> Any:
    """The test set as a `Corpus`: several sides of one file, or one file for each side."""
    from regard.data.corpus import Corpus

    numbers, names = parse_columns(columns), parse_keys(keys)
    if references and (numbers or names):
        raise RegardError("--reference gives a separate file: with --columns or --keys, list another column or key")
    return Corpus((*files, *(references or ())), numbers, names)


def load_examples(corpus: Any, limit: int | None, skip_bad: bool, expected: str) -> Any:
    """The `Examples` of a corpus; an error if it does not have the sides that are expected."""
    from regard.evaluation.test_sets import read_examples

    if corpus.sides < 2 or (expected.startswith("a text") and corpus.sides > 2):
        sides = "1 side was" if corpus.sides == 1 else f"{corpus.sides} sides were"
        raise RegardError(
            f"{' and '.join(corpus.files)}: {expected} are required, as two files or as one with --columns 1,2 or "
            f"--keys, but {sides} given"
        )
    return read_examples(corpus, limit, skip_bad)


def decoding_options(beam: int, length_penalty: float) -> Any:
    """The `Decoding` options; a wrong one is reported before the model is loaded."""
    from regard.decoding.options import Decoding

    return Decoding(beam=beam, length_penalty=length_penalty)


def is_output_file(system: str) -> bool:
    """Whether a system is a text file of outputs rather than a model in one file."""
    from regard.untrusted_files import is_pickle

    path = Path(system)
    if not path.is_file() or is_pickle(path) or path.suffix == ".safetensors":
        return False
    with path.open("rb") as file:
        return file.read(4) != b"GGUF"


def check_output_paths(**paths: Path | None) -> None:
    """Raise a `RegardError` for a file that cannot be written, before any work is done."""
    for name, path in paths.items():
        if path is not None and path.is_dir():
            raise RegardError(f"--{name} {path} is a folder: pass a file")
        if path is not None and not path.absolute().parent.is_dir():
            raise RegardError(f"--{name} {path}: the folder {path.parent} does not exist")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write one text per line."""
    from regard.atomic_files import write_file

    write_file(path, "".join(f"{line}\n" for line in lines))


def write_json(path: Path | None, result: object) -> None:
    """Write a result as JSON, if a file was named."""
    from regard.atomic_files import write_file
    from regard.evaluation.result_json import to_json_value

    if path is not None:
        write_file(path, json.dumps(to_json_value(result), indent=2, ensure_ascii=False) + "\n")


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal. Yields a function that takes the number done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(description.replace("[", r"\["), total=total)
        yield lambda done: progress.update(task, completed=done)
