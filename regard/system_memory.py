"""The available memory, so that a model that cannot fit is rejected before anything is allocated."""

import os
from pathlib import Path


def available_memory() -> int | None:
    """Return the number of bytes that this process can still allocate, or None if the system does not report it.

    On Linux this respects the limit of a container. On other systems it is the total memory of the machine.
    """
    amounts = [amount for amount in (_from_meminfo(), _from_cgroup(), _physical()) if amount is not None]
    return min(amounts, default=None)


def _from_meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _from_cgroup(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the limit of a container (cgroup v2) leaves. The page cache counts as free: it can be reclaimed."""
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None
    return min(limit, max(0, limit - used + _page_cache(group)))


def _page_cache(group: Path) -> int:
    try:
        lines = [line.split() for line in (group / "memory.stat").read_text().splitlines()]
        return sum(int(amount) for name, amount in lines if name in ("inactive_file", "active_file"))
    except (OSError, ValueError):
        return 0


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return None
