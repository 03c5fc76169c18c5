"""The process in which a solution runs: it limits and isolates itself, runs the solution and sends what it observed.

`solution_server.py` starts this process, and `solution_runner.py` watches it. Everything that it sends may be forged by
the solution, so nothing is judged here: the observations are compared with the reference's by the checker.
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

from regard.course.assignment import Assignment, read_assignment
from regard.course.isolation import IS_LINUX, isolate
from regard.course.observation_bytes import encode_run
from regard.course.observe import SolutionRun, describe_failure, observe
from regard.course.tampering import TamperWatch, forbid

READY = b"ready"
"""Sent after the token, when the solution's time starts."""
MAX_FILE_NUMBER = 4096
"""Numbers of open files from here on are not in use."""


@dataclass(frozen=True)
class Limits:
    """How much a solution may use, in addition to what Python and torch need to start."""

    seconds: int | float = 10
    """CPU seconds for the complete solution."""
    part_seconds: int | float = 5
    """CPU seconds for the file, for one of its cells, or for one probe."""
    patience: int | float = 3
    """Wall-clock limits are this many times the CPU limits, since the machine may be busy."""
    memory: int = 2_000_000_000
    """Bytes of memory."""
    output: int = 1_000_000
    """Bytes of printed output."""
    file_bytes: int = 10_000_000
    """Maximum size of a file that the solution writes."""
    folder_bytes: int = 50_000_000
    """Maximum size of all files that the solution writes."""
    files: int = 200
    """Maximum number of files that the solution may create, and that it may have open."""
    processes: int = 16
    """Maximum number of processes that the solution may start."""


class Timeout(BaseException):
    """A part of the solution took too long. It is not an Exception, so that few solutions catch it."""


def run_solution(job: dict[str, Any], results: int, output: int, has_namespaces: bool) -> None:
    """Run a solution and write what was observed to a pipe, and what it prints to another. Does not return."""
    limits, token, folder = Limits(**job["limits"]), bytes.fromhex(job["token"]), Path(job["copy"]).parent
    os.environ.update({"HOME": str(folder), "TMPDIR": str(folder)})
    os.chdir(folder)
    sys.path.append(str(folder))  # last, so that a student's file does not take the place of a package
    os.dup2(output, 1)
    os.dup2(output, 2)
    stack_file = os.open(job["stack_file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    faulthandler.enable(stack_file)
    faulthandler.register(signal.SIGUSR1, stack_file)
    faulthandler.register(signal.SIGXCPU, stack_file, chain=True)
    assignment = read_assignment(Path(job["assignment"]))
    for path in map(Path, job["hidden_probes"]):
        assignment = assignment if path in assignment.hidden else assignment.with_hidden(path)
    _ = assignment.probes  # read before their folder becomes inaccessible
    forbid(assignment.forbidden)
    _close_all_except(results, stack_file)
    process = int(Path("/proc/self").readlink().name) if IS_LINUX else os.getpid()  # as the checker sees it
    _set_limits(limits)
    missing = isolate(folder, map(Path, job["hidden"]), has_namespaces)
    with os.fdopen(results, "wb") as pipe:
        pipe.write(token + READY + encode_frame(json.dumps({"pid": process, "missing": missing}).encode()))
        pipe.flush()
        content = _observe(job, assignment, limits)
        pipe.write(token + encode_frame(content))
    os._exit(0)  # do not wait for threads that the solution started


def encode_frame(content: bytes) -> bytes:
    """Bytes with their length in front."""
    return len(content).to_bytes(8, "little") + content


def _close_all_except(*kept: int) -> None:
    """Close the files that this process inherited, except standard input and output."""
    first = 3
    for file in (*sorted(kept), MAX_FILE_NUMBER):
        os.closerange(first, file)
        first = file + 1


def _observe(job: dict[str, Any], assignment: Assignment, limits: Limits) -> bytes:
    timer, watch = _PartTimer(limits), TamperWatch()

    @contextmanager
    def guard() -> Iterator[None]:
        with timer.limit_part():
            yield
        watch.check()

    try:
        run = observe(job["source"], assignment, job["copy"], job["cells"], guard)
        timeouts = [failure for failure in run.failures.values() if failure.kind == Timeout.__name__]
        if timeouts and not run.values:  # no part of it ever finishes
            run.failures[""] = timeouts[0]
        return encode_run(run)
    except BaseException as error:
        return encode_run(SolutionRun(failures={"": describe_failure(error, job["copy"])}))


class _PartTimer:
    """Interrupts parts of the solution that take too long. What Python cannot interrupt ends with the process."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.cpu_deadline = time.process_time() + limits.seconds
        self.clock_deadline = time.monotonic() + limits.patience * limits.seconds
        signal.signal(signal.SIGPROF, self._on_alarm)
        signal.signal(signal.SIGALRM, self._on_alarm)

    @contextmanager
    def limit_part(self) -> Iterator[None]:
        """Run a part of the solution inside this context."""
        seconds = self.limits.part_seconds
        cpu = min(seconds, self.cpu_deadline - time.process_time())
        clock = min(self.limits.patience * seconds, self.clock_deadline - time.monotonic())
        if min(cpu, clock) <= 0:
            raise Timeout(f"did not start: the solution had already used its {self.limits.seconds:g} s")
        signal.setitimer(signal.ITIMER_PROF, cpu)
        signal.setitimer(signal.ITIMER_REAL, clock)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, signal_number: int, _: FrameType | None) -> None:
        seconds = self.limits.part_seconds
        if signal_number == signal.SIGPROF:
            raise Timeout(f"did not finish within {seconds:g} s: is there an infinite loop?")
        raise Timeout(f"did not finish within {self.limits.patience * seconds:g} s: what is it waiting for?")


def _set_limits(limits: Limits) -> None:
    """Let the operating system enforce the limits that it supports. The parent process watches the others."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + limits.seconds) + 1
    resource_limits = {
        resource.RLIMIT_CPU: (seconds, seconds + 5),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_NOFILE: (limits.files, limits.files),
    }
    with suppress(OSError):  # on Linux, add what is mapped already, which is mostly torch
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        address_space = pages * resource.getpagesize() + limits.memory
        resource_limits[resource.RLIMIT_AS] = (address_space, address_space)
    for kind, soft_and_hard in resource_limits.items():
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, soft_and_hard)
    torch.set_num_threads(1)
