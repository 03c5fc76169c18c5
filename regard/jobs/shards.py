"""Shards: the units of a job. Each is read, answered, written and recorded as one."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.jobs.records import RecordFile


@dataclass(frozen=True)
class Shard:
    """Consecutive rows of the input."""

    number: int
    first: int
    """Number of the first row, counted from 1."""
    rows: int
    size: int
    """Bytes of these rows in the file on disk, approximately."""
    digest: str
    content: Any
    error: str = ""
    """Why the input cannot be read from here on; such a shard has no rows."""


class RowFault(NamedTuple):
    """A row that has no answer."""

    number: int
    """Number of the row, counted from 1."""
    reason: str
    """Why it has no answer."""
    kind: str = ""
    """The kind of a `LineFault`; empty if the row was read, but the model refused it."""


@dataclass(frozen=True)
class FinishedShard:
    """A part of the output."""

    number: int
    first: int
    rows: int
    size: int
    digest: str
    output: bytes
    faults: tuple[RowFault, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class ShardSource:
    """The shards of an input that have not been finished by an earlier run."""

    records: RecordFile
    first_rows: int
    """Rows of the first shard; each of the following has twice as many."""
    max_rows: int
    finished: dict[int, str]
    """Digests of the finished shards by their numbers."""

    def __iter__(self) -> Iterator[Shard]:
        number, first, position = 0, 1, 0
        for rows in self.records.read(self._counts()):
            if rows.error:  # the rows before the damage belong to a shard that cannot be completed
                yield _failed(number, first, rows.error)
                return
            digest = self.records.digest(rows.content)
            shard = Shard(number, first, rows.number, rows.position - position, digest, rows.content)
            if number not in self.finished:
                yield shard
            elif self.finished[number] != digest:
                yield _failed(number, first, self._changed(shard))
                return
            number, first, position = number + 1, first + rows.number, rows.position
        if any(finished >= number for finished in self.finished):
            yield _failed(number, first, f"{self._names} has fewer rows than when the job began: {RESTORE_OR_RESTART}")

    def _counts(self) -> Iterator[int]:
        return doubling(self.first_rows, self.max_rows)

    @property
    def _names(self) -> str:
        return " or ".join(map(os.fspath, self.records.paths))

    def _changed(self, shard: Shard) -> str:
        return f"{self._names}:{shard.first}–{shard.first + shard.rows - 1} has changed since the job began: " + (
            RESTORE_OR_RESTART
        )


RESTORE_OR_RESTART = "restore the file, or start again with --restart"


def doubling(first: int, largest: int) -> Iterator[int]:
    """Yield `first`, twice as much, and so on up to `largest`, which is repeated for ever.

    >>> from itertools import islice
    >>> list(islice(doubling(32, 100), 4))
    [32, 64, 100, 100]
    """
    count = min(first, largest)
    while True:
        yield count
        count = min(2 * count, largest)


def _failed(number: int, first: int, error: str) -> Shard:
    return Shard(number, first, 0, 0, "", None, error)
