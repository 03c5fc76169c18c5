"""Processes that start in milliseconds: forked from a server that has already imported PyTorch and Regard.

Importing both takes longer than most of what the tests do in a process of its own. The processes are otherwise real:
each has its own session, signals, environment, output and exit status, and runs a module as `python -m` does.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

PRELOADED = ("tests.support.forked_imports",)
ROOT = Path(__file__).parents[2]
HANG_SECONDS = 300
"""Time after which a process that should have ended, or a condition that should hold, counts as hanging."""


class ForkedProcess:
    """A running module. Its output is in two files."""

    def __init__(self, process: ForkServerProcess, folder: Path) -> None:
        self._process, self._folder = process, folder
        self.pid = process.pid or 0

    @property
    def exit_status(self) -> int | None:
        """None while the process runs, negative if a signal ended it."""
        return self._process.exitcode

    @property
    def stdout(self) -> str:
        """What the process has written so far to its standard output."""
        return (self._folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        """What the process has written so far to its standard error."""
        return (self._folder / "stderr").read_text()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait until the process ends by itself and return its exit status."""
        self._process.join(HANG_SECONDS)
        status = self.exit_status
        assert status is not None, f"it does not end: {self.stdout}{self.stderr}"
        return status

    def kill(self) -> None:
        """Kill the process if it is still running."""
        if self.exit_status is None:
            self._process.kill()
            self._process.join()


@contextmanager
def forked(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    ignored: Sequence[signal.Signals] = (),
) -> Iterator[ForkedProcess]:
    """Start `python -m module arguments`; at the end of the block it is killed if it still runs.

    `environment` is added to this process's; the `ignored` signals are ignored from the start.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = {**os.environ, **(environment or {})}
        process = context.Process(target=_run_module, args=(module, arguments, variables, tuple(ignored), folder))
        for output in ("stdout", "stderr"):
            (folder / output).touch()
        process.start()
        started = ForkedProcess(process, folder)
        try:
            yield started
        finally:
            started.kill()


def _run_module(
    module: str, arguments: Sequence[str], variables: dict[str, str], ignored: Sequence[signal.Signals], folder: Path
) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(variables)
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        stream.flush()
        handle = os.open(folder / name, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, stream.fileno())
        os.close(handle)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(ROOT)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def wait_until(condition: Callable[[], bool], process: ForkedProcess) -> None:
    """Wait until something holds that the running process brings about."""
    limit = time.monotonic() + HANG_SECONDS
    while not condition():
        assert process.exit_status is None, f"it ended too soon: {process.stdout}{process.stderr}"
        assert time.monotonic() < limit, f"it does not get there: {process.stdout}{process.stderr}"
        time.sleep(0.01)
