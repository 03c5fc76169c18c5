"""The bundled models: one folder each, as written by `regard export --to regard`.

This module does not import torch, so that `regard --help` can list the models quickly.
"""

import math
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.untrusted_files import parse_json, read_json

MODELS_FOLDER = Path(__file__).parent
DEFAULT_MODEL = "fr-en"
"""The model that translates unless another model or a language is named."""
DEFAULT_LANGUAGE_MODEL = "writer"
"""The model that continues texts unless another one is named."""
BUNDLED_MODELS = (DEFAULT_MODEL, "en-fr", DEFAULT_LANGUAGE_MODEL, "petit-fr-en")
"""The models that every checkout and installation should contain. The first that fits a request is used."""


def bundled_models() -> list[str]:
    """Return the names of the bundled models that are present, in the order of `BUNDLED_MODELS`."""
    present = sorted(config.parent.name for config in MODELS_FOLDER.glob("*/config.json"))
    order = {name: number for number, name in enumerate(BUNDLED_MODELS)}
    return sorted(present, key=lambda name: order.get(name, len(order)))


def bundled_translator(source: str | None = None, target: str | None = None) -> str:
    """Return the name of the first bundled model that translates between these languages; None leaves one open."""
    if source is None and target is None:
        return DEFAULT_MODEL
    pairs = {name: pair for name in bundled_models() if (pair := bundled_languages(name)) is not None}
    for name, pair in pairs.items():
        if source in (None, pair[0]) and target in (None, pair[1]):
            return name
    wanted = " ".join(f"{word} {code}" for word, code in (("from", source), ("to", target)) if code is not None)
    available = ", ".join(f"{name} ({' → '.join(pair)})" for name, pair in pairs.items())
    raise RegardError(
        f"no bundled model translates {wanted}: available are {available or 'none'}. Train a model on your own text, "
        "or name another one with --model"
    )


def bundled_languages(name: str) -> tuple[str, str] | None:
    """Return the source and target language of a bundled translator; None for other models."""
    languages = bundled_metadata(name).get("languages")
    return (languages[0], languages[1]) if isinstance(languages, list) and len(languages) == 2 else None


def bundled_folder(name: str) -> Path:
    """Return the folder of a bundled model; if it is missing, raise a RegardError that says what to do."""
    if name not in bundled_models():
        raise RegardError(
            f"the bundled model {name} is missing from {MODELS_FOLDER / name}: this copy of Regard is incomplete. "
            f"In a checkout, run git checkout -- {MODELS_FOLDER / name}; otherwise reinstall Regard, or name another "
            "model"
        )
    return MODELS_FOLDER / name


def bundled_metadata(name: str) -> dict[str, Any]:
    """Return the metadata of a bundled model; see `regard.Model.about`."""
    metadata = read_json(bundled_folder(name) / "config.json").get("about")
    return metadata if isinstance(metadata, dict) else {}


def bundled_task(name: str) -> str:
    """Return what a bundled model does, in words."""
    pair = bundled_languages(name)
    if pair is not None:
        return f"translates {' → '.join(pair)}"
    languages = bundled_metadata(name).get("languages")
    return f"generates text ({languages[0]})" if isinstance(languages, list) and languages else "generates text"


def bundled_parameters(name: str) -> int:
    """Return the number of parameters of a bundled model, from the header of its weights."""
    path = bundled_folder(name) / "model.safetensors"
    with path.open("rb") as file:
        header = parse_json(file.read(int.from_bytes(file.read(8), "little")), path)
    scales = {f"{tensor}_scale" for tensor, entry in header.items() if entry.get("dtype") == "I8"}  # not parameters
    return sum(math.prod(entry["shape"]) for tensor, entry in header.items() if tensor not in {"__metadata__", *scales})


def bundled_weights_digest(name: str) -> str:
    """Return the SHA-256 of a bundled model's weights file, as its manifest states it."""
    return str(read_json(bundled_folder(name) / "manifest.json")["files"]["model.safetensors"]["sha256"])


def bundled_size(name: str) -> int:
    """Return the total size of a bundled model's files, in bytes."""
    return sum(file.stat().st_size for file in bundled_folder(name).rglob("*") if file.is_file())
