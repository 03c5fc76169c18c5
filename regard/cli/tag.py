"""`regard tag`: the label of each word."""

from collections.abc import Callable, Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model_loading import check_model_is_named, load_model
from regard.cli.shared_options import MODEL_HELP, Device, InputFile, JsonLines, OutputFile, Texts
from regard.cli.text_io import answer_lines, check_input

if TYPE_CHECKING:
    from regard.decoding.tagging import TaggedWord


def tag(
    text: Texts = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = "",
    source: InputFile = None,
    output: OutputFile = None,
    words: Annotated[
        bool,
        typer.Option("--words", help="Words are separated by spaces. By default, punctuation is separated too."),
    ] = False,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Print each word of a text with its label, as word/LABEL. Each input line gives one output line, in order.

    With --json, each line also has the probabilities of the labels.

    Example: regard tag "Le chat dort." --model runs/petit-tag

    Example: regard tag --model runs/petit-tag --input sentences.txt --words --output tagged.txt
    """
    from regard.data.tagged_text import split_at_spaces

    check_input(text, source, output, "tag")
    check_model_is_named(model, "tagger", "petit-tag")
    loaded = load_model(model, device)
    loaded.require("tag")
    row = _json_row if json else _plain_row

    def rows(texts: list[str]) -> list[str]:
        inputs: Sequence[str | Sequence[str]] = [split_at_spaces(each) for each in texts] if words else texts
        return [row(*each) for each in zip(texts, loaded.tag(inputs), strict=True)]

    answer_lines(text, source, output, "tag", rows)


def _plain_row(_: str, words: "list[TaggedWord]") -> str:
    return " ".join(f"{word.word}/{word.label}" for word in words)


def _json_row(text: str, words: "list[TaggedWord]") -> str:
    return dumps({"text": text, "words": [word._asdict() for word in words]}, ensure_ascii=False)


COMMANDS: list[Callable[..., None]] = [tag]
