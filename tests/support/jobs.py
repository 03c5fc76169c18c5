"""Batch jobs in processes that can be killed.

`python -m tests.support.jobs ROWS` measures what a job costs besides the model: it stops a job at nine tenths, resumes
it, and prints the time and memory of the first process.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.jobs.local_workers import LocalEngine
from regard.jobs.records import Answer, Column, LineRecords, RecordFile
from regard.jobs.run_job import JobProgress, JobSummary, run_job
from regard.jobs.tasks import AnswerTexts, JobTask, Texts
from tests.support.text_models import random_model

ROWS_PER_SHARD = 8
MODEL = random_model()


@dataclass(frozen=True, kw_only=True)
class ReverseTask(JobTask):
    """Reverses each text, as a model would translate it: quickly, so that the job itself is what takes time.

    A text with "refused" is refused, and one with "deadly" kills its worker.
    """

    model: str = "none"
    seconds: float = 0.0
    """Time that a shard takes."""
    rows_per_shard: int = ROWS_PER_SHARD

    verb: ClassVar[str] = "reverse"
    participle: ClassVar[str] = "reversed"

    @property
    def columns(self) -> list[Column]:
        return [Column("reversed", str)]

    @property
    def shard_rows(self) -> tuple[int, int]:
        return self.rows_per_shard // 2, self.rows_per_shard

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"seconds": None}

    def answerer(self, model: Model) -> AnswerTexts:
        assert model is MODEL

        def answer(texts: Texts) -> list[Answer]:
            time.sleep(self.seconds)
            for (text,) in texts:
                if "refused" in text:
                    raise RegardError("the text is refused")
                if "deadly" in text:
                    os.kill(os.getpid(), signal.SIGKILL)
            return [[(text[::-1],)] for (text,) in texts]

        return answer

    def load(self, device: str) -> tuple[Model, AnswerTexts]:
        assert device == "cpu"
        return MODEL, self.answerer(MODEL)


def write_sentences(path: Path, count: int) -> Path:
    """Write lines that are all different, so that a line that is lost or doubled shows."""
    path.write_text("".join(f"sentence {number}\n" for number in range(count)))
    return path


def reverse_file(
    source: Path | RecordFile,
    output: Path,
    workers: int | None = 2,
    seconds: float = 0.0,
    restart: bool = False,
    report: Callable[[JobProgress], object] = lambda _: None,
    rows_per_shard: int = ROWS_PER_SHARD,
) -> JobSummary:
    """Run a job on plain text, or on other records, in this process and its workers."""
    records = source if isinstance(source, RecordFile) else LineRecords((str(source),))
    engine = LocalEngine("cpu", workers, records.size)
    task = ReverseTask(seconds=seconds, rows_per_shard=rows_per_shard)
    return run_job(task, records, output, engine, restart, report)


def start(work: Callable[[], object], log: Path) -> int:
    """Do the work in a process of its own, and return its id. Its errors go to the log."""
    if process := os.fork():
        return process
    status = 1
    try:
        os.setsid()
        work()
        status = 0
    except BaseException as error:
        log.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


def children(process: int) -> list[int]:
    """The processes that a process has started and that still run."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


def is_running(process: int) -> bool:
    """Whether a process exists and has not ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def kill(process: int) -> None:
    """Send SIGKILL to a child, and wait until it has ended."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until the condition holds; fail if it does not in a long time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


class Stopped(Exception):  # noqa: N818  # not an error
    """Ends a job as if it had been killed."""


def main() -> None:
    """Measure a job on generated sentences: up to nine tenths, and after that."""
    rows = int(sys.argv[1])

    def stop(progress: JobProgress) -> None:
        if progress.fraction > 0.9:
            raise Stopped

    with TemporaryDirectory() as folder:
        source, output = Path(folder, "in"), Path(folder, "out")
        with source.open("w") as file:
            file.writelines(
                f"Voici la phrase numéro {number} d'un corpus de longueur moyenne.\n" for number in range(rows)
            )
        reports: dict[str, Callable[[JobProgress], object]] = {"up to nine tenths": stop, "resumed": lambda _: None}
        for part, report in reports.items():
            began = time.process_time()
            with suppress(Stopped):
                reverse_file(source, output, report=report, rows_per_shard=2048)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"{part}: {time.process_time() - began:.1f} s of CPU time, at most {peak} MB")


if __name__ == "__main__":
    main()
