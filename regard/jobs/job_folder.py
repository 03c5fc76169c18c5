"""The folder of an unfinished job, next to its output: what the job is, and its finished shards.

    test.en.job/
      job.json          the task, the model's digest and the format: what must be the same to resume the job
      finished.jsonl    a line for each finished shard: its rows, digests of its input and output, and its faults
      shard-00000000 …  parts of the output
      lock              locked by the process that runs the job

A shard is written under another name, flushed to disk and renamed, and only then recorded. After a kill at any moment,
what is recorded is complete; anything else is done again.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from regard.atomic_files import file_digest, flush_to_disk, raising_write_errors, resolved, write_file
from regard.errors import RegardError
from regard.formatting import quoted
from regard.jobs.records import Column, RecordFile
from regard.jobs.shards import FinishedShard, RowFault

JOB_FILE, FINISHED_FILE, LOCK_FILE, JOINED_FILE = "job.json", "finished.jsonl", "lock", "joined"
_OWN_NAME = re.compile(r"lock|joined|\.?(job\.json|finished\.jsonl|shard-\d{8,})(\.[0-9a-f]+)?")
"""The names of files in the folder, temporary ones included."""


@dataclass(frozen=True)
class ShardEntry:
    """What `finished.jsonl` records of a shard."""

    number: int
    rows: int
    size: int
    input: str
    """Digest of its rows."""
    output: str
    """Digest of its part of the output."""
    faults: tuple[RowFault, ...]


class JobFolder:
    """The folder of one job, which this process has locked."""

    def __init__(self, output: Path) -> None:
        self.output = output
        with raising_write_errors(output):
            target = resolved(output)  # a link stays a link
        self.target, self.path = target, target.with_name(f"{target.name}.job")
        self.entries: dict[int, ShardEntry] = {}
        """The finished shards by their numbers."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if needed, and hold its lock; raise a RegardError if another process does."""
        with raising_write_errors(self.path):
            self.path.mkdir(exist_ok=True)
            handle = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_current = (self.path / LOCK_FILE).stat().st_ino == os.fstat(handle).st_ino
            except OSError:
                is_current = False  # locked, or removed by a process that has just finished
            if not is_current:
                raise RegardError(f"{self.path} is in use by another process: wait until it has finished")
            self._lock = handle
            yield
        finally:
            os.close(handle)

    def release_in_child(self) -> None:
        """Let go of the lock in a forked process, so that it is free as soon as its owner has ended."""
        os.close(self._lock)

    def begin(self, description: Mapping[str, Any], restart: bool = False) -> bool:
        """Resume the job of this description, or begin it; return whether there was one to resume.

        A RegardError says what differs if shards of another job are finished; with `restart`, they are discarded.
        """
        files = {file.name for file in self.path.iterdir()}
        is_ours = all(map(_OWN_NAME.fullmatch, files))
        if JOB_FILE not in files and not is_ours:  # a kill may leave other files of ours
            raise RegardError(f"{self.path} is not the folder of a job, but a job would use it: rename or remove it")
        if JOB_FILE in files and not restart:
            differences = self._differences(description)
            if not differences:
                self._read_entries()
                return True
            has_finished = FINISHED_FILE in files and (self.path / FINISHED_FILE).stat().st_size > 0
            if has_finished or not is_ours:
                raise RegardError(
                    f"{self.path} holds an unfinished job with other settings ({'; '.join(differences)}): "
                    "repeat its settings to resume it, start again with --restart, or choose another --output"
                )
        self._remove_all_but(LOCK_FILE)
        write_file(self.path / JOB_FILE, json.dumps(description, indent=2, ensure_ascii=False) + "\n")
        return False

    def _differences(self, description: Mapping[str, Any]) -> list[str]:
        """What differs between the job in the folder and this one."""
        try:
            earlier = json.loads((self.path / JOB_FILE).read_text(encoding="utf-8"))
            assert isinstance(earlier, dict)
        except (ValueError, AssertionError):
            raise RegardError(f"{self.path / JOB_FILE} is damaged: start the job again with --restart") from None
        return _differences(earlier, description)

    def _read_entries(self) -> None:
        """Read what is finished. Shards whose part of the output is missing or damaged count as unfinished."""
        path = self.path / FINISHED_FILE
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # a kill may leave half a line at the end
        entries = [entry for line in lines if (entry := _parse_entry(line)) is not None]
        self.entries = {entry.number: entry for entry in entries if self._is_intact(entry)}
        kept = {JOB_FILE, LOCK_FILE, *(self._shard(number).name for number in self.entries)}
        self._remove_all_but(*kept)
        write_file(path, "".join(map(_entry_line, self.entries.values())))

    def _is_intact(self, entry: ShardEntry) -> bool:
        path = self._shard(entry.number)
        return path.is_file() and file_digest(path) == entry.output

    def _remove_all_but(self, *kept: str) -> None:
        with raising_write_errors(self.path):
            for file in self.path.iterdir():
                if file.name not in kept:
                    file.unlink()

    def _shard(self, number: int) -> Path:
        return self.path / f"shard-{number:08}"

    def finish(self, shard: FinishedShard) -> None:
        """Write a part of the output, and record it."""
        output = sha256(shard.output).hexdigest()
        entry = ShardEntry(shard.number, shard.rows, shard.size, shard.digest, output, shard.faults)
        write_file(self._shard(shard.number), shard.output)
        with raising_write_errors(self.path / FINISHED_FILE), (self.path / FINISHED_FILE).open("ab") as file:
            file.write(_entry_line(entry).encode())
            file.flush()
            os.fsync(file.fileno())
        self.entries[shard.number] = entry

    def complete(self, records: RecordFile, columns: Sequence[Column]) -> None:
        """Join all parts to the output, and remove the folder."""
        joined = self.path / JOINED_FILE
        with raising_write_errors(self.output):
            try:
                with joined.open("wb") as file:
                    records.join((self._shard(number) for number in sorted(self.entries)), file, columns)
                if self.target.exists():
                    joined.chmod(self.target.stat().st_mode & 0o777)
                flush_to_disk(joined)
                joined.replace(self.target)
                flush_to_disk(self.target.parent)
            finally:  # half a file would keep a full disk full
                joined.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


def _differences(earlier: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """What differs between two jobs, an option at a time; if they have other tasks, only that."""
    if earlier.get("task") != current.get("task"):
        names = ["task"]
    else:
        names = [name for name in {**earlier, **current} if earlier.get(name) != current.get(name)]
    differences = []
    for name in names:
        before, now = earlier.get(name), current.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            differences += _differences(before, now)
        elif name == "model":  # digests
            differences.append("it has another model")
        else:
            differences.append(f"{name} was {quoted(before)} and is now {quoted(now)}")
    return differences


def _entry_line(entry: ShardEntry) -> str:
    return json.dumps(vars(entry), ensure_ascii=False) + "\n"


def _parse_entry(line: bytes) -> ShardEntry | None:
    """An entry, or None if the line is damaged."""
    try:
        values = json.loads(line)
        faults = tuple(RowFault(int(row), str(reason), str(kind)) for row, reason, kind in values.pop("faults"))
        return ShardEntry(**values, faults=faults)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
