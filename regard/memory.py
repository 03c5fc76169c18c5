"""How much memory there is, to refuse what cannot fit before anything is allocated."""

import os
from pathlib import Path


def available_memory() -> int | None:
    """Bytes of memory that this process may still take, as far as the system says; None where it does not.

    On Linux the limit of a container counts too. Elsewhere it is all the memory of the machine.
    """
    found = [amount for amount in (_from_meminfo(), _from_cgroup(), _physical()) if amount is not None]
    return min(found, default=None)


def _from_meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _from_cgroup() -> int | None:
    group = Path("/sys/fs/cgroup")
    try:
        return int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return None
