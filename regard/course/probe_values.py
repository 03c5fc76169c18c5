"""Helpers for probes of functions whose results are not tensors: lists of numbers, texts, and whether a call works."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def accepts(call: Callable[[], Any]) -> Tensor:
    """Whether a call works. What is not written yet is not a refusal, so NotImplementedError is passed on."""
    try:
        call()
    except NotImplementedError:
        raise
    except Exception:
        return torch.tensor(False)
    return torch.tensor(True)


def written_parts(calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """The result of each call, without those of functions that are not written yet. They can be diagnosed already.

    Raises NotImplementedError if nothing is written.
    """
    values, missing = {}, None
    for name, call in calls.items():
        try:
            values[name] = call()
        except NotImplementedError as error:
            missing = error
    if missing is not None and not values:
        raise missing
    return values


def tensor_from(value: Any, name: str) -> Tensor:
    """What a function returned, as a tensor; a TypeError that names the function if it is nothing of the kind."""
    try:
        return torch.as_tensor(value)
    except Exception:
        raise _unexpected(value, name, "a tensor") from None


def number_from(value: Any, name: str) -> Tensor:
    """The number that a function returned, in float64; a TypeError that names the function if it is not a number."""
    if isinstance(value, str):
        raise _unexpected(value, name, "a number")
    try:
        return torch.tensor(float(value.detach() if isinstance(value, Tensor) else value), dtype=torch.float64)
    except Exception:
        raise _unexpected(value, name, "a number") from None


def items_from(value: Any, name: str, count: int | None = None) -> list[Any]:
    """The items of a list or tuple that a function returned; a TypeError that names the function if it is none."""
    if not isinstance(value, list | tuple | Tensor) or (isinstance(value, Tensor) and value.dim() == 0):
        raise _unexpected(value, name, "a list" if count is None else f"a tuple of {count}")
    if count is not None and len(value) != count:
        raise TypeError(f"{name} returned {len(value)} values, but {count} were expected")
    return list(value)


def token_row(value: Any, name: str) -> list[int]:
    """The token ids of a text, given as a tensor or a list; a TypeError that names the function if it is neither."""
    if isinstance(value, Tensor):
        value = value.detach().squeeze().reshape(-1).tolist() if value.dim() != 1 else value.tolist()
    if not isinstance(value, list | tuple) or not all(isinstance(token, int | Tensor) for token in value):
        raise _unexpected(value, name, "a 1-D tensor of token ids")
    return [int(token) for token in value]


def _unexpected(value: Any, name: str, expected: str) -> TypeError:
    return TypeError(f"{name} returned {type(value).__name__}, but {expected} was expected")


def padded(rows: Sequence[Sequence[float]], width: int, filling: float = -1) -> Tensor:
    """Rows of different lengths as one tensor. It is at least `width` wide, so that lengths do not change its shape."""
    width = max(width, *(len(row) for row in rows)) if rows else width
    return torch.tensor([[*row, *[filling] * (width - len(row))] for row in rows]).reshape(len(rows), width)


def is_text(value: Tensor) -> bool:
    """Whether a value was made by `text_value`."""
    return value.dtype == torch.uint8 and value.dim() == 1


def text_value(text: Any, name: str) -> Tensor:
    """The bytes of a text. The report shows them as text. A TypeError that names the function if it is not a text."""
    if not isinstance(text, str):
        raise TypeError(f"{name} returned {type(text).__name__}, but a text was expected")
    return torch.tensor(list(text.encode(errors="replace")), dtype=torch.uint8)
