"""Chooses the number of threads that torch uses."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

SAMPLE_SECONDS = 0.2
"""Time over which the use of the cores is measured."""
ALMOST_FREE = 0.7
"""Share of a core that has to be free for a thread to be worth starting."""
PROC_STAT, CPU_QUOTA = Path("/proc/stat"), Path("/sys/fs/cgroup/cpu.max")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: with many small operations, threads that wait for a busy core cost most of the time."""
    with _threads(1):
        yield


@contextmanager
def threads_for_free_cores() -> Iterator[str | None]:
    """Run torch on as many threads as cores are free, and yield a note for the user if that is fewer than usual.

    OMP_NUM_THREADS, where it is set, is respected. Programs that start later are not noticed.
    """
    usual = torch.get_num_threads()
    if os.environ.get("OMP_NUM_THREADS") or usual == 1:
        yield None
        return
    threads = threads_that_fit(usual, free_cores())
    with _threads(threads):
        yield None if threads == usual else thread_note(threads, usual)


def threads_that_fit(usual: int, free: float) -> int:
    """Number of threads for this many free cores, at least 1 and at most the usual number.

    >>> threads_that_fit(2, 1.1), threads_that_fit(8, 5.8), threads_that_fit(8, 0.2)
    (1, 6, 1)
    """
    return max(1, min(usual, int(free + 1 - ALMOST_FREE)))


def thread_note(threads: int, usual: int) -> str:
    """Why fewer threads are used than usual, and how to choose another number."""
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return f"other programs use the processor: {count} instead of {usual} (set OMP_NUM_THREADS to choose the number)"


def free_cores() -> float:
    """Number of cores that this process may use and that are idle, measured while this process waits."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    before = _core_times()
    time.sleep(SAMPLE_SECONDS)
    after = _core_times()
    if before and cores <= before.keys() & after.keys():
        free = sum(_idle_share(before[core], after[core]) for core in cores)
    else:  # not Linux
        free = len(cores) - os.getloadavg()[0]
    return min(free, _cpu_quota())


@contextmanager
def _threads(count: int) -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def _core_times() -> dict[int, tuple[int, int]]:
    """Idle time and total time of each core since the system started; empty where the system does not report it."""
    try:
        lines = PROC_STAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    rows = (line.split() for line in lines if line.startswith("cpu") and line[3:4].isdigit())
    times = {int(row[0][3:]): [int(field) for field in row[1:9]] for row in rows}
    return {core: (fields[3] + fields[4], sum(fields)) for core, fields in times.items()}


def _idle_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    total = after[1] - before[1]
    return (after[0] - before[0]) / total if total > 0 else 1.0


def _cpu_quota() -> float:
    """Number of cores that the process's container may use; infinite without a quota."""
    try:
        quota, period = CPU_QUOTA.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if quota == "max" else int(quota) / int(period)
