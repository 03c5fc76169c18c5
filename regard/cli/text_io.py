"""Text input and output of commands: lines of a file or stdin, and a file or stdout to write to."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import typer

from regard.errors import RegardError
from regard.formatting import visible_lines


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
    from regard.atomic_files import raising_write_errors
    from regard.errors import UNWRITABLE_ERRNOS, write_error

    target = path or Path("standard output")
    with raising_write_errors(target):
        file = sys.stdout if path is None else path.open("w", encoding="utf-8", newline="\n")
    try:
        yield file
    except KeyboardInterrupt:
        typer.echo("\nregard: interrupted; the output so far has been written", err=True)
        raise typer.Exit(130) from None
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
