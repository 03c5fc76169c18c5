"""Jobs whose processes are killed with SIGKILL at random moments: the output has the bytes of an undisturbed run."""

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.jobs.job_folder import FINISHED_FILE, JobFolder
from regard.jobs.local_workers import WorkerPool
from regard.jobs.records import LineRecords
from regard.jobs.tasks import ShardWork
from tests.support.commands import command
from tests.support.jobs import (
    MODEL,
    ReverseTask,
    children,
    is_running,
    kill,
    reverse_file,
    start,
    wait_until,
    write_sentences,
)
from tests.support.text_models import TEXTS, random_model

pytestmark = pytest.mark.slow
ROWS = 300
EXPECTED = "".join(f"sentence {number}"[::-1] + "\n" for number in range(ROWS))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentences(tmp_path_factory.mktemp("jobs") / "text", ROWS)


def finished_shards(output: Path) -> int:
    return len(list(JobFolder(output).path.glob("shard-*")))


def run_with_kills(source: Path, output: Path, kills: int, draw: random.Random) -> tuple[int, int]:
    """Run a job again and again, and kill it or one of its workers, until it ends by itself; return how often each."""
    parents = workers = 0
    log = output.with_suffix(".log")
    while True:
        goal = finished_shards(output) + draw.choice([0, 1, 2])
        process = start(lambda: reverse_file(source, output, seconds=0.01), log)
        if parents + workers < kills:
            wait_until(lambda: finished_shards(output) >= goal or not is_running(process))  # noqa: B023
            time.sleep(draw.uniform(0, 0.03))
            offspring = children(process)
            if offspring and (parents + workers) % 2 == 0:
                os.kill(draw.choice(offspring), signal.SIGKILL)
                workers += 1
                wait_until(lambda: finished_shards(output) > goal or not is_running(process))  # noqa: B023
            if is_running(process):
                kill(process)
                parents += 1
                wait_until(lambda: not any(map(is_running, offspring)))  # noqa: B023
                continue
        _, status = os.waitpid(process, 0)
        assert status == 0, log.read_text()
        return parents, workers


def test_a_killed_job_resumes_and_has_the_same_bytes(source: Path, tmp_path: Path) -> None:
    parents, workers = run_with_kills(source, tmp_path / "out", kills=8, draw=random.Random(2))
    assert parents
    assert workers
    assert parents + workers >= 8
    assert (tmp_path / "out").read_text() == EXPECTED
    assert not JobFolder(tmp_path / "out").path.exists()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_jobs_that_are_killed_dozens_of_times_have_the_same_bytes(source: Path, tmp_path: Path, seed: int) -> None:
    kills, draw = 0, random.Random(seed)
    for number in range(5):
        kills += sum(run_with_kills(source, tmp_path / str(number), kills=20, draw=draw))
        assert (tmp_path / str(number)).read_text() == EXPECTED
    assert kills >= 60


def test_a_killed_command_resumes_and_writes_what_stdin_gives(tmp_path: Path) -> None:
    """The whole command, with a model, as a user runs it."""
    random_model().save(tmp_path / "model")
    text = "".join(f"{number} {TEXTS[number % len(TEXTS)]}\n" for number in range(150))
    (tmp_path / "in.fr").write_text(text)
    options = ["--model", str(tmp_path / "model"), "--beam", "1", "--max-tokens", "3", "--batch-tokens", "8"]
    files = ["--input", str(tmp_path / "in.fr"), "--output", str(tmp_path / "out.en"), "--workers", "2"]
    with subprocess.Popen([sys.executable, "-m", "regard", "translate", *options, *files]) as running:
        record = tmp_path / "out.en.job" / FINISHED_FILE
        wait_until(lambda: (record.exists() and b"\n" in record.read_bytes()) or running.poll() is not None)
        running.kill()
    assert not (tmp_path / "out.en").exists(), "it was killed too late"
    resumed = command("translate", *options, *files)
    assert resumed.exit_code == 0, resumed.output
    assert "150 rows translated" in resumed.stderr
    assert "of them in an earlier run" in resumed.stderr
    assert (tmp_path / "out.en").read_bytes() == command("translate", *options, stdin=text).stdout_bytes


@pytest.mark.long
def test_workers_that_load_the_model_themselves_give_the_same_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on GPUs and where processes that use torch cannot be forked."""
    monkeypatch.setattr("sys.platform", "other")
    reverse_file(source, tmp_path / "out")
    assert (tmp_path / "out").read_text() == EXPECTED


def test_a_kill_after_the_output_was_written_loses_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # as if killed there
        reverse_file(source, tmp_path / "out", workers=3)
    (tmp_path / "out").unlink()
    summary = reverse_file(source, tmp_path / "out")
    assert summary.progress.rows_before == ROWS
    assert (tmp_path / "out").read_text() == EXPECTED
    assert not JobFolder(tmp_path / "out").path.exists()


def test_rows_that_kill_every_worker_stop_the_job(tmp_path: Path) -> None:
    """The other rows are finished, and kept."""
    (tmp_path / "in").write_text("".join("deadly\n" if number == 50 else f"{number}\n" for number in range(60)))
    with pytest.raises(
        RegardError, match=r"rows 45–52 ended 3 processes .*: run the command again with fewer --workers to resume$"
    ):
        reverse_file(tmp_path / "in", tmp_path / "out")
    assert finished_shards(tmp_path / "out") >= 6
    (tmp_path / "in").write_text("".join("peaceful\n" if number == 50 else f"{number}\n" for number in range(60)))
    assert reverse_file(tmp_path / "in", tmp_path / "out").progress.rows_before >= 44
    assert (tmp_path / "out").read_text().split("\n")[50] == "lufecaep"


def test_workers_end_if_their_parent_is_killed_while_it_sends_a_shard() -> None:
    """They get the beginning of a shard, and then find the pipe closed, because nobody else holds the parent's end."""
    task = ReverseTask()
    pool = WorkerPool(ShardWork(task, LineRecords(("in.txt",))), task.answerer(MODEL), lambda: None)
    for _ in range(3):
        pool.workers.append(pool.start("cpu"))
    for worker in pool.workers:
        os.write(worker.pipe.fileno(), struct.pack("!i", 1_000) + b"its beginning")
        worker.pipe.close()
        worker.process.join(60)
        assert worker.process.exitcode == 0


def test_a_job_that_is_running_is_not_started_twice(source: Path, tmp_path: Path) -> None:
    process = start(lambda: reverse_file(source, tmp_path / "out", seconds=0.1), tmp_path / "log")
    wait_until(lambda: finished_shards(tmp_path / "out"))
    with pytest.raises(RegardError, match=r"out\.job is in use by another process"):
        reverse_file(source, tmp_path / "out")
    kill(process)
    reverse_file(source, tmp_path / "out")  # workers do not hold the lock
    assert (tmp_path / "out").read_text() == EXPECTED
