"""Options, help texts and an exit status that several commands share."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import RegardError
from regard.models import BUNDLED_MODELS, DEFAULT_MODEL

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

MODEL_HELP = (
    f"A run, a model folder (Regard or Hugging Face), a GGUF file, or the name of a bundled model "
    f"({', '.join(BUNDLED_MODELS)})."
)
OPTIONAL_MODEL_HELP = f"{MODEL_HELP} The default is the bundled {DEFAULT_MODEL}."
TRANSLATOR_HELP = f"{MODEL_HELP} Default: the bundled model for --from and --to; without these, {DEFAULT_MODEL}."

Texts = Annotated[list[str] | None, typer.Argument(help="Texts; without any, the lines of --input or stdin.")]
InputFile = Annotated[
    Path | None, typer.Option("--input", "-i", help="File with one text per line; .gz, .xz and .zst are supported.")
]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="File to write to instead of stdout.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print which engine decodes, and why, on stderr.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto uses a GPU if there is one.")]
Beam = Annotated[int, typer.Option(help="Beam size; 1 is greedy decoding.")]
LengthPenalty = Annotated[
    float, typer.Option(help="Exponent of the length penalty (alpha in the paper); 0 favours short translations.")
]
SourceLanguage = Annotated[
    str | None,
    typer.Option("--from", help="Language of the texts: fr, or a code of a multilingual model such as fra_Latn."),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option("--to", help="Language to translate to: en, or a code of a multilingual model such as eng_Latn."),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Write even if the folder is not empty. Files of the same names are replaced; all others are kept.",
    ),
]


def command_help(command: Callable[..., object] | None) -> str:
    """The docstring of a command with one line per paragraph, so that the terminal wraps it to its own width."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def parse_columns(columns: str) -> tuple[int, ...]:
    """The numbers of --columns, such as 2,1; none if it was not given."""
    return tuple(_column_number(column) for column in columns.split(",")) if columns else ()


def _column_number(column: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise RegardError(f"--columns takes numbers, not {column!r}: --columns 2,1") from None


def parse_keys(keys: str) -> tuple[str, ...]:
    """The names of --keys, such as fr,en; none if it was not given."""
    return tuple(key.strip() for key in keys.split(",")) if keys else ()
