"""Checks of what a caller hands to a model: clear ValueErrors before an index goes astray."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.errors import RegardError


class _Trust(threading.local):
    """Whether this thread is inside `trusted()`. Each thread has its own value, so that threads which enter and leave
    at different times cannot leave it switched on for the others."""

    inside = False


_trust = _Trust()


@contextmanager
def trusted() -> Iterator[None]:
    """Within this block the calling thread does not check values: for ids and positions that Regard itself made."""
    before, _trust.inside = _trust.inside, True
    try:
        yield
    finally:
        _trust.inside = before


def values_can_be_read() -> bool:
    """Whether a check may look at a tensor's values: not while a graph is traced or captured, nor where trusted."""
    if torch.compiler.is_compiling() or _trust.inside:  # in this order: the compiler cannot trace a thread's variables
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def check_tensor(what: str, x: object) -> None:
    """A ValueError unless `x` is a tensor: a list or an array is a common slip."""
    if not isinstance(x, Tensor):
        raise RegardError(f"{what} must be a tensor, and here is a {type(x).__name__}: use torch.tensor(...)")


def check_integers(what: str, numbers: Tensor) -> None:
    """A ValueError unless `numbers` is a tensor of integers."""
    check_tensor(what, numbers)
    if numbers.dtype not in (torch.int64, torch.int32):
        raise RegardError(f"{what} must be integers (int64 or int32), and here are {numbers.dtype}")


def check_range(what: str, numbers: Tensor, end: int, remedy: str) -> None:
    """A ValueError unless all `numbers` are integers in [0, end); on a GPU an index astray would end the process.

    `remedy` is plain text: to format a size into it would tie a compiled graph to that size.
    """
    check_integers(what, numbers)
    if numbers.numel() == 0 or numbers.is_meta or not values_can_be_read():
        return
    low, high = torch.stack(numbers.aminmax()).tolist()
    if low < 0 or high >= end:
        raise RegardError(f"{what} {low if low < 0 else high} is outside 0 … {end - 1}: {remedy}")
