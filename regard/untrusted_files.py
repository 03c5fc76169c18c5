"""Reading untrusted files: only regular files, with limits on size, nesting and number of values.

Without the limits, a few bytes of JSON could exhaust the memory.
"""

import errno
import json
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Any

from regard.errors import RegardError

MAX_JSON_BYTES = 16_000_000
"""Maximum size of a JSON file; an index of 100,000 tensors takes 9 million bytes."""
MAX_JSON_VALUES = 400_000
"""Maximum number of values in a JSON file; each takes about a hundred bytes of memory."""
MAX_JSON_DEPTH = 64
"""Maximum nesting depth of a JSON document."""
MAX_JSON_STRING = 1_000_000
"""Maximum length of a string in a JSON document, in characters."""


def is_regular_file(path: Path) -> bool:
    """Return whether a regular file exists here; raise a RegardError for a folder, pipe, device or broken link."""
    try:
        is_regular = stat.S_ISREG(path.stat().st_mode)  # one call: another program may create the file meanwhile
    except ValueError:  # a null character
        return False
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            raise
        if error.errno == errno.ENAMETOOLONG or not path.is_symlink():
            return False
        is_regular = False
    if not is_regular:
        raise RegardError(f"{path} is not a regular file")
    return True


def is_safe_relative_path(name: str) -> bool:
    """Return whether a file name found in an untrusted file stays within that file's own folder.

    >>> [is_safe_relative_path(name) for name in ("a.json", "deep/a.json", "../a.json", "/a.json", "./a.json", "")]
    [True, True, False, False, False, False]
    """
    path = PurePosixPath(name)
    is_plain = len(name) < 256 and name.isprintable() and "\\" not in name and str(path) == name
    return is_plain and not path.is_absolute() and name != "." and ".." not in path.parts


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes, which must not be a pickle."""
    if not is_regular_file(path):
        raise RegardError(f"{path} is missing")
    if path.stat().st_size > max_bytes:
        raise RegardError(f"{path} has {path.stat().st_size:,} bytes: at most {max_bytes:,} are read")
    if is_pickle(path):
        raise RegardError(f"{path} is a pickle, which can run arbitrary code when loaded; Regard never reads pickles")
    with path.open("rb") as file:  # some system files report a size of 0 and never end
        return file.read(max_bytes)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object, within the limits on size and depth."""
    return parse_json(read_file(path, MAX_JSON_BYTES), path)


def parse_json(text: bytes, path: Path, max_values: int = MAX_JSON_VALUES) -> dict[str, Any]:
    """Parse a JSON object of at most `max_values` values; `path` is for the error message.

    Duplicate names are rejected, because JSON parsers differ in which one they use.
    """

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) != len(pairs):
            raise RegardError("a name occurs twice")
        return names

    values = sum(text.count(mark) for mark in b",[{")
    if values > max_values:
        raise RegardError(f"{path} has {values:,} values: at most {max_values:,} are read")
    try:
        value = json.loads(text.decode(), object_pairs_hook=reject_duplicates)
    except RecursionError:
        raise RegardError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise RegardError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RegardError(f"{path} contains a {type(value).__name__}, but must contain a JSON object")
    _check_depth_and_texts(value, path)
    return value


def _check_depth_and_texts(value: dict[str, Any], path: Path) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_JSON_DEPTH):
        names = [name for node in level if isinstance(node, dict) for name in node]
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node)]
        if any(isinstance(text, str) and len(text) > MAX_JSON_STRING for text in (*names, *level)):
            raise RegardError(f"{path} contains a string of more than {MAX_JSON_STRING:,} characters")
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return
    raise RegardError(f"{path} is nested too deeply")


PICKLE_START = re.compile(
    rb"\x80[\x01-\x05]"  # protocol 2 and later
    rb"|\([dlt]?[pq]|[]})][qR]|\([SVI][^\n]{,80}\np\d+\n|\(S'[^\n]*'\n"  # earlier: a list, dictionary or tuple
    rb"|\(*[ci][\w.]+\n\w+\n"  # a call
)


def is_pickle(path: Path) -> bool:
    """Return whether a file is a pickle of torch or Python, whatever its name: a zip, a tar or a bare pickle."""
    with path.open("rb") as file:
        start = file.read(265)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size:  # a safetensors header
        return False
    archive = start[:4] in (b"PK\x03\x04", b"PK\x05\x06") or start[257:262] == b"ustar"
    return archive or PICKLE_START.match(start) is not None
