"""Files that are there whole or not at all, digests that tell whether they are what they were, and suspicion.

What comes from others is read only if it is an ordinary file of a size, depth and number of values that one may
expect: a few bytes of JSON could otherwise fill the memory.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

MAX_JSON = 16_000_000
"""bytes of a JSON file: an index of a hundred thousand tensors takes nine million"""
MAX_VALUES = 400_000
"""values in a JSON file, each of which takes some hundred bytes of memory"""
MAX_DEPTH, MAX_TEXT = 64, 1_000_000
"""of objects in objects, and characters of one text"""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Error numbers that mean that nothing more can be written, whatever is being written."""
ADVICE = {
    errno.ENOSPC: "free some space, or choose another location",
    errno.EDQUOT: "free some of your quota, or choose another location",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or choose another location",
    errno.EROFS: "choose a location that can be written",
    errno.EACCES: "check the permissions, or choose another location",
    errno.EPERM: "check the permissions, or choose another location",
}
"""What to do about an error of the operating system."""


class WriteError(OSError, ValueError):
    """A file could not be written. The message names the file and says why, and what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.message = message

    def __str__(self) -> str:
        return self.message


def error_number(error: BaseException) -> int:
    """The operating system's error number; libraries written in Rust put it only into their message. 0 if unknown."""
    if isinstance(error, OSError):
        return error.errno or 0
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else 0


def describe_os_error(error: OSError) -> str:
    """What an error of the operating system is about, without its number, and what to do about it."""
    if isinstance(error, WriteError) or error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    advice = ADVICE.get(error.errno or 0)
    return f"{where}{error.strerror}" + (f": {advice}" if advice else "")


def write_error(error: BaseException, path: Path) -> WriteError:
    """The error to raise when `path` could not be written."""
    code = error_number(error)
    reason = os.strerror(code) if code else str(error)
    advice = ADVICE.get(code)
    return WriteError(code, f"{path} cannot be written: {reason}" + (f"; {advice}" if advice else ""))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a `WriteError` that names `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


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
        target = path.parent.resolve() / path.name if new else path.resolve()  # a link stays a link
        candidate = _temporary_name(target)
        handle = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # the system applies the umask
        temporary = candidate
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if not new and target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        flush(temporary)
        if new:
            _claim(temporary, target)
        else:
            temporary.replace(target)
        flush(target.parent)
    except OSError as error:
        raise write_error(error, path) from error
    finally:  # also after Ctrl-C
        if temporary is not None:
            temporary.unlink(missing_ok=True)


_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?P<process>\d+)(?:/task/\d+)?)/fd/(?P<number>\d{1,9})")
MAX_LINKS = 40
"""Most symbolic links that are followed, as on Linux."""


def _open_descriptor(path: Path) -> int | None:
    """The number of the open descriptor that a path such as /dev/stdout or /dev/fd/63 stands for."""
    for _ in range(MAX_LINKS):
        path = path.parent.resolve() / path.name
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
    descriptor = _open_descriptor(path)
    if descriptor is not None:
        sys.stdout.flush()  # what was printed before comes first
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return True
    in_proc = path.parent.resolve().is_relative_to("/proc")  # the descriptor of another process, a system setting
    if not path.exists() or (path.is_file() and not in_proc):
        return False
    with path.open("ab") as file:
        file.write(data)
    return True


def _temporary_name(target: Path) -> Path:
    """A hidden name next to `target`; cut so that it stays below 255 bytes in any script."""
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


LAST = ("config.json", "manifest.json")
"""what makes a folder a model's: where files are moved one by one, these come behind all others"""


def check_new_folder(path: Path, force: bool = False) -> None:
    """Raise a ValueError unless a folder can be written here: nothing is there, or an empty folder.

    With `force` the folder may hold files: those of the same names are replaced, and all others stay.
    """
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} already exists and is not a folder: choose another name")
    if not force and path.is_dir() and any(path.iterdir()):
        raise ValueError(
            f"{path} already exists and is not empty: choose another folder, or write into it with --force "
            "(in Python, force=True)"
        )


@contextmanager
def new_folder(
    path: Path, keep_other: bool = False, force: bool = False, obsolete: Collection[str] = ()
) -> Iterator[Path]:
    """A temporary folder to write into, which becomes `path` when all went well and vanishes otherwise.

    Its files are flushed to disk before the rename and the parent after it, so that a crash leaves either nothing
    or everything. Into a folder that is there and empty (the current one, a mount point, what a link leads to) they are
    moved one by one instead, since whoever stands in it would be left in a folder without a name. If another has come
    to be meanwhile, it stays, and this is a ValueError, or with `keep_other` no mistake: then either will do.

    With `force`, a folder that holds files gets the new ones too: files of the same names are replaced, those named in
    `obsolete` are removed, and all others stay.
    """
    given, path = path, path.resolve()
    with writing(given):
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.is_dir()
        temporary = _temporary_name(path / path.name if there else path)
        temporary.mkdir()
    try:
        temporary.chmod(0o755)
        yield temporary
        for file in sorted(temporary.rglob("*")):
            file.chmod(0o755 if file.is_dir() else 0o644)  # some writers leave them private
            flush(file)
        flush(temporary)
        if force and path.is_dir():
            _replace_each(temporary, path, obsolete)
        elif not _take_place(temporary, path, there) and not (keep_other and path.is_dir()):
            raise ValueError(f"{path} has come to be meanwhile, and was left as it is: choose another name")
        flush(path.parent)
    except Exception as error:
        if error_number(error) in FULL and not isinstance(error, WriteError):
            raise write_error(error, given) from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _take_place(temporary: Path, path: Path, there: bool) -> bool:
    """Whether what was written is at `path` now; not if something else is."""
    if there:
        if list(path.iterdir()) != [temporary]:
            return False
        _move_each(temporary, path)
        flush(path)
        return True
    try:
        temporary.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _move_each(source: Path, target: Path) -> None:
    """Move all that is in one folder into another; all of it, or nothing."""
    moved: list[Path] = []
    try:
        for file in sorted(source.iterdir(), key=lambda file: (file.name in LAST, file.name)):
            file.rename(target / file.name)
            moved.append(target / file.name)
    except BaseException:
        for file in moved:
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        raise


def _replace_each(source: Path, target: Path, obsolete: Collection[str]) -> None:
    """Move all files of one folder into another, in place of those of the same names; remove what is obsolete.

    What makes a folder a model's goes first and comes last, so that a mixture of two is never taken for a model.
    """
    files = [file for file in source.rglob("*") if not file.is_dir()]
    names = sorted((file.relative_to(source) for file in files), key=lambda name: (name.name in LAST, str(name)))
    for name in names:
        parents = [target / parent for parent in name.parents if (target / parent).exists()]
        in_the_way = [parent for parent in parents if not parent.is_dir()]
        if (target / name).is_dir():
            in_the_way.append(target / name)
        if in_the_way:
            raise ValueError(f"{in_the_way[0]} is in the way of {target / name}: remove it, or choose another folder")
    for first in LAST:
        if Path(first) in names or first in obsolete:
            (target / first).unlink(missing_ok=True)
    flush(target)
    for old in obsolete:
        if Path(old) not in names and (target / old).is_file():
            (target / old).unlink()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).replace(target / name)
    flush(target)


def flush(path: Path) -> None:
    """Have the system write a file or a folder's list of names to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """SHA-256 of a file's content, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_there(path: Path) -> bool:
    """Whether there is a file; a ValueError if there is a folder, a pipe, a device or a link to nothing instead."""
    try:
        if path.is_file():
            return True
        other = path.is_symlink() or path.exists()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        other = False
    if other:
        raise ValueError(f"{path} is no ordinary file")
    return False


def stays_within(name: str) -> bool:
    """Whether a file name that a file tells leads to a place within that file's own folder.

    >>> [stays_within(name) for name in ("a.json", "deep/a.json", "../a.json", "/a.json", "./a.json", "")]
    [True, True, False, False, False, False]
    """
    path = PurePosixPath(name)
    plain = len(name) < 256 and name.isprintable() and "\\" not in name and str(path) == name
    return plain and not path.is_absolute() and name != "." and ".." not in path.parts


def shorten(message: str, most: int = 400) -> str:
    """A message that quotes a stranger, cut where the stranger goes on too long."""
    return message if len(message) <= most else f"{message[: most - 1]}…"


def quoted(value: object) -> str:
    """A stranger's value in a message, however long it is."""
    return shorten(repr(value), 100)


def read_file(path: Path, most: int) -> bytes:
    """The content of an ordinary file of at most so many bytes, which must not be a pickle."""
    if not is_there(path):
        raise ValueError(f"{path} is missing")
    if path.stat().st_size > most:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes: {most:,} are the most that is read")
    if is_pickle(path):
        raise ValueError(f"{path} is a pickle, which can run any code when it is read, and Regard reads none")
    with path.open("rb") as file:  # some files of the system say that they are empty, and never end
        return file.read(most)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object, of a size and depth that one may expect."""
    return parse_json(read_file(path, MAX_JSON), path)


def parse_json(text: bytes, path: Path, most: int = MAX_VALUES) -> dict[str, Any]:
    """The object that the text holds, of at most so many values; `path` is for the message.

    A name given twice is refused, because readers differ in which they take.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is given twice")
        return found

    values = sum(text.count(mark) for mark in b",[{")
    if values > most:
        raise ValueError(f"{path} has {values:,} values: {most:,} are the most that is read")
    try:
        value = json.loads(text.decode(), object_pairs_hook=once)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be what it should be") from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, and should hold names and values")
    _check_depth_and_texts(value, path)
    return value


def _check_depth_and_texts(value: dict[str, Any], path: Path) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        names = [name for each in level if isinstance(each, dict) for name in each]
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(text, str) and len(text) > MAX_TEXT for text in (*names, *level)):
            raise ValueError(f"{path} holds a text of more than {MAX_TEXT:,} characters")
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return
    raise ValueError(f"{path} is nested too deeply to be what it should be")


PICKLED = re.compile(
    rb"\x80[\x01-\x05]"  # since protocol 2
    rb"|\([dlt]?[pq]|[]})][qR]|\([SVI][^\n]{,80}\np\d+\n|\(S'[^\n]*'\n"  # before: a list, a dictionary, a tuple
    rb"|\(*[ci][\w.]+\n\w+\n"  # anything that is called
)


def is_pickle(path: Path) -> bool:
    """Whether a file's content, whatever its name, is what torch or Python pickles: a zip, a tar or a bare pickle."""
    with path.open("rb") as file:
        start = file.read(265)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size:  # a safetensors header
        return False
    archive = start[:4] in (b"PK\x03\x04", b"PK\x05\x06") or start[257:262] == b"ustar"
    return archive or PICKLED.match(start) is not None
