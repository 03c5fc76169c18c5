"""Run a job: resume what an earlier run left, answer the remaining shards, and join the output."""

import time
from collections.abc import Callable, Generator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import regard
from regard.errors import RegardError, WriteError
from regard.jobs.job_folder import JobFolder
from regard.jobs.records import RecordFile
from regard.jobs.shards import FinishedShard, RowFault, ShardSource
from regard.jobs.tasks import AnswerTexts, JobTask, ShardWork, with_digest
from regard.threads import one_thread


class JobEngine(Protocol):
    """Where the shards of a job are answered: `LocalEngine` or `RayEngine`."""

    device_kind: str
    """cpu or cuda: answers of another kind may differ in the last digits, so a job is not resumed with it."""
    uses_processes: bool
    """Whether other processes answer, and not this one."""
    loads_on: str
    """The device for which this process loads the model."""

    def answer(
        self, work: ShardWork, shards: ShardSource, answer: AnswerTexts, on_fork: Callable[[], None]
    ) -> Generator[FinishedShard, None, None]:
        """Yield the shards as they are finished, in any order."""


@dataclass(frozen=True)
class JobProgress:
    """How far a job has come."""

    rows: int
    """Rows that are finished, those of earlier runs included."""
    fraction: float
    """How much of the input is finished, in bytes."""
    rows_before: int
    """Rows that earlier runs had finished."""
    fraction_before: float
    seconds: float
    """Time since this run began to answer rows."""

    @property
    def rows_per_second(self) -> float:
        """Rows of this run per second."""
        return (self.rows - self.rows_before) / max(self.seconds, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Estimated time until the end; None before the first shard of this run is finished."""
        done = self.fraction - self.fraction_before
        return (1 - self.fraction) * self.seconds / done if done > 0 else None


@dataclass(frozen=True)
class JobSummary:
    """What a finished job did."""

    progress: JobProgress
    faults: tuple[RowFault, ...]
    """The rows that could not be answered, in order."""


def run_job(
    task: JobTask,
    records: RecordFile,
    output: Path,
    engine: JobEngine,
    restart: bool = False,
    report: Callable[[JobProgress], object] = lambda _: None,
) -> JobSummary:
    """Answer every row of the input, write the output, and return what was done.

    Run again after an interruption, it resumes; with `restart`, it discards what was done. A RegardError says why it
    stopped; what is finished is kept. `report` is called at the start and after each shard.
    """
    # Threads of torch would not survive a fork, and the number of threads can change how results are rounded.
    with one_thread() if engine.uses_processes or engine.device_kind == "cpu" else nullcontext():
        model, answer = task.load(engine.loads_on)
        work = ShardWork(with_digest(task, model), records)
        records.check_columns(work.columns)  # commands have checked those of the task, but n-best adds `line`
        folder = JobFolder(output)
        with folder.locked():
            folder.begin(_description(work, engine.device_kind), restart)
            try:
                progress = _finish_shards(work, folder, engine, answer, report)
                folder.complete(records, work.columns)
            except WriteError as error:  # the disk is full, for example
                raise WriteError(error.errno or 0, f"{error}{_kept_rows(work, folder)}") from error
    return JobSummary(progress, tuple(sorted(fault for entry in folder.entries.values() for fault in entry.faults)))


def _description(work: ShardWork, device_kind: str) -> dict[str, Any]:
    """What must be the same for a job to be resumed. The input itself is compared shard by shard."""
    return {
        "regard": regard.__version__,
        **work.task.describe(),
        **work.records.describe(),
        "device": device_kind,
    }


def _finish_shards(
    work: ShardWork,
    folder: JobFolder,
    engine: JobEngine,
    answer: AnswerTexts,
    report: Callable[[JobProgress], object],
) -> JobProgress:
    """Answer the shards that are not finished, and write each to the folder."""
    finished = {number: entry.input for number, entry in folder.entries.items()}
    source = ShardSource(work.records, *work.task.shard_rows, finished)
    size = max(1, work.records.size)
    rows = rows_before = sum(entry.rows for entry in folder.entries.values())
    done = done_before = sum(entry.size for entry in folder.entries.values())
    began = time.monotonic()

    def progress() -> JobProgress:
        seconds = time.monotonic() - began
        return JobProgress(rows, min(1.0, done / size), rows_before, min(1.0, done_before / size), seconds)

    report(progress())
    errors = []
    with closing(engine.answer(work, source, answer, folder.release_in_child)) as finished_shards:
        for shard in finished_shards:
            if shard.error:
                errors.append(shard.error)
                continue
            folder.finish(shard)
            rows, done = rows + shard.rows, done + shard.size
            report(progress())
    if errors:
        raise RegardError(errors[0] + _kept_rows(work, folder))
    return progress()


def _kept_rows(work: ShardWork, folder: JobFolder) -> str:
    """What a job that stops has finished, to be added to its error."""
    rows = sum(entry.rows for entry in folder.entries.values())
    return f"; {rows:,} rows are {work.task.participle} and kept in {folder.path}" if rows else ""
