"""`regard export`: write a model folder for another engine, with a model card."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.shared_options import MODEL_HELP, Force
from regard.errors import RegardError

MAX_TEXT_BYTES = 1_000_000
"""Maximum size of a card or a recipe."""


def export(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    folder: Annotated[Path, typer.Argument(help="Folder to write; it must be new or empty.")],
    to: Annotated[str, typer.Option(help="Target: huggingface, ctranslate2, onnx or regard.")] = "huggingface",
    dtype: Annotated[
        str,
        typer.Option(
            help="Weights: float32, float16 or bfloat16; for regard also int8; for ctranslate2 int8, int16, …"
        ),
    ] = "float32",
    name: Annotated[str, typer.Option(help="Name of the model on its card; defaults to the name of its recipe.")] = "",
    scores: Annotated[
        list[Path] | None, typer.Option(help="Scores for the card, from regard evaluate --out. Repeatable.")
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(help="Markdown file to add to the card: licences of the data, known limits."),
    ] = None,
    force: Force = False,
) -> None:
    """Export a model to Hugging Face's transformers, CTranslate2, ONNX, or Regard's own format.

    The folder includes a model card (README.md) with the architecture, scores, training and an example program.

    Example: regard export runs/fr-en fr-en-ct2 --to ctranslate2 --dtype int8

    Example: regard export runs/fr-en fr-en --to regard --dtype bfloat16 --scores scores.json --card about.md
    """
    from regard.atomic_files import check_new_folder
    from regard.config import check_type
    from regard.interop.evaluation_results import check_results
    from regard.interop.export import ExportTarget, check_dtype
    from regard.interop.export import export as write
    from regard.interop.load import find_model, load
    from regard.storage.model_folder import RECIPE_FILE

    check_type("--to", to, ExportTarget)  # before the model is loaded
    check_dtype(dtype, to)  # type: ignore[arg-type]  # checked
    check_new_folder(folder, force)
    results = [_result(path) for path in scores or []]
    card_text = None if card is None else _card(card)
    source = find_model(model)
    recipe = _text(source / RECIPE_FILE) if (source / RECIPE_FILE).is_file() else None
    loaded = load(model)
    check_results(results, loaded)
    loaded.about |= _metadata(source, name, [result.scored for result in results], card_text)
    write(loaded, folder, to, dtype, recipe, force)  # type: ignore[arg-type]  # checked
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    typer.echo(f"{folder}: {size / 1e6:,.1f} MB for {to}, {dtype}; see README.md there for how to load it")


COMMANDS: list[Callable[..., None]] = [export]


def _metadata(source: Path, name: str, scores: list[Any], card: str | None) -> dict[str, Any]:
    """Return the metadata to add to the exported folder: name, training, scores and the user's card."""
    from regard.storage.metadata import as_metadata
    from regard.training.training_summary import logged_training

    trained = logged_training(source)
    metadata = {
        "name": name,
        "trained": None if trained is None else as_metadata(trained),
        "tests": [as_metadata(score) for score in scores],
        "card": card,
    }
    return {key: value for key, value in metadata.items() if value}


def _result(path: Path) -> Any:
    """Read a file of scores into an EvaluationResult."""
    from regard.interop.evaluation_results import read_result

    try:
        return read_result(path)
    except ValueError as error:
        raise RegardError(f"--scores: {error}") from None


def _card(path: Path) -> str:
    try:
        return _text(path)
    except ValueError as error:
        raise RegardError(f"--card: {error}; it must be a Markdown file") from None


def _text(path: Path) -> str:
    from regard.untrusted_files import read_file

    try:
        return read_file(path, MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise RegardError(f"{path} is not UTF-8 (at byte {error.start}): convert it with iconv") from None
