"""Atomic writes: a file or folder is written completely or not at all."""

import errno
import hashlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import UNWRITABLE_ERRNOS, CallError, RegardError, WriteError, error_number, write_error


@contextmanager
def raising_write_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a `WriteError` that names `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


def resolved(path: Path) -> Path:
    """Return the absolute path with all links followed; raise an OSError if links lead to each other."""
    try:
        return path.resolve()
    except RuntimeError as error:  # until Python 3.12
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def write_file(path: Path, content: str | bytes, new: bool = False) -> None:
    """Write a file completely, or leave what was there as it was; a `WriteError` says why it could not be written.

    The content goes into a temporary file in the same folder, which is flushed to disk and then renamed. A pipe, a
    device or a descriptor that is already open, such as /dev/stdout, is written to directly. With `new` nothing may
    exist at `path`, not even a file that another process creates in the meantime: its error number is then EEXIST.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    temporary: Path | None = None
    try:
        if not new and _write_directly(path, data):
            return
        target = resolved(path.parent) / path.name if new else resolved(path)  # a link stays a link
        candidate = _temporary_name(target)
        handle = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # the system applies the umask
        temporary = candidate
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if not new and target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        flush_to_disk(temporary)
        if new:
            _claim(temporary, target)
        else:
            temporary.replace(target)
        flush_to_disk(target.parent)
    except OSError as error:
        raise write_error(error, path) from error
    finally:  # also after Ctrl-C
        if temporary is not None:
            temporary.unlink(missing_ok=True)


_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?P<process>\d+)(?:/task/\d+)?)/fd/(?P<number>\d{1,9})")
MAX_LINKS = 40
"""Maximum number of symbolic links that are followed, as on Linux."""


def open_descriptor(path: Path) -> int | None:
    """Return the number of the open descriptor that a path such as /dev/stdout or /dev/fd/63 names."""
    for _ in range(MAX_LINKS):
        path = resolved(path.parent) / path.name
        match = _DESCRIPTOR.fullmatch(str(path))
        if match is not None:
            return int(match["number"]) if match["process"] in (None, str(os.getpid())) else None
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _write_directly(path: Path, data: bytes) -> bool:
    """Write to a pipe, a device or an open descriptor, and return whether `path` is one.

    A descriptor is duplicated rather than opened again: that works for sockets, and keeps the position in a file to
    which output is redirected.
    """
    descriptor = open_descriptor(path)
    if descriptor is not None:
        sys.stdout.flush()  # keeps the order of earlier output
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return True
    in_proc = resolved(path.parent).is_relative_to("/proc")  # the descriptor of another process, a system setting
    if not path.exists() or (path.is_file() and not in_proc):
        return False
    with path.open("ab") as file:
        file.write(data)
    return True


def _temporary_name(target: Path) -> Path:
    """Return a hidden name next to `target`, cut so that it stays below 255 bytes in any script."""
    return target.parent / f".{target.name[:55]}.{secrets.token_hex(8)}"


def _claim(temporary: Path, target: Path) -> None:
    """Give a complete file its name, or raise a FileExistsError if that name is taken."""
    try:
        target.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        target.touch(exist_ok=False)  # this file system has no hard links: reserve the name, then replace
        temporary.replace(target)


MODEL_MARKER_FILES = ("config.json", "manifest.json")
"""Files that mark a folder as a complete model: when files are moved one by one, these are moved last."""


def check_new_folder(path: Path, force: bool = False) -> None:
    """Raise a RegardError unless nothing exists at `path`, or an empty folder.

    With `force` the folder may contain files: those with the same names will be replaced, all others stay.
    """
    if path.exists() and not path.is_dir():
        raise RegardError(f"{path} already exists and is not a folder: choose another name")
    if not force and path.is_dir() and any(path.iterdir()):
        advice = f"{path} already exists and is not empty: choose another folder, or write into it with"
        raise CallError(f"{advice} force=True", f"{advice} --force")


@contextmanager
def new_folder(
    path: Path, keep_existing: bool = False, force: bool = False, obsolete: Collection[str] = ()
) -> Iterator[Path]:
    """Provide a temporary folder that is renamed to `path` on success and removed on failure.

    Its files are flushed to disk before the rename and the parent after it, so a crash leaves either nothing or
    everything. If `path` is an existing empty folder (the current folder, a mount point, the target of a link), the
    files are moved into it one by one, because replacing it would leave processes in a deleted folder. If another
    process creates `path` in the meantime, its folder is left untouched: that is a RegardError, unless `keep_existing`
    says that either folder will do.

    With `force`, `path` may contain files: those with the same names are replaced, those named in `obsolete` are
    removed, and all others stay.
    """
    given = path
    with raising_write_errors(given):
        path = resolved(given)
        path.parent.mkdir(parents=True, exist_ok=True)
        exists = path.is_dir()
        temporary = _temporary_name(path / path.name if exists else path)
        temporary.mkdir()
    try:
        temporary.chmod(0o755)
        yield temporary
        for file in sorted(temporary.rglob("*")):
            file.chmod(0o755 if file.is_dir() else 0o644)  # some libraries create private files
            flush_to_disk(file)
        flush_to_disk(temporary)
        if force and path.is_dir():
            _replace_each(temporary, path, obsolete)
        elif not _move_into_place(temporary, path, exists) and not (keep_existing and path.is_dir()):
            raise RegardError(
                f"{path} was created by another process in the meantime and was left untouched: choose another name"
            )
        flush_to_disk(path.parent)
    except Exception as error:
        if error_number(error) in UNWRITABLE_ERRNOS and not isinstance(error, WriteError):
            raise write_error(error, given) from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_into_place(temporary: Path, path: Path, exists: bool) -> bool:
    """Move the finished folder to `path`; return False if something else has been created there."""
    if exists:
        if list(path.iterdir()) != [temporary]:
            return False
        _move_each(temporary, path)
        flush_to_disk(path)
        return True
    try:
        temporary.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _move_each(source: Path, target: Path) -> None:
    """Move the content of one folder into another: all of it, or nothing."""
    moved: list[Path] = []
    try:
        for file in sorted(source.iterdir(), key=lambda file: (file.name in MODEL_MARKER_FILES, file.name)):
            file.rename(target / file.name)
            moved.append(target / file.name)
    except BaseException:
        for file in moved:
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        raise


def _replace_each(source: Path, target: Path, obsolete: Collection[str]) -> None:
    """Move all files of one folder into another, replacing files with the same names, and remove obsolete ones.

    The files that mark a complete model are removed first and added last, so a mixture of two models is never
    mistaken for one.
    """
    files = [file for file in source.rglob("*") if not file.is_dir()]
    names = sorted(
        (file.relative_to(source) for file in files), key=lambda name: (name.name in MODEL_MARKER_FILES, str(name))
    )
    for name in names:
        parents = [target / parent for parent in name.parents if (target / parent).exists()]
        in_the_way = [parent for parent in parents if not parent.is_dir()]
        if (target / name).is_dir():
            in_the_way.append(target / name)
        if in_the_way:
            raise RegardError(f"{in_the_way[0]} is in the way of {target / name}: remove it, or choose another folder")
    for first in MODEL_MARKER_FILES:
        if Path(first) in names or first in obsolete:
            (target / first).unlink(missing_ok=True)
    flush_to_disk(target)
    for old in obsolete:
        if Path(old) not in names and (target / old).is_file():
            (target / old).unlink()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).replace(target / name)
    flush_to_disk(target)


def flush_to_disk(path: Path) -> None:
    """Flush a file, or a folder's list of names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_digest(path: Path) -> str:
    """Return the SHA-256 digest of a file's content, read in chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
