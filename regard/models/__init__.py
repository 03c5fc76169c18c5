"""The models that come with Regard: a folder each, as `regard export --to regard` writes it.

What is here waits for no torch, so that `regard --help` can name them.
"""

import math
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.untrusted_files import parse_json, read_json

HERE = Path(__file__).parent
DEFAULT = "fr-en"
"""the one that translates when none is named"""
SHIPPED = (DEFAULT, "petit-fr-en")
"""those that every checkout and installation should have"""


def bundled() -> list[str]:
    """The names of the models that are here."""
    return sorted(config.parent.name for config in HERE.glob("*/config.json"))


def folder_of(name: str) -> Path:
    """Where a bundled model lies; a ValueError that says what to do if it is not there."""
    if name not in bundled():
        raise RegardError(
            f"the model {name} comes with Regard, and {HERE / name} does not hold it: this copy is incomplete. "
            f"In a checkout git checkout -- {HERE / name} brings it back; otherwise install Regard anew, or name "
            "another model"
        )
    return HERE / name


def about(name: str) -> dict[str, Any]:
    """What a bundled model tells of itself: see `regard.storage.Model.about`."""
    told = read_json(folder_of(name) / "config.json").get("about")
    return told if isinstance(told, dict) else {}


def parameters(name: str) -> int:
    """How many numbers a bundled model's weights are, by the header of their file."""
    path = folder_of(name) / "model.safetensors"
    with path.open("rb") as file:
        header = parse_json(file.read(int.from_bytes(file.read(8), "little")), path)
    return sum(math.prod(told["shape"]) for tensor, told in header.items() if tensor != "__metadata__")


def size(name: str) -> int:
    """Bytes of a bundled model's files."""
    return sum(file.stat().st_size for file in folder_of(name).rglob("*") if file.is_file())
