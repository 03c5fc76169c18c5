"""Cancellation: whoever asked for decoding can have it stopped at the next token.

A caller runs its work inside `with cancellable(check):`, where `check` says whether the result is still wanted. Every
decoding loop calls `raise_if_cancelled()` once per token or batch. Outside of such a block the call does nothing.

The check belongs to the current context (a `ContextVar`), and so to one thread or task: what other threads decode with
the same network is not affected. It is called between steps and never within one, so that it works for steps that are
replayed as CUDA graphs as well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("regard_decoding_cancelled", default=None)


class Cancelled(Exception):  # noqa: N818  # not an error
    """Raised within `cancellable` when the result is no longer wanted."""


@contextmanager
def cancellable(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let decoding within this block raise `Cancelled` as soon as `cancelled()` is true.

    >>> with cancellable(lambda: True):
    ...     raise_if_cancelled()
    Traceback (most recent call last):
        ...
    regard.decoding.cancellation.Cancelled: the result is no longer wanted
    """
    token = _cancelled.set(cancelled)
    try:
        yield
    finally:
        _cancelled.reset(token)


def raise_if_cancelled() -> None:
    """Raise `Cancelled` if the enclosing `cancellable` says so."""
    cancelled = _cancelled.get()
    if cancelled is not None and cancelled():
        raise Cancelled("the result is no longer wanted")
