"""A solution's own process: it sets itself limits, runs the solution, and writes what was observed.

`runner.py` starts it and follows it.
"""

import faulthandler
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from regard.course import assignment as assignments
from regard.course.assignment import Assignment
from regard.course.observation_bytes import packed
from regard.course.observe import Observed, failure, observe

READY = b"ready"
"""after the token, before the number of the process: the solution's time begins"""


@dataclass(frozen=True)
class Limits:
    """How much a solution may use, beyond what Python and torch take to start."""

    seconds: int | float = 10
    """of the processor, in all"""
    part_seconds: int | float = 5
    """of the processor, for the file itself, a cell of it, or one probe"""
    patience: int | float = 3
    """how many times as long it may take by the clock: a busy machine must not pass for an endless loop"""
    memory: int = 2_000_000_000
    """bytes"""
    output: int = 1_000_000
    """bytes printed"""
    file_bytes: int = 10_000_000
    """of a file that it writes"""
    processes: int = 16


class Timeout(BaseException):
    """A part of the solution took too long; no Exception, so that few solutions catch it."""


def main() -> None:
    """The process's own part: read the job, run the solution, write what was observed."""
    job = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(job["pipe"], False)
    limits, token = Limits(**job["limits"]), bytes.fromhex(job["token"])
    where = os.open(job["where"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    faulthandler.enable(where)
    faulthandler.register(signal.SIGUSR1, where)
    faulthandler.register(signal.SIGXCPU, where, chain=True)
    of = assignments.read(Path(job["assignment"]))
    _ = of.probes  # their imports are not the solution's time
    _limit(limits)
    with os.fdopen(job["pipe"], "wb") as pipe:
        pipe.write(token + READY + os.getpid().to_bytes(8, "little"))
        pipe.flush()
        content = _observed(job, of, limits)
        pipe.write(token + len(content).to_bytes(8, "little") + content)
    os._exit(0)  # whatever threads are left


def _observed(job: dict[str, Any], of: Assignment, limits: Limits) -> bytes:
    clock = _Clock(limits)
    try:
        seen = observe(job["source"], of, job["copy"], job["cells"], clock.part)
        late = [each for each in seen.failures.values() if each.kind == Timeout.__name__]
        if late and not seen.values:  # nothing of it ends
            seen.failures[""] = late[0]
        return packed(seen)
    except BaseException as error:
        return packed(Observed(failures={"": failure(error, job["copy"])}))


class _Clock:
    """Ends parts of the solution that take too long, where Python can: others are ended with the process."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.ends = time.process_time() + limits.seconds, time.monotonic() + limits.patience * limits.seconds
        signal.signal(signal.SIGPROF, self._ring)
        signal.signal(signal.SIGALRM, self._ring)

    @contextmanager
    def part(self) -> Iterator[None]:
        """Within this, a part of the solution runs."""
        seconds = self.limits.part_seconds
        busy = min(seconds, self.ends[0] - time.process_time())
        waiting = min(self.limits.patience * seconds, self.ends[1] - time.monotonic())
        if min(busy, waiting) <= 0:
            raise Timeout(f"the {self.limits.seconds:g} s for the whole solution were over before")
        signal.setitimer(signal.ITIMER_PROF, busy)
        signal.setitimer(signal.ITIMER_REAL, waiting)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, which: int, _: FrameType | None) -> None:
        seconds = self.limits.part_seconds
        if which == signal.SIGPROF:
            raise Timeout(f"did not end within {seconds:g} s: is there an endless loop?")
        raise Timeout(f"did not end within {self.limits.patience * seconds:g} s: what does it wait for?")


def _limit(limits: Limits) -> None:
    """Have the system refuse what is too much; where it does not know a limit, the parent watches."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + limits.seconds) + 1
    wanted = {
        resource.RLIMIT_CPU: (seconds, seconds + 5),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_CORE: (0, 0),
    }
    with suppress(OSError):  # Linux: what is mapped already, most of it torch itself
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + limits.memory
        wanted[resource.RLIMIT_AS] = (most, most)
    for kind, pair in wanted.items():
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, pair)
    torch.set_num_threads(1)
