"""SIGTERM, Ctrl-C and a terminal that is closed: a run finishes its step and saves before it ends."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass
class Interrupts:
    """Which signal has come, if one has."""

    signal: int | None = None
    heard: Callable[[], None] = lambda: None
    """called as soon as one has come: the step that it waits for may be long"""


@contextmanager
def interrupts(found: Interrupts) -> Iterator[None]:
    """Within, the first signal is only noted in `found`; a Ctrl-C behind another ends the process as it always does.

    A signal that is ignored, as by nohup, stays so.
    """
    if current_thread() is not main_thread():  # Python has signals there alone
        yield
        return

    def note(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and found.signal is not None:
            raise KeyboardInterrupt
        first, found.signal = found.signal is None, number
        if first:
            found.heard()

    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
