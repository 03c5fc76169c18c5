"""Encodes text in parts, which are kept when the process is killed: preparing a large corpus resumes where it stopped.

A complete part is a folder with `n.tokens` and `n.offsets` for each side n (the end of each sequence, counted from the
start of the part) and `text.sha256`, the digest of its text. What comes after the last complete part is not kept.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.atomic_files import flush_to_disk
from regard.data.corpus import CorpusError

ROWS_PER_CHUNK = 4096
"""Number of rows tokenized at a time: enough to use all cores, few enough to need little memory."""
ROWS_PER_PART = 2**20
"""Number of rows in a part: less than a minute of work on most machines."""

TextRow = tuple[tuple[str, ...], bool]
"""The fields of a row, and whether a sequence ends with it."""
Encoder = Callable[[Sequence[str]], Iterable[list[int]]]
"""Encodes the texts of one side."""


class EncodedFiles:
    """The files of all sequences: `n.tokens`, and `n.offsets`, which start with a zero."""

    def __init__(self, folder: Path, encoders: Sequence[Encoder], dtype: "np.dtype[Any]") -> None:
        self.folder, self.encoders, self.dtype = folder, encoders, dtype
        self.sequences = 0
        """Number of sequences so far."""
        self._ends = [0] * len(encoders)
        for side in range(len(encoders)):
            (folder / f"{side}.tokens").touch()
            (folder / f"{side}.offsets").write_bytes(np.zeros(1, np.int64).tobytes())

    def add(self, rows: Iterator[TextRow], parts: Path, name: str) -> None:
        """Encode the rows of a corpus; those of complete parts in the folder `parts` are only read."""
        for number in count():
            part = parts / f"{name}-{number:05d}"
            if part.is_dir():
                digest, rows_read = _digest(islice(rows, ROWS_PER_PART))
                if (part / "text.sha256").read_text() != digest:
                    shutil.rmtree(parts)
                    raise CorpusError("the text has changed since its preparation was interrupted: start again")
                self._append(part)
            else:
                part = self.folder / "part"
                rows_read = self._encode(islice(rows, ROWS_PER_PART), part)
                self._append(part)
                if rows_read == ROWS_PER_PART:
                    _keep(part, parts / f"{name}-{number:05d}")
                shutil.rmtree(part, ignore_errors=True)
            if rows_read < ROWS_PER_PART:
                return

    def _encode(self, rows: Iterator[TextRow], part: Path) -> int:
        """Encode rows into a new part, and return their number."""
        part.mkdir()
        sha, rows_read, ends = hashlib.sha256(), 0, [0] * len(self.encoders)
        with ExitStack() as stack:
            files = [
                [stack.enter_context((part / f"{side}.{kind}").open("wb")) for kind in ("tokens", "offsets")]
                for side in range(len(self.encoders))
            ]
            for chunk in _chunks(rows):
                _update(sha, chunk)
                rows_read += len(chunk)
                is_end = np.array([ends_sequence for _, ends_sequence in chunk])
                for side, (encode, (tokens, offsets)) in enumerate(zip(self.encoders, files, strict=True)):
                    sequences = list(encode([fields[side] for fields, _ in chunk]))
                    stops = ends[side] + np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
                    ends[side] = int(stops[-1])
                    tokens.write(np.fromiter(chain.from_iterable(sequences), self.dtype).tobytes())
                    offsets.write(stops[is_end].tobytes())
        (part / "text.sha256").write_text(sha.hexdigest())
        return rows_read

    def _append(self, part: Path) -> None:
        """Append a part to the files of all sequences."""
        for side in range(len(self.encoders)):
            offsets = np.fromfile(part / f"{side}.offsets", np.int64) + self._ends[side]
            with (self.folder / f"{side}.offsets").open("ab") as file:
                file.write(offsets.tobytes())
            with (self.folder / f"{side}.tokens").open("ab") as file, (part / f"{side}.tokens").open("rb") as tokens:
                shutil.copyfileobj(tokens, file, 1 << 20)
                self._ends[side] = file.tell() // self.dtype.itemsize
        self.sequences += len(offsets)


def _keep(part: Path, name: Path) -> None:
    """Rename a complete part, so that it is found if this process is killed."""
    for file in part.iterdir():
        flush_to_disk(file)
    name.parent.mkdir(exist_ok=True)
    with suppress(OSError):  # another process has written the same part
        part.rename(name)
    flush_to_disk(name.parent)


def _digest(rows: Iterator[TextRow]) -> tuple[str, int]:
    """Read rows; return the digest of their text, and their number."""
    sha, rows_read = hashlib.sha256(), 0
    for chunk in _chunks(rows):
        _update(sha, chunk)
        rows_read += len(chunk)
    return sha.hexdigest(), rows_read


def _chunks(rows: Iterator[TextRow]) -> Iterator[list[TextRow]]:
    while chunk := list(islice(rows, ROWS_PER_CHUNK)):
        yield chunk


def _update(sha: Any, chunk: Sequence[TextRow]) -> None:
    sha.update("\0".join(field for fields, _ in chunk for field in fields).encode())  # no field has a NUL
