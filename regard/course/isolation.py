"""Isolation of a solution from the rest of the system, in layers. Each layer is used where the system allows it.

| layer | what it prevents | system |
|---|---|---|
| namespaces | a network; seeing other processes; processes that outlive the solution | Linux, unless disabled |
| Landlock | reading and writing files other than Python's own and the scratch folder | Linux 5.13 |
| seccomp | starting programs; sockets; signals; reading other processes; changing modes of files | Linux |
| no privileges | using the rights of root, if the checker runs as root | Linux |

None of them needs privileges. On other systems only the limits of `solution_process.py` apply: use a container there.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from sysconfig import get_path

from regard.course.landlock import paths_without, restrict_files
from regard.course.seccomp import restrict_system_calls

NEW_USER, NEW_PID, NEW_NETWORK, NEW_IPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
PR_SET_PARENT_DEATH_SIGNAL, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVILEGES = 1, 4, 36, 38
CAPABILITY_VERSION = 0x20080522
MAX_TASKS_IN_NAMESPACE = 64
"""Maximum number of processes and threads of a solution, where the system counts those of a namespace alone."""

IS_LINUX = sys.platform == "linux"
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/nix/store", "/etc/ld.so.cache", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of Regard itself, which contains the bundled assignments with their references."""

NO_NAMESPACES = (
    "This system does not allow namespaces: processes that a solution leaves behind are ended as far as they are found."
)
NO_LANDLOCK = "This system has no Landlock: a solution can read and change the files that you can."
NO_SECCOMP = "This system has no seccomp filters: a solution can use the network and start programs."
NOT_LINUX = (
    "Solutions are isolated on Linux only. Here they run with limits on time, memory and output, and can read and "
    "change the files that you can."
)


def enter_namespaces() -> bool:
    """Move this process's future children to their own namespaces. Returns whether the system allows it.

    They see no network interface and no process but their own, and they end when the first of them ends. The calling
    process must have a single thread.
    """
    user, group = os.geteuid(), os.getegid()
    for flags in (NEW_USER | NEW_PID | NEW_NETWORK | NEW_IPC, NEW_PID | NEW_NETWORK | NEW_IPC):
        if ctypes.CDLL(None).unshare(flags) == 0:
            if flags & NEW_USER:
                with suppress(OSError):
                    Path("/proc/self/setgroups").write_text("deny")
                    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
                    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
                with suppress(OSError, ValueError):
                    resource.setrlimit(resource.RLIMIT_NPROC, (MAX_TASKS_IN_NAMESPACE, MAX_TASKS_IN_NAMESPACE))
            return True
    return False


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """End this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PARENT_DEATH_SIGNAL, 9, 0, 0, 0)


def protect_memory() -> None:
    """Let no other process of this user read this process's memory. Children inherit this."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def isolate(folder: Path, hidden: Iterable[Path], has_namespaces: bool) -> list[str]:
    """Restrict this process to a scratch folder. Returns a sentence for each layer that the system does not have.

    `hidden` are folders that must not be readable even if they are inside Python's own.
    """
    if not IS_LINUX:
        return [NOT_LINUX]
    missing = [] if has_namespaces else [NO_NAMESPACES]
    _drop_capabilities()
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    try:
        readable, listed = readable_paths(hidden)
        restrict_files(readable, listed, [folder, *map(Path, DEVICES)])
    except OSError:
        missing.append(NO_LANDLOCK)
    try:
        restrict_system_calls()
    except OSError:
        missing.append(NO_SECCOMP)
    return missing


def readable_paths(hidden: Iterable[Path] = ()) -> tuple[list[Path], list[Path]]:
    """What a solution may read, and the folders of which it may read only the names of the files, as imports do.

    It may read Python, its packages and the system's libraries, but not Regard and the hidden folders. A folder in
    which Regard is developed has tests and solutions too, and is left out.
    """
    folders = {Path(folder).resolve() for folder in (*sys.path, *map(get_path, ("purelib", "platlib"))) if folder}
    prefixes = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    developed = {folder for folder in folders if (folder / "regard").is_dir() and (folder / "pyproject.toml").exists()}
    roots = (folders - developed) | prefixes | set(map(Path, SYSTEM_FOLDERS))
    concealed = {PACKAGE, *developed, *(path.resolve() for path in hidden)}
    concealed |= {folder / "regard" for folder in folders if (folder / "regard" / "course").is_dir()}
    concealed -= {path for path in concealed if any(root != path and root.is_relative_to(path) for root in roots)}
    outermost = _outermost(roots)
    listed = [root for root in outermost if any(path.is_relative_to(root) for path in concealed)]
    return paths_without(outermost, tuple(sorted(concealed))), listed


def _outermost(paths: Iterable[Path]) -> Sequence[Path]:
    """The paths that are not inside another one."""
    outer: list[Path] = []
    for path in sorted(paths):
        if not any(path.is_relative_to(other) for other in outer):
            outer.append(path)
    return tuple(outer)


def _drop_capabilities() -> None:
    """Give up all privileges of root."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, in two words each
    ctypes.CDLL(None).capset(ctypes.byref(header), ctypes.byref(nothing))
