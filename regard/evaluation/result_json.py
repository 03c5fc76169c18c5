"""Results as values that the `json` module can write."""

import math
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

import numpy as np

from regard.errors import RegardError

_JSON_NAME = "json_name"


def recorded_as(name: str) -> dict[str, str]:
    """Metadata of a dataclass field that is written to JSON under another name, as in files of earlier versions."""
    return {_JSON_NAME: name}


def to_json_value(result: object) -> Any:
    """Convert dataclasses, arrays and containers to dictionaries, lists, numbers and strings.

    A number that is not finite becomes None, because JSON has no NaN or infinity.
    """
    if is_dataclass(result) and not isinstance(result, type):
        return {_name(item): to_json_value(getattr(result, item.name)) for item in fields(result)}
    if isinstance(result, np.ndarray | np.generic):
        return to_json_value(result.tolist())
    if isinstance(result, Mapping):
        return {str(key): to_json_value(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [to_json_value(item) for item in result]
    if isinstance(result, float) and not math.isfinite(result):
        return None
    if result is None or isinstance(result, str | int | float):
        return result
    raise RegardError(f"a {type(result).__name__} cannot be written as JSON")


def _name(item: Field[Any]) -> str:
    name: str = item.metadata.get(_JSON_NAME, item.name)
    return name
