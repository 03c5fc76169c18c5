"""Limits the server's memory while it processes batches of ever new shapes.

On a CPU, PyTorch caches the oneDNN kernel of every matrix shape: 1,024 kernels in each of two caches, up to half a
megabyte each. A server that decodes texts of all lengths with all beam widths fills both caches. The C library also
keeps freed memory, so it is returned to the system from time to time and when the server is idle.
"""

import ctypes
import os
from contextlib import suppress

KERNELS_KEPT = 64
"""Number of matrix shapes whose kernels are cached. A model has about eight shapes for each number of rows."""
RELEASE_AFTER_IDLE, RELEASE_EVERY = 5.0, 30.0
"""Seconds after which freed memory is returned: without work, and at most between two releases during work."""
CACHE_VARIABLES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
"""Environment variables that limit the kernel caches of PyTorch and oneDNN."""


def bound_kernel_caches() -> None:
    """Limit the kernel caches, unless the environment already does. Must be called before torch is imported."""
    for name in CACHE_VARIABLES:
        os.environ.setdefault(name, str(KERNELS_KEPT))


def release_freed_memory() -> None:
    """Return freed memory to the system, if the C library supports it (glibc)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
