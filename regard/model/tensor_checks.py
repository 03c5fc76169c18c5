"""Checks of a model's inputs: clear errors instead of indexing out of bounds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.errors import RegardError

UNKNOWN_ID = "it is not in the vocabulary; is the tokenizer that of this model?"
"""What to do about a token id that a model has no embedding of."""


class _Trust(threading.local):
    """Whether the current thread is inside `skipping_value_checks()`. Each thread has its own value: threads that
    enter and leave at different times do not affect each other."""

    inside = False


_trust = _Trust()


@contextmanager
def skipping_value_checks() -> Iterator[None]:
    """Skip checks of values in this thread and block: for ids and positions that Regard itself computed."""
    before, _trust.inside = _trust.inside, True
    try:
        yield
    finally:
        _trust.inside = before


def values_can_be_read() -> bool:
    """Whether a check may read a tensor's values: not while a graph is traced or captured, nor inside
    `skipping_value_checks`."""
    if torch.compiler.is_compiling() or _trust.inside:  # in this order: the compiler cannot trace thread-locals
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def check_tensor(what: str, x: object) -> None:
    """Raise a RegardError unless `x` is a tensor: lists and arrays are common mistakes."""
    if not isinstance(x, Tensor):
        raise RegardError(f"{what} must be a tensor, not a {type(x).__name__}: use torch.tensor(...)")


def check_integers(what: str, numbers: Tensor) -> None:
    """Raise a RegardError unless `numbers` is a tensor of integers."""
    check_tensor(what, numbers)
    if numbers.dtype not in (torch.int64, torch.int32):
        raise RegardError(f"{what} must be integers (int64 or int32), not {numbers.dtype}")


def check_range(what: str, numbers: Tensor, end: int, remedy: str) -> None:
    """Raise a RegardError unless all `numbers` are integers in [0, end).

    Without this check, an index out of bounds ends the process on a GPU. `remedy` must not contain a formatted size,
    which would tie a compiled graph to that size.
    """
    check_integers(what, numbers)
    if numbers.numel() == 0 or numbers.is_meta or not values_can_be_read():
        return
    low, high = torch.stack(numbers.aminmax()).tolist()
    if low < 0 or high >= end:
        raise RegardError(f"{what} {low if low < 0 else high} is outside 0 … {end - 1}: {remedy}")
