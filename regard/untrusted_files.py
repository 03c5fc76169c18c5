"""Reading files that may come from anyone: only regular files, within limits on size, nesting and number of values.

A few bytes of JSON could otherwise fill the memory.
"""

import errno
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from regard.errors import RegardError

MAX_JSON = 16_000_000
"""bytes of a JSON file: an index of a hundred thousand tensors takes nine million"""
MAX_VALUES = 400_000
"""values in a JSON file, each of which takes some hundred bytes of memory"""
MAX_DEPTH, MAX_TEXT = 64, 1_000_000
"""of objects in objects, and characters of one text"""


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
        raise RegardError(f"{path} is no ordinary file")
    return False


def stays_within(name: str) -> bool:
    """Whether a file name that a file tells leads to a place within that file's own folder.

    >>> [stays_within(name) for name in ("a.json", "deep/a.json", "../a.json", "/a.json", "./a.json", "")]
    [True, True, False, False, False, False]
    """
    path = PurePosixPath(name)
    plain = len(name) < 256 and name.isprintable() and "\\" not in name and str(path) == name
    return plain and not path.is_absolute() and name != "." and ".." not in path.parts


def read_file(path: Path, most: int) -> bytes:
    """The content of an ordinary file of at most so many bytes, which must not be a pickle."""
    if not is_there(path):
        raise RegardError(f"{path} is missing")
    if path.stat().st_size > most:
        raise RegardError(f"{path} has {path.stat().st_size:,} bytes: {most:,} are the most that is read")
    if is_pickle(path):
        raise RegardError(f"{path} is a pickle, which can run any code when it is read, and Regard reads none")
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
            raise RegardError("a name is given twice")
        return found

    values = sum(text.count(mark) for mark in b",[{")
    if values > most:
        raise RegardError(f"{path} has {values:,} values: {most:,} are the most that is read")
    try:
        value = json.loads(text.decode(), object_pairs_hook=once)
    except RecursionError:
        raise RegardError(f"{path} is nested too deeply to be what it should be") from None
    except ValueError as error:
        raise RegardError(f"{path} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise RegardError(f"{path} holds a {type(value).__name__}, and should hold names and values")
    _check_depth_and_texts(value, path)
    return value


def _check_depth_and_texts(value: dict[str, Any], path: Path) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        names = [name for each in level if isinstance(each, dict) for name in each]
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(text, str) and len(text) > MAX_TEXT for text in (*names, *level)):
            raise RegardError(f"{path} holds a text of more than {MAX_TEXT:,} characters")
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return
    raise RegardError(f"{path} is nested too deeply to be what it should be")


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
