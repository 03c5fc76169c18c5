"""Text input and output of commands: lines of a file or stdin, and a file or stdout to write to."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TextIO, TypeVar

import typer

from regard.cli.shared_options import INTERRUPTED
from regard.errors import RegardError
from regard.formatting import visible, visible_lines

LINES_PER_BATCH = 256
"""Number of lines that are read before they are processed together."""
T = TypeVar("T")


def answer_lines(
    texts: list[str] | None,
    source: Path | None,
    output: Path | None,
    action: str,
    answer: Callable[[list[str]], Sequence[str]],
) -> None:
    """Write one line of output for each text, in order: see `answers`. Typed lines are answered at once."""
    rows = answers(texts, source, action, answer)
    first = list(islice(rows, 1))  # an error is raised before the output file is truncated
    with open_output(output) as file:
        for row in chain(first, rows):
            file.write(for_output(file, row) + "\n")
            if _is_typed(texts, source):
                file.flush()


def answers(
    texts: list[str] | None, source: Path | None, action: str, answer: Callable[[list[str]], Sequence[T]]
) -> Iterator[T]:
    """The answer to each text: to the arguments, or else to the lines of a file or of stdin.

    `answer` is called with batches of texts. The first text that is invalid or that it refuses raises an error that
    names the text, after the answers to those before it. `action` is the verb of the prompt for typed lines.
    """
    typed = _is_typed(texts, source)
    if typed:
        typer.echo(f"Type a line to {action} it; Ctrl-D ends.", err=True)
    errors: list[RegardError] = []
    lines = enumerate(until_error(argument_lines(texts) if texts else input_lines(source), errors), 1)
    name = "text " if texts else f"{source or 'stdin'}:"
    while batch := list(islice(lines, 1 if typed else LINES_PER_BATCH)):
        yield from _answer_batch(batch, answer, name)
    if errors:
        raise errors[0]


def _is_typed(texts: list[str] | None, source: Path | None) -> bool:
    return not texts and source is None and sys.stdin.isatty()


def _answer_batch(batch: list[tuple[int, str]], answer: Callable[[list[str]], Sequence[T]], name: str) -> Iterator[T]:
    """The answers to numbered lines. If they are refused, they are answered singly to find the one at fault."""
    try:
        batch_answers = answer([text for _, text in batch])
    except RegardError:
        batch_answers = None
    if batch_answers is not None:
        yield from batch_answers
        return
    for number, text in batch:
        try:
            (single_answer,) = answer([text])
        except RegardError as error:
            raise RegardError(f"{name}{number}: {error}") from None
        yield single_answer


def check_input(texts: list[str] | None, source: Path | None, output: Path | None, action: str) -> None:
    """Raise a RegardError if a command was given two inputs, an empty text, or the same file for input and output."""
    if texts and source is not None:
        raise RegardError(f"both texts and --input {source} were given: use one of them")
    if texts and not any(text.strip() for text in texts):
        raise RegardError(f"the text is empty: there is nothing to {action}")
    if source is not None and output is not None and output.exists() and output.samefile(source):
        raise RegardError(f"--output and --input are the same file, {source}: choose another output")
    note_file_name(texts, "--input {}")


def note_file_name(texts: list[str] | None, option: str) -> None:
    """Print a note if a text is the name of a file. `option` says how to read the file, with {} for its name."""
    for text in texts or ():
        try:
            is_file = Path(text).is_file()
        except (OSError, ValueError):  # too long for a name, or a NUL character
            continue
        if is_file:
            name = visible(text)
            advice = f"to read the file, use {option.format(shlex.quote(name))}"
            typer.echo(f"regard: note: {name} is a file, but its name is taken as the text; {advice}", err=True)
            return


def until_error(lines: Iterable[str], errors: list[RegardError]) -> Iterator[str]:
    """The lines before the first invalid one, so that they are still processed; its error goes into `errors`."""
    try:
        yield from lines
    except RegardError as error:
        errors.append(error)


def input_lines(path: Path | None) -> Iterator[str]:
    """The lines of a file, or of stdin. The first line that is not valid text raises an error that names it."""
    from regard.data.corpus import LineFault, decode_lines, read_lines, remedy

    name = str(path or "stdin")
    # Of stdin only readline is needed, which every binary file has.
    lines = decode_lines(sys.stdin.buffer) if path is None else read_lines(name)  # type: ignore[arg-type]
    for number, line in lines:
        if isinstance(line, LineFault):
            detail = f" ({line.detail})" if line.detail else ""
            advice = "split it into shorter lines" if line.kind == "too long" else remedy(line, name)
            raise RegardError(f"{name}:{number}: {line.kind}{detail}: {advice}")
        yield line


def argument_lines(texts: list[str]) -> Iterator[str]:
    """The lines of texts that were given as command-line arguments."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RegardError(f"text {number} is not UTF-8: convert it with iconv") from None
        yield from text.split("\n")


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A file to write to, or stdout. What was written before Ctrl-C is kept."""
    from regard.atomic_files import open_descriptor, raising_write_errors
    from regard.errors import UNWRITABLE_ERRNOS, write_error

    target = path or Path("standard output")
    with raising_write_errors(target):
        if path is None:
            file = sys.stdout
        else:  # opening /dev/stdout would truncate the file to which stdout is redirected
            descriptor = open_descriptor(path)
            target_file = path if descriptor is None else os.dup(descriptor)
            file = open(target_file, "w", encoding="utf-8", newline="\n")  # noqa: SIM115, PTH123  # closed below
    try:
        yield file
    except KeyboardInterrupt:
        typer.echo("\nregard: interrupted; the output so far has been written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        raise (write_error(error, target) if error.errno in UNWRITABLE_ERRNOS else error) from None
    finally:
        with raising_write_errors(target):
            if path is None:
                file.flush()
            else:
                file.close()


def for_output(file: TextIO, text: str) -> str:
    """Text from a model, unchanged; on a terminal, control characters are made visible."""
    return visible_lines(text) if file.isatty() else text
