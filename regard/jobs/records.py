"""The rows of a job's input, and how a model's answers are added to them: plain text, TSV, JSONL and Parquet.

Every row of the input gives a row of the output, in order. A row that cannot be read, or that the model refuses, has
empty answers.
"""

import gzip
import hashlib
import json
import lzma
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import islice, zip_longest
from json import dumps
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regard.data.compressed_files import COMPRESSED_SUFFIXES, SIGNATURES, import_arrow
from regard.data.corpus import (
    UTF_16,
    CorpusError,
    LineFault,
    LineReader,
    column_fields,
    decode_line,
    key_fields,
    parse_object,
    remedy,
)
from regard.errors import RegardError

PARQUET_SUFFIX = ".parquet"
SELECTING_OPTIONS = {".jsonl": "the key of the texts with --keys", ".tsv": "the column of the texts with --columns"}
"""What has to be named for files with these endings: their lines are more than a text."""
JSON_SPACE = " \t\r\n"
"""The characters that JSON allows around values."""

Answer = list[tuple[Any, ...]]
"""The values of each column that a model answers a row with; several rows of them only for n-best translations."""


class Column(NamedTuple):
    """A column that is added to each row."""

    name: str
    kind: type
    """str, int, float, or list for numbers."""
    to_text: Callable[[Any], str] = str
    """Returns a value as a cell of a text file, without tabs or line breaks."""


class Record(NamedTuple):
    """A row of the input."""

    row: Any
    """What is written in front of the answers: the line of TSV or of two aligned files, or for JSONL the line and its
    parsed values. None for plain text, whose output has only the answers, and for Parquet, whose table is kept."""
    fields: tuple[str, ...] | LineFault
    """The texts that the model reads, or what is wrong with the row."""


class Rows(NamedTuple):
    """Consecutive rows of an input as they were read, without being parsed."""

    content: Any
    """Lines of each file, or a table of Arrow."""
    number: int
    """Number of rows."""
    position: int
    """Bytes of the file on disk up to the end of these rows."""
    error: str = ""
    """Why nothing can be read after these rows, or that they are not to be used."""


class RecordFile(ABC):
    """An input file, or two aligned ones, and the format of the output."""

    @property
    @abstractmethod
    def paths(self) -> tuple[str, ...]:
        """The files that are read."""

    @abstractmethod
    def read(self, counts: Iterator[int]) -> Iterator[Rows]:
        """Yield all rows, in batches of these counts; the last may have fewer, or an error."""

    @abstractmethod
    def digest(self, content: Any) -> str:
        """Return a digest of rows, by which a changed input is noticed."""

    @abstractmethod
    def records(self, content: Any) -> list[Record]:
        """Parse rows."""

    @abstractmethod
    def render(
        self, content: Any, records: Sequence[Record], answers: Sequence[Answer | None], columns: Sequence[Column]
    ) -> bytes:
        """Return a part of the output file: the rows with their answers."""

    @abstractmethod
    def join(self, parts: Iterable[Path], output: BinaryIO, columns: Sequence[Column]) -> None:
        """Write the parts, in order, as one file."""

    def check_columns(self, columns: Sequence[Column]) -> None:  # noqa: B027  # most formats have nothing to check
        """Raise a RegardError if these columns cannot be added."""

    def describe(self) -> dict[str, Any]:
        """The format in JSON types, without the files."""
        settings = {name: value for name, value in asdict(self).items() if name not in ("files", "path")}  # type: ignore[call-overload]
        return {"format": type(self).__name__, **json.loads(dumps(settings))}

    @property
    def size(self) -> int:
        """Bytes of the first file on disk."""
        return Path(self.paths[0]).stat().st_size


@dataclass(frozen=True)
class LineRecords(RecordFile):
    """Plain text with one row per line, or two files whose lines are aligned; the answers are separated by tabs.

    Rows of two files are written as well, before their answers. With `as_json`, each line of the output is an object
    with the text and the answers.
    """

    files: tuple[str, ...]
    compression: str = ""
    """The ending of the output's name, if the output is to be compressed: one of `COMPRESSED_SUFFIXES`."""
    as_json: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are read."""
        return self.files

    def read(self, counts: Iterator[int]) -> Iterator[Rows]:
        """Yield all lines, in batches of these counts; the last may have fewer, or an error."""
        readers = [LineReader(path) for path in self.files]
        lines = zip_longest(*readers) if len(readers) > 1 else ((line,) for line in readers[0])
        for count in counts:
            content: list[tuple[str | LineFault, ...]] = []
            error = ""
            try:
                content.extend(self._texts(row) for row in islice(lines, count))
            except CorpusError as damage:
                error = str(damage)
            if content or error:
                yield Rows(content, len(content), readers[0].position, error)
            if error or len(content) < count:
                return

    def _texts(self, row: tuple[tuple[int, str | LineFault] | None, ...]) -> tuple[str | LineFault, ...]:
        """The line of each file; raises a CorpusError where reading on makes no sense."""
        ended = [path for path, line in zip(self.files, row, strict=True) if line is None]
        if ended:
            number, longer = next((line[0], path) for path, line in zip(self.files, row, strict=True) if line)
            raise CorpusError(
                f"{longer}:{number}: unequal lines ({ended[0]} ends before it): "
                f"{remedy(LineFault('unequal lines'), longer)}"
            )
        texts = tuple(line[1] for line in row if line is not None)
        for path, text in zip(self.files, texts, strict=True):
            if isinstance(text, LineFault) and text.detail == UTF_16:
                raise CorpusError(f"{path}: {text.kind} ({text.detail}): {remedy(text, path)}")
        return texts

    def digest(self, content: Any) -> str:
        """Return a digest of lines; those that cannot be read count by what is wrong with them."""
        rows = (
            "\0".join(f"\0{text.kind} {text.detail}" if isinstance(text, LineFault) else text for text in row)
            for row in content
        )
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()

    def records(self, content: Any) -> list[Record]:
        """Parse lines."""
        return [self._record(texts) for texts in content]

    def _record(self, texts: tuple[str | LineFault, ...]) -> Record:
        faults = [text for text in texts if isinstance(text, LineFault)]
        row = "\t".join("" if isinstance(text, LineFault) else text.replace("\t", " ") for text in texts)
        fields = tuple(text for text in texts if isinstance(text, str))
        return Record(row if len(texts) > 1 else None, faults[0] if faults else fields)

    def render(
        self, content: Any, records: Sequence[Record], answers: Sequence[Answer | None], columns: Sequence[Column]
    ) -> bytes:
        """Return the lines of the output, compressed if its name says so."""
        del content
        rows = zip(records, answers, strict=True)
        lines = (line for record, answer in rows for line in self._lines(record, answer, columns))
        return compress("".join(f"{line}\n" for line in lines).encode(), self.compression)

    def _lines(self, record: Record, answer: Answer | None, columns: Sequence[Column]) -> Iterator[str]:
        """The lines of one row: one, or several with n-best answers."""
        if self.as_json:
            text = None if isinstance(record.fields, LineFault) else record.fields[0]
            yield dumps({"text": text, **named_values(answer, columns)}, ensure_ascii=False)
            return
        several: list[tuple[Any, ...] | None] = [*answer] if answer else [None]
        for values in several:
            cells = [] if record.row is None else [record.row]
            yield "\t".join([*cells, *text_cells(values, columns)])

    def join(self, parts: Iterable[Path], output: BinaryIO, columns: Sequence[Column]) -> None:
        """Write the parts one after the other; compressed ones form one valid file."""
        del columns
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, output, 1 << 20)
        if output.tell() == 0:  # an archive of no text has some bytes
            output.write(compress(b"", self.compression))


@dataclass(frozen=True)
class TsvRecords(LineRecords):
    """Rows with columns separated by tabs; the answers are further columns at the end."""

    columns: tuple[int, ...] = (1,)
    """The columns that the model reads, counted from 1."""

    def _record(self, texts: tuple[str | LineFault, ...]) -> Record:
        (line,) = texts
        if isinstance(line, LineFault):
            return Record("", line)
        return Record(line, column_fields(line, self.columns))


@dataclass(frozen=True)
class JsonlRecords(LineRecords):
    """One JSON object per line; the answers are further keys of it.

    The text of an object is kept, and the new keys are put at its end: parsed numbers such as 1e400 or 0.10 would be
    written differently. If the object already has one of these keys, only its value is replaced.
    """

    keys: tuple[str, ...] = ()
    """The keys whose texts the model reads."""

    def _record(self, texts: tuple[str | LineFault, ...]) -> Record:
        (line,) = texts
        value = line if isinstance(line, LineFault) else parse_object(line)
        row = ("{}", {}) if isinstance(value, LineFault) else (line, value)
        return Record(row, key_fields(value, self.keys))

    def _lines(self, record: Record, answer: Answer | None, columns: Sequence[Column]) -> Iterator[str]:
        line, values = record.row
        added = named_values(answer, columns)
        if values.keys().isdisjoint(added):
            start = line.strip(JSON_SPACE).removesuffix("}").rstrip(JSON_SPACE)
            row = start + (", " if values else "") + dumps(added, ensure_ascii=False).removeprefix("{")
        else:
            texts = {name: dumps(value, ensure_ascii=False) for name, value in added.items()}
            members = {**_value_texts(line), **texts}.items()
            row = "{" + ", ".join(f"{dumps(name, ensure_ascii=False)}: {text}" for name, text in members) + "}"
        yield row if row.isascii() else row.encode("utf-8", "backslashreplace").decode()


def _value_texts(line: str) -> dict[str, str]:
    """The text of each value of a valid JSON object, by its key.

    >>> _value_texts('{"n": 1e400, "tree": [[1], 2]}')
    {'n': '1e400', 'tree': '[[1], 2]'}
    """
    decode, texts = json.JSONDecoder().raw_decode, {}
    position = _after_separators(line, line.index("{") + 1)
    while line[position] != "}":
        key, end = decode(line, position)
        start = _after_separators(line, end)
        _, end = decode(line, start)
        texts[key] = line[start:end]
        position = _after_separators(line, end)
    return texts


def _after_separators(line: str, position: int) -> int:
    """The position of the next value, key or bracket."""
    while line[position] in JSON_SPACE + ":,":
        position += 1
    return position


@dataclass(frozen=True)
class ParquetRecords(RecordFile):
    """A Parquet file; the answers are further columns."""

    path: str
    keys: tuple[str, ...]
    """The columns that the model reads."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The file that is read."""
        return (self.path,)

    def read(self, counts: Iterator[int]) -> Iterator[Rows]:
        """Yield all rows, in batches of these counts; the last may have fewer, or an error."""
        arrow = import_arrow("reading Parquet")
        size, done = self.size, 0
        with self._open() as file:
            total = file.metadata.num_rows
            batches = file.iter_batches(batch_size=1024)
            table, ended = file.schema_arrow.empty_table(), False
            for count in counts:
                error = ""
                while len(table) < count and not ended:
                    try:
                        batch = next(batches, None)
                    except OSError as damage:
                        error = f"{self.path}: damaged after row {done} ({damage}): download or copy the file again"
                        break
                    ended = batch is None
                    if batch is not None:
                        table = arrow.concat_tables([table, arrow.Table.from_batches([batch])])
                rows, table = table.slice(0, count).combine_chunks(), table.slice(count)
                done += len(rows)
                if len(rows) or error:
                    yield Rows(rows, len(rows), size * done // max(1, total), error)
                if error or (ended and not len(table)):
                    return

    def digest(self, content: Any) -> str:
        """Return a digest of all columns of these rows."""
        arrow = import_arrow("reading Parquet")
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, content.schema) as writer:
            writer.write_table(content)
        return hashlib.sha256(sink.getvalue()).hexdigest()

    def records(self, content: Any) -> list[Record]:
        """Parse rows: a missing value is a fault, and so is what would be one in a line of text."""
        arrow = import_arrow("reading Parquet")
        columns = [  # as bytes, because files exist whose strings are not UTF-8
            content.column(key).cast(arrow.large_string()).cast(arrow.large_binary()).to_pylist() for key in self.keys
        ]
        return [Record(None, self._texts(row)) for row in zip(*columns, strict=True)]

    def _texts(self, row: tuple[bytes | None, ...]) -> tuple[str, ...] | LineFault:
        """The texts of a row, or what is wrong with the first that cannot be read."""
        values = [None if text is None else decode_line(text) for text in row]
        faults = (value for value in values if isinstance(value, LineFault))
        return next(faults, None) or key_fields(dict(zip(self.keys, values, strict=True)), self.keys)

    def render(
        self, content: Any, records: Sequence[Record], answers: Sequence[Answer | None], columns: Sequence[Column]
    ) -> bytes:
        """Return a Parquet file of the rows and the answers."""
        from pyarrow import parquet

        del records
        for number, column in enumerate(columns):
            values = [None if answer is None else answer[0][number] for answer in answers]
            content = content.append_column(
                column.name, import_arrow("writing Parquet").array(values, _arrow_type(column))
            )
        buffer = BytesIO()
        parquet.write_table(content, buffer, compression="zstd")
        return buffer.getvalue()

    def join(self, parts: Iterable[Path], output: BinaryIO, columns: Sequence[Column]) -> None:
        """Write one Parquet file with the rows of all parts; each part is a row group."""
        from pyarrow import parquet

        with self._open() as file:
            schema = file.schema_arrow
        for column in columns:
            schema = schema.append(import_arrow("writing Parquet").field(column.name, _arrow_type(column)))
        with parquet.ParquetWriter(output, schema, compression="zstd") as writer:
            for part in parts:
                writer.write_table(parquet.ParquetFile(part).read().cast(schema))

    def check_columns(self, columns: Sequence[Column]) -> None:
        """Raise a RegardError if the file lacks a column that is read, or has one of those that are added."""
        with self._open() as file:
            schema = file.schema_arrow
        types = import_arrow("reading Parquet").types
        text_types = (types.is_string, types.is_large_string, types.is_string_view)
        for key in self.keys:
            if key not in schema.names:
                raise RegardError(
                    f"{self.path} has no column {key!r}: it has {', '.join(schema.names)}; name one with --keys"
                )
            if schema.names.count(key) > 1:
                raise RegardError(f"{self.path} has several columns {key!r}: rename all but one")
            kind = schema.field(key).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if not any(is_text(kind) for is_text in text_types):
                raise RegardError(
                    f"column {key!r} of {self.path} holds {schema.field(key).type}, not strings: convert it, or name "
                    "another column with --keys"
                )
        for column in columns:
            if column.name in schema.names:
                raise RegardError(f"{self.path} already has a column {column.name!r}: rename it")

    def _open(self) -> Any:
        arrow = import_arrow("reading Parquet")
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(self.path)
        except FileNotFoundError:
            raise CorpusError(f"{self.path}: no such file") from None
        except (arrow.ArrowInvalid, OSError) as error:
            raise CorpusError(f"{self.path} cannot be read as Parquet: {error}") from error


def _arrow_type(column: Column) -> Any:
    arrow = import_arrow("writing Parquet")
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), list: arrow.list_(arrow.float32())}
    return types[column.kind]


def named_values(answer: Answer | None, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the first answer by the names of the columns; None for each if there is none."""
    values = answer[0] if answer else [None] * len(columns)
    return {column.name: value for column, value in zip(columns, values, strict=True)}


def text_cells(values: tuple[Any, ...] | None, columns: Sequence[Column]) -> list[str]:
    """Return the values as cells of a text file; empty ones if there are none."""
    if values is None:
        return [""] * len(columns)
    return ["" if value is None else column.to_text(value) for column, value in zip(columns, values, strict=True)]


def compress(data: bytes, suffix: str) -> bytes:
    """Compress data as a file with this ending; "" leaves it as it is."""
    if suffix == ".gz":
        return gzip.compress(data, 6, mtime=0)  # the same bytes at any time
    if suffix == ".xz":
        return lzma.compress(data)
    if suffix == ".zst":
        arrow = import_arrow("writing .zst")
        sink = arrow.BufferOutputStream()
        with arrow.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return bytes(sink.getvalue())
    return data


def compressed_ending(output: Path) -> str:
    """Return the ending of the output's name if it is to be compressed; raise a RegardError if that is not possible."""
    if output.suffix in COMPRESSED_SUFFIXES:
        return output.suffix
    if output.suffix.lower() in (*COMPRESSED_SUFFIXES, *(suffix for _, suffix in SIGNATURES.values())):
        raise RegardError(f"{output} would not be compressed: choose .gz, .xz or .zst")
    return ""


def open_records(
    files: Sequence[Path], output: Path | None, columns: tuple[int, ...], keys: tuple[str, ...], as_json: bool = False
) -> RecordFile:
    """The format of an input, by its name and the columns or keys that were given, and of the output, by its name."""
    names = tuple(map(str, files))
    if columns and keys:
        raise RegardError("both --columns and --keys were given: a file has columns (TSV) or keys (JSONL, Parquet)")
    if (columns or keys) and len(files) > 1:
        raise RegardError("--columns and --keys select texts of one file, but two were given")
    if any(column < 1 for column in columns):
        raise RegardError(f"columns are counted from 1: {list(columns)} given")
    is_parquet = any(name.endswith(PARQUET_SUFFIX) for name in names)
    if output is not None and (output.suffix == PARQUET_SUFFIX) != is_parquet:
        raise RegardError(f"{output}: the output of a Parquet file is one, and of other files is not: rename it")
    if is_parquet:
        if as_json:
            raise RegardError("--json writes lines of text, but the output of a Parquet file is one: leave it out")
        if not keys:
            raise RegardError(f"{names[0]} is a Parquet file: name the column of the texts with --keys")
        if output is None:
            raise RegardError("Parquet cannot be written to standard output: pass --output FILE.parquet")
        return ParquetRecords(names[0], keys)
    compression = compressed_ending(output) if output is not None else ""
    if compression == ".zst":
        import_arrow("writing .zst")
    for name in () if columns or keys else names:
        suffix = Path(name.removesuffix(Path(name).suffix) if name.endswith(COMPRESSED_SUFFIXES) else name).suffix
        if suffix in SELECTING_OPTIONS:
            raise RegardError(f"{name} has more on each line than a text: name {SELECTING_OPTIONS[suffix]}")
    if columns:
        return TsvRecords(names, compression, as_json, columns)
    if keys:
        return JsonlRecords(names, compression, as_json, keys)
    return LineRecords(names, compression, as_json)
