"""Signals for tests that send them.

A shell starts its background jobs with SIGINT ignored, `nohup` with SIGHUP ignored, and both are inherited. Regard
respects that: what was ignored when it started stays ignored (`regard train`, `regard serve`). A test that sends such a
signal must therefore not depend on how the tests themselves were started: it runs within `default_signals`, which is
in force for the whole session, and processes that it starts inherit the usual behaviour.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@contextmanager
def default_signals() -> Iterator[None]:
    """Signals that are ignored do what they usually do, until the end."""
    ignored = [number for number in USUAL if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, USUAL[number])
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def ignoring(*numbers: signal.Signals) -> Iterator[None]:
    """These signals are ignored, here and in processes that are started meanwhile."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
