"""`regard fill`: the most likely tokens for the masks in a text."""

from collections.abc import Callable
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model_loading import check_model_is_named, load_model
from regard.cli.shared_options import MODEL_HELP, Device, InputFile, JsonLines, OutputFile, Texts
from regard.cli.text_io import answer_lines, check_input
from regard.formatting import visible

if TYPE_CHECKING:
    from regard.decoding.filling import Filling


def fill(
    text: Texts = None,
    model: Annotated[str, typer.Option("--model", "-m", help=f"{MODEL_HELP} It must predict masked tokens.")] = "",
    k: Annotated[int, typer.Option("-k", min=1, help="Number of tokens for each mask.")] = 5,
    source: InputFile = None,
    output: OutputFile = None,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Print the most likely tokens for each mask of a text. Each input line gives one output line, in order.

    A mask is written <mask>, or as the model's tokenizer has it, such as [MASK]. Tokens and their probabilities are
    separated by tabs, best first. If a text has several masks, a | separates the tokens of one from those of the next.
    A · marks a token that continues the word before the mask. With --json, each line also has the complete texts.

    Example: regard fill "Le chat <mask> sur la table." -k 5 --model runs/petit-masked

    Example: regard fill --model runs/petit-masked --input masked.txt --json
    """
    check_input(text, source, output, "fill")
    check_model_is_named(model, "masked language model", "petit-masked")
    loaded = load_model(model, device)
    loaded.require("fill")
    row = _json_row if json else _plain_row
    answer_lines(text, source, output, "fill", lambda texts: list(map(row, texts, loaded.fillings(texts, k))))


def _plain_row(_: str, masks: list[list["Filling"]]) -> str:
    """Columns for `cut`; the bar between two masks has its own."""
    return "\t|\t".join("\t".join(map(_columns, fillings)) for fillings in masks)


def _columns(filling: "Filling") -> str:
    """The token, without the spaces around it unless it is a space, and its probability."""
    dot = "·" if filling.continues_word else ""
    return f"{dot}{visible(filling.token.strip() or filling.token)}\t{filling.probability:.4f}"


def _json_row(text: str, masks: list[list["Filling"]]) -> str:
    return dumps(
        {"text": text, "masks": [[filling._asdict() for filling in fillings] for fillings in masks]}, ensure_ascii=False
    )


COMMANDS: list[Callable[..., None]] = [fill]
