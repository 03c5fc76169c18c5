"""Landlock: a Linux process gives up access to files, except below folders that it names.

The rules hold for the process and its future children, and cannot be taken back. No privileges are needed. See
landlock(7) and https://docs.kernel.org/userspace-api/landlock.html.
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on all architectures."""
VERSION_FLAG = 1
PATH_BENEATH = 1

READ_FILE, READ_DIR = 1 << 2, 1 << 3
WRITE_FILE, TRUNCATE, IOCTL_DEVICE = 1 << 1, 1 << 14, 1 << 15
READ = READ_FILE | READ_DIR
FILE_RIGHTS = (1 << 0) | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEVICE
"""Rights that apply to a file itself; the others apply to folders only."""
RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: 1 << 13, 3: TRUNCATE, 5: IOCTL_DEVICE}
"""The rights on files that each version of Landlock added."""
TCP_VERSION, TCP_RIGHTS = 4, 0b11
"""The version that can forbid TCP, and the rights to bind and to connect."""
SCOPE_VERSION, SCOPES = 6, 0b11
"""The version that can isolate processes, and the scopes: abstract sockets and signals."""


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 if it has none or does not allow it."""
    with suppress(OSError, AttributeError):
        return _call(CREATE_RULESET, None, 0, VERSION_FLAG)
    return 0


def restrict_files(readable: Iterable[Path], listed: Iterable[Path], writable: Iterable[Path]) -> None:
    """Forbid this process all files except those at and below these paths; an OSError if that is impossible.

    Below `listed`, only the names of files can be read. The network and signals to other processes are forbidden too,
    where the kernel's version of Landlock can do so. The caller must have set `no_new_privs`.
    """
    version = landlock_version()
    rights = sum(added for since, added in RIGHTS_BY_VERSION.items() if since <= version)
    fields = [rights]  # of the kernel's struct, which grew with its versions
    if version >= TCP_VERSION:
        fields.append(TCP_RIGHTS)
    if version >= SCOPE_VERSION:
        fields.append(SCOPES)
    ruleset = struct.pack(f"={len(fields)}Q", *fields)
    handle = _call(CREATE_RULESET, ruleset, len(ruleset), 0)
    try:
        for path in readable:
            _allow(handle, path, READ & rights)
        for path in listed:
            _allow(handle, path, READ_DIR)
        for path in writable:
            _allow(handle, path, rights & ~(1 << 0))
        _call(RESTRICT_SELF, handle, 0)
    finally:
        os.close(handle)


@lru_cache
def paths_without(roots: Sequence[Path], hidden: Sequence[Path]) -> list[Path]:
    """The roots; one that contains a hidden path is replaced by its contents, without the hidden path."""
    paths: list[Path] = []
    for root in roots:
        if root in hidden:
            continue
        if any(path.is_relative_to(root) for path in hidden):
            with suppress(OSError):
                paths += paths_without(tuple(sorted(root.iterdir())), hidden)
        else:
            paths.append(root)
    return paths


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Allow these rights at and below a path. A path that does not exist needs no rule."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = struct.pack("=Qi", rights if path.is_dir() else rights & FILE_RIGHTS, handle)
        _call(ADD_RULE, ruleset, PATH_BENEATH, rule, 0)
    finally:
        os.close(handle)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
