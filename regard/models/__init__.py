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
"""The model that translates unless another is named."""
BUNDLED_MODELS = (DEFAULT_MODEL, "petit-fr-en")
"""The models that every checkout and installation should contain."""


def bundled_models() -> list[str]:
    """Return the names of the bundled models that are present."""
    return sorted(config.parent.name for config in MODELS_FOLDER.glob("*/config.json"))


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


def bundled_parameters(name: str) -> int:
    """Return the number of parameters of a bundled model, from the header of its weights."""
    path = bundled_folder(name) / "model.safetensors"
    with path.open("rb") as file:
        header = parse_json(file.read(int.from_bytes(file.read(8), "little")), path)
    return sum(math.prod(entry["shape"]) for tensor, entry in header.items() if tensor != "__metadata__")


def bundled_size(name: str) -> int:
    """Return the total size of a bundled model's files, in bytes."""
    return sum(file.stat().st_size for file in bundled_folder(name).rglob("*") if file.is_file())
