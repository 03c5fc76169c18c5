"""SIGTERM and Ctrl-C: a run finishes its step and saves before it ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType


@dataclass
class Interrupts:
    """Which signal has come, if one has."""

    signal: int | None = None


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Within, the first SIGTERM or Ctrl-C is only noted; a second Ctrl-C ends the process as it always does."""
    found = Interrupts()
    if current_thread() is not main_thread():  # Python has signals there alone
        yield found
        return

    def note(number: int, _frame: FrameType | None) -> None:
        if found.signal == signal.SIGINT == number:
            raise KeyboardInterrupt
        found.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
