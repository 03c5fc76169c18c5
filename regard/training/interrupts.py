"""SIGTERM, Ctrl-C and a closed terminal: a run finishes its step and saves before it ends."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType

CAUGHT_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass
class Interrupts:
    """Which signal has arrived, if any."""

    signal: int | None = None
    on_signal: Callable[[], None] = lambda: None
    """Called when the first signal arrives: the current step may take a while."""


@contextmanager
def catch_signals(interrupts: Interrupts) -> Iterator[None]:
    """Record the first signal in `interrupts` instead of ending the process. A second Ctrl-C ends it as usual.

    A signal that is ignored, as under nohup, stays ignored.
    """
    if current_thread() is not main_thread():  # Python handles signals in the main thread only
        yield
        return

    def record(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and interrupts.signal is not None:
            raise KeyboardInterrupt
        is_first, interrupts.signal = interrupts.signal is None, number
        if is_first:
            interrupts.on_signal()

    handled = [number for number in CAUGHT_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, record) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
