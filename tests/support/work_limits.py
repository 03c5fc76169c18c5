"""Limits on work that do not depend on how busy or fast a machine is."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANGING_SECONDS = 20.0
"""Processor time after which work that takes a fraction of a second is considered to hang."""


@contextmanager
def fail_when_hanging(seconds: float = HANGING_SECONDS) -> Iterator[None]:
    """Fail instead of waiting for work that would take minutes. The time is the processor time of this process."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"stopped after {seconds:g} seconds of processor time")

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def count_calls(function: Callable[[], object]) -> int:
    """Number of functions that are called while this one runs, in Python and in C."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(previous)
    return calls
