"""Results as plain dictionaries, ready for JSON."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from regard.errors import RegardError


def plain(result: object) -> Any:
    """Dataclasses, arrays and what they hold as dictionaries, lists, numbers and texts; what is not finite as None."""
    if is_dataclass(result) and not isinstance(result, type):
        return {field.name: plain(getattr(result, field.name)) for field in fields(result)}
    if isinstance(result, np.ndarray | np.generic):
        return plain(result.tolist())
    if isinstance(result, Mapping):
        return {str(key): plain(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [plain(each) for each in result]
    if isinstance(result, float) and not math.isfinite(result):
        return None
    if result is None or isinstance(result, str | int | float):
        return result
    raise RegardError(f"a {type(result).__name__} has no place in a report")
