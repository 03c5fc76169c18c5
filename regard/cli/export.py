"""`regard export`: a model's folder for others, with what is known of the model on its card."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.models import MODEL
from regard.cli.shared_options import Force
from regard.errors import RegardError

MAX_TEXT = 1_000_000
"""bytes of a card, or of a recipe"""


def export(
    model: Annotated[str, typer.Argument(help=MODEL)],
    folder: Annotated[Path, typer.Argument(help="The folder to write: a new or an empty one.")],
    to: Annotated[str, typer.Option(help="huggingface, ctranslate2 or regard.")] = "huggingface",
    dtype: Annotated[
        str, typer.Option(help="float32, float16, bfloat16; for ctranslate2 also int8, int16, int8_float16 …")
    ] = "float32",
    name: Annotated[str, typer.Option(help="What its card calls it; else the name of its recipe.")] = "",
    scores: Annotated[
        list[Path] | None, typer.Option(help="What regard evaluate --out wrote, for the card; may be given again.")
    ] = None,
    card: Annotated[
        Path | None, typer.Option(help="Markdown for the card: licences of the data, limits, what only you know.")
    ] = None,
    force: Force = False,
) -> None:
    """Write a model for Hugging Face's transformers (and what reads its folders), CTranslate2, or Regard itself.

    README.md beside it is its card: shape, scores, how it came about, and a program that uses it.

    Example: regard export runs/fr-en fr-en-ct2 --to ctranslate2 --dtype int8

    Example: regard export runs/fr-en fr-en --to regard --dtype bfloat16 --scores scores.json --card about.md
    """
    from regard.atomic_files import check_new_folder
    from regard.config import check_type
    from regard.interop.evaluation_results import check_results
    from regard.interop.export import Engine, check_dtype
    from regard.interop.export import export as write
    from regard.interop.load import find_model, load
    from regard.storage.model_folder import RECIPE

    check_type("--to", to, Engine)  # a mistake does not wait for the model
    check_dtype(dtype, to)  # type: ignore[arg-type]  # checked
    check_new_folder(folder, force)
    results, said = [_result(path) for path in scores or []], None if card is None else _card(card)
    place = find_model(model)
    recipe = _text(place / RECIPE) if (place / RECIPE).is_file() else None
    loaded = load(model)
    check_results(results, loaded)
    loaded.about |= _told(place, name, [each.scored for each in results], said)
    write(loaded, folder, to, dtype, recipe, force)  # type: ignore[arg-type]  # checked
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    typer.echo(f"{folder}: {size / 1e6:,.1f} MB for {to}, {dtype}; README.md in it says how it is loaded")


COMMANDS: list[Callable[..., None]] = [export]


def _told(place: Path, name: str, scores: list[Any], card: str | None) -> dict[str, Any]:
    """What a model's folder is to tell beyond what the model does: its training, its scores, and the user's words."""
    from regard.storage.metadata import as_told
    from regard.training.run_facts import logged

    trained = logged(place)
    told = {
        "name": name,
        "trained": None if trained is None else as_told(trained),
        "tests": [as_told(each) for each in scores],
        "card": card,
    }
    return {key: value for key, value in told.items() if value}


def _result(path: Path) -> Any:
    """The `regard.interop.evaluation_results.Result` of a file."""
    from regard.interop.evaluation_results import read_result

    try:
        return read_result(path)
    except ValueError as error:
        raise RegardError(f"--scores: {error}") from None


def _card(path: Path) -> str:
    try:
        return _text(path)
    except ValueError as error:
        raise RegardError(f"--card: {error}; name a file of Markdown") from None


def _text(path: Path) -> str:
    from regard.untrusted_files import read_file

    try:
        return read_file(path, MAX_TEXT).decode()
    except UnicodeDecodeError as error:
        raise RegardError(f"{path} is not UTF-8 (at byte {error.start}): convert it with iconv") from None
