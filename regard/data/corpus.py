"""Text files to rows of strings: strict, streaming, with every mistake named by file and line.

A row has one field for each side: source and target, text and label, or text alone. Lines end at a line feed and
nowhere else (Unicode's other separators would put two files out of step); a carriage return before it and a byte order
mark at the start are dropped.
"""

import gzip
import json
import lzma
import os
import re
import shlex
import stat
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader, RawIOBase
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import RegardError

MAX_LINE_CHARACTERS = 100_000
"""a line of so many characters or more is no sentence: it is counted and left out"""

REMEDIES = {
    "invalid UTF-8": "convert the file: iconv -f latin1 -t utf-8",
    "NUL byte": "this is no text, or UTF-16: convert the file with iconv",
    "lone surrogate": "half a character: write the JSON anew from the text it came from",
    "empty side": "remove the line from every side",
    "unequal lines": "the files must have one line for each sentence, in the same order",
    "missing column": "each line needs every column, separated by tabs",
    "invalid JSON": "each line must be one JSON object",
    "missing key": "each object needs every key",
    "not a string": "the value of each key must be text",
    "unknown class": "the classes are those of the training text",
    "too long": f"lines of {MAX_LINE_CHARACTERS:,} characters or more are left out",
}
"""what can be wrong with a line, and what to do about it"""

PIPE_TIMEOUT_SECONDS = 10
"""How long a pipe is waited for until somebody opens it for writing."""

ByteReader = BufferedReader | gzip.GzipFile

_SURROGATE = re.compile("[\ud800-\udfff]")


class LineFault(NamedTuple):
    """What is wrong with a line: one of REMEDIES, and a detail."""

    kind: str
    detail: str = ""


UTF_16 = "it is UTF-16"


def remedy(fault: LineFault, path: str) -> str:
    """What to do about a fault in this file, or in what was piped in, which is called stdin; commands can be pasted."""
    if fault.kind != "invalid UTF-8":
        return REMEDIES[fault.kind]
    convert = f"iconv -f {'utf-16' if fault.detail == UTF_16 else 'latin1'} -t utf-8"
    if path == "stdin":
        return f"convert the input: {convert}"
    unpack = {".gz": "gzip -dc", ".xz": "xz -dc"}.get(Path(path).suffix)
    if unpack:
        target = str(Path(path).with_suffix(".utf8"))
        return f"convert the file: {unpack} {shlex.quote(path)} | {convert} > {shlex.quote(target)}"
    return f"convert the file: {convert} {shlex.quote(path)} > {shlex.quote(f'{path}.utf8')}"


class CorpusError(RegardError):
    """Something in a corpus is wrong: the message says what, where, and what to do."""


@dataclass
class CorpusProblems:
    """What was wrong on the way. Strict, the first problem is an error; with `skip` each is counted and left out."""

    skip: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """for each kind, where it was seen first: `file:line`, at most five"""

    def add(self, counts: dict[str, int], examples: dict[str, list[str]]) -> None:
        """Take over what was found elsewhere."""
        self.counts.update(counts)
        for kind, places in examples.items():
            self.examples[kind] = [*self.examples.get(kind, []), *places][:5]

    def found(self, kind: str, where: str, detail: str = "") -> None:
        """Count a problem, or raise it."""
        self.counts[kind] += 1
        seen = self.examples.setdefault(kind, [])
        if len(seen) < 5:
            seen.append(where)
        if not self.skip and kind != "too long":
            told = f"{where}: {kind}{f' ({detail})' if detail else ''}"
            mend = remedy(LineFault(kind, detail), where.rpartition(":")[0])
            ways = "in training --set data.skip_bad=true, in other commands --skip-bad, in Python Problems(skip=True)"
            without = "" if kind == "unequal lines" else f"; or go on without such lines: {ways}"
            raise CorpusError(f"{told}: {mend}{without}")


@dataclass(frozen=True)
class CorpusRow:
    """The fields of one example and the line it stands on."""

    fields: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Corpus:
    """Where text lies and how it is read.

    Several files are aligned line by line, one field each. One file is plain text, a line a row; with `columns`
    (counted from 1, as `cut` does) it is TSV, with `keys` JSONL. Files ending in .gz and .xz are decompressed.
    """

    files: tuple[str, ...]
    columns: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is one way to read it; paths become strings."""
        for name in ("files", "columns", "keys"):
            if isinstance(getattr(self, name), str | Path | int):
                raise CorpusError(f"{name} must be several, in a tuple, and this is one: {getattr(self, name)!r}")
        object.__setattr__(self, "files", tuple(str(file) for file in self.files))
        if not all(isinstance(column, int) for column in self.columns):
            raise CorpusError(f"columns are numbers, and here are {list(self.columns)}")
        if not self.files:
            raise CorpusError("a corpus needs at least one file")
        if (self.columns or self.keys) and len(self.files) > 1:
            raise CorpusError(f"columns and keys are of one file, and here are {len(self.files)}")
        if self.columns and self.keys:
            raise CorpusError("a file has columns (TSV) or keys (JSONL), not both")
        if any(column < 1 for column in self.columns):
            raise CorpusError(f"columns are counted from 1, and here are {list(self.columns)}")

    @property
    def sides(self) -> int:
        """Fields in each row."""
        return len(self.columns or self.keys or self.files)

    def within(self, folder: Path) -> "Corpus":
        """The same with each file sought in a folder, unless it is named from the root."""
        return replace(self, files=tuple(str(folder / file) for file in self.files))

    def rows(self, problems: CorpusProblems) -> Iterator[CorpusRow]:
        """The good rows, in order."""
        if len(self.files) > 1:
            rows = _aligned(self.files, problems)
        elif self.columns:
            rows = _columns(self.files[0], self.columns, problems)
        elif self.keys:
            rows = _keys(self.files[0], self.keys, problems)
        else:
            rows = (CorpusRow((line,), number) for number, line in _good_lines(self.files[0], problems))
        if self.sides == 1:
            return rows  # a blank line of plain text is text
        return (row for row in rows if not self._has_empty_side(row, problems))

    def where(self, row: CorpusRow, side: int = 0) -> str:
        """`file:line` of one side of a row."""
        return f"{self.files[min(side, len(self.files) - 1)]}:{row.line}"

    def _has_empty_side(self, row: CorpusRow, problems: CorpusProblems) -> bool:
        for side, text in enumerate(row.fields):
            if not text.strip():
                problems.found("empty side", self.where(row, side))
                return True
        return False


def read_lines(path: str) -> Iterator[tuple[int, str | LineFault]]:
    """Each line of a file with its number, or what is wrong with it."""
    number = 0
    try:
        with open_by_suffix(path) as file:
            for number, raw in enumerate(_raw_lines(file), 1):
                yield number, _decode(raw, first=number == 1)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise CorpusError(f"{path}: damaged after line {number} ({error}): get the file again") from error
    except IsADirectoryError as error:
        raise CorpusError(f"{path} is a folder: name the files in it") from error
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: there is no such file") from error
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}") from error


def _good_lines(path: str, problems: CorpusProblems) -> Iterator[tuple[int, str]]:
    for number, line in read_lines(path):
        if isinstance(line, LineFault):
            problems.found(line.kind, f"{path}:{number}", line.detail)
        else:
            yield number, line


def open_by_suffix(path: str) -> ByteReader:
    """A file's bytes, decompressed when its name ends in .gz or .xz. A pipe can be read too, but only once."""
    kind = kind_of_file(path)
    packed = path.endswith((".gz", ".xz"))
    if kind == "a pipe" and not packed:
        return _open_pipe(path)
    if kind and kind != "a folder":  # to open a folder is an error that is named elsewhere
        raise CorpusError(f"{path} is {kind}: write its text into a file, and name that")
    if path.endswith(".gz"):
        return gzip.GzipFile(path)
    if path.endswith(".xz"):
        return BufferedReader(XzReader(path), 1 << 16)
    return Path(path).open("rb")


def kind_of_file(path: str) -> str:
    """What there is instead of an ordinary file: "a pipe", "a device" and so on; "" for a file, or for nothing.

    A terminal and /dev/null can be read as files.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return ""  # opening it says what is wrong
    if stat.S_ISCHR(mode) and path != os.devnull and not _is_terminal(path):
        return "a device"
    kinds = {"a folder": stat.S_ISDIR, "a pipe": stat.S_ISFIFO, "a device": stat.S_ISBLK, "a socket": stat.S_ISSOCK}
    return next((kind for kind, is_so in kinds.items() if is_so(mode)), "")


def require_files(paths: Iterable[str]) -> None:
    """A CorpusError for the first path that is no ordinary file: text that is read several times must stay there."""
    for path in paths:
        if (kind := kind_of_file(path)) == "a folder":
            raise CorpusError(f"{path} is a folder: name the files in it")
        if kind:
            raise CorpusError(f"{path} is {kind}, and is read several times: write its text into a file, and name that")
        if not Path(path).exists():
            raise CorpusError(f"{path}: there is no such file")


def _is_terminal(path: str) -> bool:
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.isatty()
    except OSError:
        return False


def _open_pipe(path: str) -> BufferedReader:
    """Open a pipe; a CorpusError if nobody writes to it within some seconds, for which opening would wait forever."""
    opened: list[int] = []
    waiting = threading.Thread(target=lambda: opened.append(os.open(path, os.O_RDONLY)), daemon=True)
    waiting.start()
    waiting.join(PIPE_TIMEOUT_SECONDS)
    if not waiting.is_alive() and opened:
        return os.fdopen(opened[0], "rb")
    with suppress(OSError):  # a writer, so that the thread goes on and ends
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    waiting.join(1)
    for handle in opened:
        os.close(handle)
    raise CorpusError(f"{path} is a pipe, and nobody has written to it for {PIPE_TIMEOUT_SECONDS} seconds")


class XzReader(RawIOBase):
    """An .xz file's bytes. Unlike lzma.LZMAFile, it does not take a stream that is damaged for the end of the file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = Path(path).open("rb")  # noqa: SIM115  # closed with this object
        self.stream: lzma.LZMADecompressor | None = lzma.LZMADecompressor()

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, room: Any) -> int:
        """Fill `room` with the next bytes; 0 at the end."""
        view = memoryview(room).cast("B")
        while self.stream is not None:
            packed = self.file.read(1 << 16) if self.stream.needs_input else b""
            if self.stream.needs_input and not packed:
                raise EOFError("the archive ends in the middle")
            some = self.stream.decompress(packed, len(view))
            if self.stream.eof:
                self.stream = self._next_stream(self.stream.unused_data)
            if some:
                view[: len(some)] = some
                return len(some)
        return 0

    def _next_stream(self, rest: bytes) -> lzma.LZMADecompressor | None:
        """Another stream may follow, or zeros; a decompressor that has the rest, or None at the end."""
        rest = rest.lstrip(b"\0")
        while not rest:
            more = self.file.read(1 << 16)
            if not more:
                return None
            rest = more.lstrip(b"\0")
        self.file.seek(self.file.tell() - len(rest))
        return lzma.LZMADecompressor()

    def close(self) -> None:
        """The file too."""
        self.file.close()
        super().close()


def _raw_lines(file: ByteReader) -> Iterator[bytes | None]:
    """Lines without their ends, None for one so long that it is not kept in memory."""
    most = 4 * MAX_LINE_CHARACTERS  # bytes of so many characters at the most
    while raw := file.readline(most + 2):
        if raw.endswith(b"\n"):
            yield raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
        elif len(raw) < most + 2:
            yield raw  # the last line, with no end
        else:
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(most)
            yield None


def _decode(raw: bytes | None, first: bool) -> str | LineFault:
    """The text of a line, or what is wrong with it."""
    if raw is None:
        return LineFault("too long")
    if first and raw.startswith(b"\xef\xbb\xbf"):
        raw = raw[3:]
    if first and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return LineFault("invalid UTF-8", UTF_16)
    if b"\0" in raw:
        return LineFault("NUL byte", f"at byte {raw.index(0)}")
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        return LineFault("invalid UTF-8", f"at byte {error.start}")
    return LineFault("too long") if len(line) >= MAX_LINE_CHARACTERS else line


def _aligned(files: tuple[str, ...], problems: CorpusProblems) -> Iterator[CorpusRow]:
    """One row for each line number; the first thing wrong with it is its problem."""
    readers = [read_lines(path) for path in files]
    for number, lines in enumerate(zip_longest(*readers), 1):
        ended = [path for path, line in zip(files, lines, strict=True) if line is None]
        if ended:
            longer = next(path for path in files if path not in ended)
            problems.found("unequal lines", f"{longer}:{number}", f"{ended[0]} ends before it")
            continue
        fields = [line for _, line in lines]
        faults = [(path, line) for path, line in zip(files, fields, strict=True) if isinstance(line, LineFault)]
        if faults:
            path, fault = faults[0]
            problems.found(fault.kind, f"{path}:{number}", fault.detail)
        else:
            yield CorpusRow(tuple(line for line in fields if isinstance(line, str)), number)


def _columns(path: str, columns: tuple[int, ...], problems: CorpusProblems) -> Iterator[CorpusRow]:
    for number, line in _good_lines(path, problems):
        cells = line.split("\t")
        if len(cells) < max(columns):
            problems.found("missing column", f"{path}:{number}", f"it has {len(cells)}, and {max(columns)} is wanted")
            continue
        yield CorpusRow(tuple(cells[column - 1] for column in columns), number)


def _keys(path: str, keys: tuple[str, ...], problems: CorpusProblems) -> Iterator[CorpusRow]:
    for number, line in _good_lines(path, problems):
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.found("invalid JSON", where, str(error))
            continue
        if not isinstance(record, dict):
            problems.found("invalid JSON", where, f"a {type(record).__name__}, and no object")
            continue
        fields: tuple[Any, ...] = tuple(record.get(key) for key in keys)
        if missing := [key for key in keys if key not in record]:
            problems.found("missing key", where, missing[0])
        elif other := [key for key in keys if not isinstance(record[key], str)]:
            problems.found("not a string", where, other[0])
        elif any(_SURROGATE.search(value) for value in fields):
            problems.found("lone surrogate", where)
        elif any("\0" in value for value in fields):
            problems.found("NUL byte", where)
        else:
            yield CorpusRow(fields, number)
