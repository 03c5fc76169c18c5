"""Memory that stays bounded while a server meets ever new shapes of batches.

On a CPU, PyTorch keeps the kernels that oneDNN has prepared for each shape of a matrix product: 1,024 of them in each
of two caches, up to half a megabyte each. A server that decodes texts of all lengths and beams of all widths fills
both. The C library also keeps freed memory for later use: it is given back from time to time, and when the server is
idle.
"""

import ctypes
import os
from contextlib import suppress

KERNELS_KEPT = 64
"""Number of shapes of matrix products whose kernels are kept: a model has about eight for each number of rows."""
RELEASE_AFTER_IDLE, RELEASE_EVERY = 5.0, 30.0
"""Seconds without work, and at most between two releases while there is work, until freed memory is given back."""
CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
"""Environment variables by which PyTorch's and oneDNN's caches of kernels are bounded."""


def bound_kernel_caches() -> None:
    """Bound the caches of kernels, unless the environment already does; to be called before torch computes anything."""
    for name in CACHES:
        os.environ.setdefault(name, str(KERNELS_KEPT))


def release_freed_memory() -> None:
    """Give memory that is no longer used back to the system, where the C library can (glibc)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
