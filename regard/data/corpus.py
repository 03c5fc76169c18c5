"""Reading text files as rows of strings: streaming and strict, reporting every problem with file and line.

A row has one field per side: source and target, text and label, or only text. A line ends at a line feed and nowhere
else (Unicode's other separators would misalign two files); a carriage return before it and a byte order mark at the
start of the file are dropped.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import check_type
from regard.data.compressed_files import (
    COMPRESSED_SUFFIXES,
    ByteReader,
    open_compressed,
    position_on_disk,
    refuse_compressed,
)
from regard.errors import RegardError
from regard.formatting import quoted

MAX_LINE_CHARACTERS = 100_000
"""Lines of this many characters or more are not sentences: they are counted and skipped."""

MAX_TIMES = 1_000
"""Maximum number of times that a corpus can be used in an epoch."""

REMEDIES = {
    "invalid UTF-8": "convert the file: iconv -f latin1 -t utf-8",
    "NUL byte": "the file is binary, or UTF-16: convert it with iconv",
    "lone surrogate": "half a character: write the JSON again from the original text",
    "empty side": "remove the line from every side",
    "unequal lines": "the files must have one line per sentence, in the same order",
    "missing column": "each line needs every column, separated by tabs",
    "invalid JSON": "each line must be one JSON object",
    "missing key": "each object needs every key",
    "not a string": "the value of each key must be a string",
    "unknown class": "the classes are those of the training text",
    "missing label": "each line needs a word and its label; a blank line ends a sentence",
    "labels do not match words": "each word needs one label, in the same order and separated by spaces",
    "unknown label": "the labels are those of the training text",
    "too long": f"lines of {MAX_LINE_CHARACTERS:,} characters or more are skipped",
}
"""The kinds of problems with a line, and what to do about each."""

NOT_TO_BE_SKIPPED = ("unequal lines", "unknown class", "unknown label")
"""For these the error does not suggest skipping, which would hide that the data does not fit."""
SKIP_IN_TRAINING = "--set data.skip_bad=true"
SKIP_IN_EVALUATION = "--skip-bad"

PIPE_TIMEOUT_SECONDS = 10
"""How long to wait for a writer before a pipe is rejected, in seconds."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class LineFault(NamedTuple):
    """What is wrong with a line: one of REMEDIES, and a detail."""

    kind: str
    detail: str = ""


UTF_16 = "the file is UTF-16"


def remedy(fault: LineFault, path: str) -> str:
    """Say what to do about a fault in a file, or in piped input ("stdin"); commands can be pasted into a shell."""
    if fault.kind != "invalid UTF-8":
        return REMEDIES[fault.kind]
    convert = f"iconv -f {'utf-16' if fault.detail == UTF_16 else 'latin1'} -t utf-8"
    if path == "stdin":
        return f"convert the input: {convert}"
    unpack = {".gz": "gzip -dc", ".xz": "xz -dc", ".zst": "zstd -dc"}.get(Path(path).suffix)
    if unpack:
        target = str(Path(path).with_suffix(".utf8"))
        return f"convert the file: {unpack} {shlex.quote(path)} | {convert} > {shlex.quote(target)}"
    return f"convert the file: {convert} {shlex.quote(path)} > {shlex.quote(f'{path}.utf8')}"


class CorpusError(RegardError):
    """A problem in a corpus. The message says what is wrong, where, and what to do."""


@dataclass
class CorpusProblems:
    """The problems of a corpus. By default the first is raised; with `skip`, bad lines are counted and skipped."""

    skip: bool = False
    skip_option: str = "CorpusProblems(skip=True)"
    """How the user can set `skip`, for the error."""
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first five locations of each kind of problem, as `file:line`."""

    def merge(self, counts: dict[str, int], examples: dict[str, list[str]]) -> None:
        """Add the problems that were recorded elsewhere."""
        self.counts.update(counts)
        for kind, locations in examples.items():
            self.examples[kind] = [*self.examples.get(kind, []), *locations][:5]

    def record(self, kind: str, where: str, detail: str = "", unit: str = "lines") -> None:
        """Count a problem; raise it unless `skip` is set. Lines that are too long are never an error.

        `unit` names what is skipped.
        """
        self.counts[kind] += 1
        locations = self.examples.setdefault(kind, [])
        if len(locations) < 5:
            locations.append(where)
        if not self.skip and kind != "too long":
            problem = f"{where}: {kind}{f' ({detail})' if detail else ''}"
            advice = remedy(LineFault(kind, detail), where.rpartition(":")[0])
            if kind not in NOT_TO_BE_SKIPPED:  # the advice comes last: it can end with a command to paste
                problem += f": skip such {unit} ({self.skip_option}) or fix them"
            raise CorpusError(f"{problem}: {advice}")


@dataclass(frozen=True)
class CorpusRow:
    """The fields of one example and its line number."""

    fields: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Corpus:
    """The files of a corpus and their format.

    Several files are aligned line by line, one field each. A single file is plain text with one row per line, TSV with
    `columns` (counted from 1, as in `cut`), or JSONL with `keys`. Files ending in .gz, .xz or .zst are decompressed.
    """

    files: tuple[str, ...]
    columns: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    times: float = 1.0
    """How often each example is used in an epoch of training: 3 uses all of them three times, 0.5 another half of them
    in each epoch."""
    tag: str = ""
    """A word put before each text of the first side, such as <BT> before machine-translated sources."""

    def __post_init__(self) -> None:
        """Check the combination of files, columns and keys, and convert paths to strings."""
        for name in ("files", "columns", "keys"):
            if isinstance(getattr(self, name), str | Path | int):
                raise CorpusError(f"{name} must be a tuple, not a single value: {getattr(self, name)!r}")
        object.__setattr__(self, "files", tuple(str(file) for file in self.files))
        if not all(isinstance(column, int) for column in self.columns):
            raise CorpusError(f"columns must be numbers: {list(self.columns)}")
        if not self.files:
            raise CorpusError("a corpus needs at least one file")
        if (self.columns or self.keys) and len(self.files) > 1:
            raise CorpusError(f"columns and keys need a single file: {len(self.files)} given")
        if self.columns and self.keys:
            raise CorpusError("a file has columns (TSV) or keys (JSONL), not both")
        if any(column < 1 for column in self.columns):
            raise CorpusError(f"columns are counted from 1: {list(self.columns)} given")
        check_type("times", self.times, float)
        check_type("tag", self.tag, str)
        if not 0 < self.times <= MAX_TIMES:
            raise CorpusError(
                f"times={quoted(self.times)} of {self.files[0]} must be above 0 and at most {MAX_TIMES:,}"
            )
        if self.tag and self.tag.split() != [self.tag]:
            raise CorpusError(f"tag={self.tag!r} of {self.files[0]} must be one word, without spaces")

    @property
    def sides(self) -> int:
        """The number of fields in each row."""
        return len(self.columns or self.keys or self.files)

    def within(self, folder: Path) -> "Corpus":
        """Return the corpus with its files relative to a folder; absolute paths stay."""
        return replace(self, files=tuple(str(folder / file) for file in self.files))

    def rows(self, problems: CorpusProblems) -> Iterator[CorpusRow]:
        """Yield the valid rows in order; record all others in `problems`."""
        if len(self.files) > 1:
            rows = _aligned(self.files, problems)
        elif self.columns:
            rows = _columns(self.files[0], self.columns, problems)
        elif self.keys:
            rows = _keys(self.files[0], self.keys, problems)
        else:
            rows = (CorpusRow((line,), number) for number, line in _good_lines(self.files[0], problems))
        if self.sides > 1:  # a blank line of plain text is valid
            rows = (row for row in rows if not self._has_empty_side(row, problems))
        return map(self._with_tag, rows) if self.tag else rows

    def where(self, row: CorpusRow, side: int = 0) -> str:
        """Return the location of one side of a row, as `file:line`."""
        return f"{self.files[min(side, len(self.files) - 1)]}:{row.line}"

    def _with_tag(self, row: CorpusRow) -> CorpusRow:
        return CorpusRow((f"{self.tag} {row.fields[0]}", *row.fields[1:]), row.line)

    def _has_empty_side(self, row: CorpusRow, problems: CorpusProblems) -> bool:
        for side, text in enumerate(row.fields):
            if not text.strip():
                problems.record("empty side", self.where(row, side))
                return True
        return False


def read_lines(path: str) -> Iterator[tuple[int, str | LineFault]]:
    """Yield the number and text of each line of a file, or what is wrong with the line."""
    return iter(LineReader(path))


class LineReader:
    """The lines of a file, as `read_lines` yields them, and how much of the file has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: ByteReader | None = None

    def __iter__(self) -> Iterator[tuple[int, str | LineFault]]:
        path, number = self.path, 0
        try:
            with open_by_suffix(path) as self.file:
                for number, line in decode_lines(self.file):
                    yield number, line
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
            raise CorpusError(
                f"{path}: damaged after line {number} ({error}): download or copy the file again"
            ) from error
        except IsADirectoryError as error:
            raise CorpusError(f"{path} is a folder: name the files in it") from error
        except FileNotFoundError as error:
            raise CorpusError(f"{path}: no such file") from error
        except OSError as error:
            raise CorpusError(f"{path} cannot be read: {error.strerror or error}") from error

    @property
    def position(self) -> int:
        """The number of bytes that have been read of the file on disk; of a closed file, its size."""
        if self.file is None:
            return 0
        return Path(self.path).stat().st_size if self.file.closed else position_on_disk(self.file)


def decode_lines(file: ByteReader) -> Iterator[tuple[int, str | LineFault]]:
    """Yield the number and text of each line of an open file, or what is wrong with the line."""
    for number, raw in enumerate(_raw_lines(file), 1):
        yield number, decode_line(raw, first=number == 1)


def _good_lines(path: str, problems: CorpusProblems) -> Iterator[tuple[int, str]]:
    for number, line in read_lines(path):
        if isinstance(line, LineFault):
            problems.record(line.kind, f"{path}:{number}", line.detail)
        else:
            yield number, line


def open_by_suffix(path: str) -> ByteReader:
    """Open a file, decompressed if its name ends in .gz, .xz or .zst.

    A pipe works too, but can only be read once.
    """
    kind = kind_of_file(path)
    is_compressed = path.endswith(COMPRESSED_SUFFIXES)
    if kind == "a pipe" and not is_compressed:
        return _open_pipe(path)
    if kind and kind != "a folder":  # opening a folder is reported by the caller
        raise CorpusError(f"{path} is {kind}: write its text to a file and pass that")
    if is_compressed:
        return open_compressed(path)
    file = Path(path).open("rb")  # noqa: SIM115  # closed by the caller
    try:
        refuse_compressed(path, file)
    except BaseException:
        file.close()
        raise
    return file


def kind_of_file(path: str) -> str:
    """Return "a pipe", "a device" and so on if this is not a regular file, and "" if it is one or does not exist.

    A terminal and /dev/null count as regular files.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return ""  # opening it reports the problem
    if stat.S_ISCHR(mode) and path != os.devnull and not _is_terminal(path):
        return "a device"
    kinds = {"a folder": stat.S_ISDIR, "a pipe": stat.S_ISFIFO, "a device": stat.S_ISBLK, "a socket": stat.S_ISSOCK}
    return next((kind for kind, matches in kinds.items() if matches(mode)), "")


def require_files(paths: Iterable[str]) -> None:
    """Raise a CorpusError for the first path that is not a regular file; the text is read several times."""
    for path in paths:
        if (kind := kind_of_file(path)) == "a folder":
            raise CorpusError(f"{path} is a folder: name the files in it")
        if kind:
            raise CorpusError(
                f"{path} is {kind}, but must be read several times: write its text to a file and pass that"
            )
        if not Path(path).exists():
            raise CorpusError(f"{path}: no such file")


def _is_terminal(path: str) -> bool:
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.isatty()
    except OSError:
        return False


def _open_pipe(path: str) -> BufferedReader:
    """Open a pipe; raise a CorpusError if there is no writer in time, where a plain open would wait forever."""
    opened: list[int] = []
    waiting = threading.Thread(target=lambda: opened.append(os.open(path, os.O_RDONLY)), daemon=True)
    waiting.start()
    waiting.join(PIPE_TIMEOUT_SECONDS)
    if not waiting.is_alive() and opened:
        return os.fdopen(opened[0], "rb")
    with suppress(OSError):  # become the writer, so that the thread ends
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    waiting.join(1)
    for handle in opened:
        os.close(handle)
    raise CorpusError(f"{path} is a pipe that nothing has written to for {PIPE_TIMEOUT_SECONDS} seconds")


def _raw_lines(file: ByteReader) -> Iterator[bytes | None]:
    """Yield lines without their line ends, and None for a line too long to keep in memory."""
    max_bytes = 4 * MAX_LINE_CHARACTERS  # UTF-8 needs at most four bytes per character
    while raw := file.readline(max_bytes + 2):
        if raw.endswith(b"\n"):
            yield raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
        elif len(raw) < max_bytes + 2:
            yield raw  # the last line, without a line feed
        else:
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(max_bytes)
            yield None


def decode_line(raw: bytes | None, first: bool = False) -> str | LineFault:
    """Return the text of a line, or what is wrong with it."""
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
    """Yield one row per line number; the first fault of a row is its problem."""
    readers = [read_lines(path) for path in files]
    for number, lines in enumerate(zip_longest(*readers), 1):
        ended = [path for path, line in zip(files, lines, strict=True) if line is None]
        if ended:
            longer = next(path for path in files if path not in ended)
            problems.record("unequal lines", f"{longer}:{number}", f"{ended[0]} ends before it")
            continue
        fields = [line for _, line in lines]
        faults = [(path, line) for path, line in zip(files, fields, strict=True) if isinstance(line, LineFault)]
        if faults:
            path, fault = faults[0]
            problems.record(fault.kind, f"{path}:{number}", fault.detail)
        else:
            yield CorpusRow(tuple(line for line in fields if isinstance(line, str)), number)


def _columns(path: str, columns: tuple[int, ...], problems: CorpusProblems) -> Iterator[CorpusRow]:
    return _rows(path, lambda line: column_fields(line, columns), problems)


def _keys(path: str, keys: tuple[str, ...], problems: CorpusProblems) -> Iterator[CorpusRow]:
    return _rows(path, lambda line: key_fields(parse_object(line), keys), problems)


def _rows(
    path: str, fields_of: Callable[[str], tuple[str, ...] | LineFault], problems: CorpusProblems
) -> Iterator[CorpusRow]:
    for number, line in _good_lines(path, problems):
        fields = fields_of(line)
        if isinstance(fields, LineFault):
            problems.record(fields.kind, f"{path}:{number}", fields.detail)
        else:
            yield CorpusRow(fields, number)


def column_fields(line: str, columns: tuple[int, ...]) -> tuple[str, ...] | LineFault:
    """Return the cells of a line in these columns, which are separated by tabs and counted from 1."""
    cells = line.split("\t")
    if len(cells) < max(columns):
        return LineFault("missing column", f"it has {len(cells)}, but column {max(columns)} is needed")
    return tuple(cells[column - 1] for column in columns)


def parse_object(line: str) -> dict[str, Any] | LineFault:
    """Return the JSON object in a line."""
    try:
        record = json.loads(line)
    except RecursionError:
        return LineFault("invalid JSON", "nested too deeply")
    except ValueError as error:
        return LineFault("invalid JSON", str(error))
    return (
        record if isinstance(record, dict) else LineFault("invalid JSON", f"a {type(record).__name__}, not an object")
    )


def key_fields(record: dict[str, Any] | LineFault, keys: tuple[str, ...]) -> tuple[str, ...] | LineFault:
    """Return the texts of a JSON object under these keys. A fault stays what it is."""
    if isinstance(record, LineFault):
        return record
    if missing := [key for key in keys if key not in record]:
        return LineFault("missing key", missing[0])
    if non_strings := [key for key in keys if not isinstance(record[key], str)]:
        return LineFault("not a string", non_strings[0])
    fields = tuple(record[key] for key in keys)
    if any(_SURROGATE.search(value) for value in fields):
        return LineFault("lone surrogate")
    return LineFault("NUL byte") if any("\0" in value for value in fields) else fields
