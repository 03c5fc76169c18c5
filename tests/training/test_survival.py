"""Runs survive signals and kill -9: a resumed run ends like an uninterrupted one."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from regard.decoding.text_model import Model
from regard.training.checkpoint_files import newest_checkpoint
from regard.training.events import STOPPING_NOTE, Event
from regard.training.interrupts import Interrupts, catch_signals
from regard.training.train import train_recipe
from tests.support.forked import ROOT, ForkedProcess, forked, wait_until
from tests.support.interrupted_runs import losses, recipe, state, stopped_at
from tests.support.signals import default_signals, ignoring


@pytest.mark.slow
@pytest.mark.parametrize(("task", "lr"), [("translation", 0.2), ("language", 2.0)])
def test_a_stopped_run_ends_like_an_uninterrupted_one(runs_folder: Path, tmp_path: Path, task: str, lr: float) -> None:
    """At steps between validations, checkpoints and log lines; patience continues to count."""
    settings = recipe(
        runs_folder, "train.steps=60", "train.patience=2", f"train.lr={lr}", "train.checkpoint_every=50", task=task
    )
    quiet = train_recipe(settings, tmp_path / "quiet")
    steps = {1, 4, 9, 10, 12, quiet.ended.step - 3}
    with stopped_at(steps):
        while (stopped := train_recipe(settings, tmp_path / "stopped", resume=True)).ended.reason == "interrupted":
            assert stopped.signal == signal.SIGTERM
    assert not steps
    assert quiet.ended.reason == stopped.ended.reason == "patience"
    assert (quiet.ended.step, quiet.ended.best_step) == (stopped.ended.step, stopped.ended.best_step)
    a, b = state(tmp_path / "quiet"), state(tmp_path / "stopped")
    assert a["progress"]["epoch"] > 0, "no epoch was left"
    a["folders"] = b["folders"] = None  # it has checkpoints of other steps
    assert a == b
    before = b["last"]
    assert train_recipe(settings, tmp_path / "stopped", resume=True).ended.step == quiet.ended.step, (
        "patience was forgotten"
    )
    assert state(tmp_path / "stopped")["last"] == before


@pytest.mark.slow
def test_runs_with_bpe_dropout_and_r_drop_are_resumed(runs_folder: Path, tmp_path: Path) -> None:
    """BPE dropout and R-Drop, which doubles the number of operations."""
    ways = "tokenizer.dropout=0.2", "train.consistency=2.0"
    quiet = train_recipe(recipe(runs_folder, *ways), tmp_path / "quiet").ended
    with stopped_at({3, 7}):
        while train_recipe(recipe(runs_folder, *ways), tmp_path / "stopped", resume=True).ended.reason == "interrupted":
            pass
    a, b = state(tmp_path / "quiet"), state(tmp_path / "stopped")
    a["folders"] = b["folders"] = None
    assert a == b
    once = train_recipe(recipe(runs_folder, ways[0]), tmp_path / "once").ended
    assert (quiet.tokens, quiet.flops) == (once.tokens, 2 * once.flops)
    assert losses(tmp_path / "quiet") != losses(tmp_path / "once")
    with pytest.raises(ValueError, match=r"tokenizer\.dropout"):
        train_recipe(recipe(runs_folder, "train.consistency=2.0"), tmp_path / "quiet", resume=True)


# Watchers


@pytest.mark.slow
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), SystemExit(1)])
def test_a_watcher_that_lost_its_terminal_does_not_stop_a_run(
    runs_folder: Path, finished_run: Path, tmp_path: Path, error: BaseException
) -> None:
    told = []

    def fails(event: Event) -> None:
        told.append(event)
        if event.step == 3:
            raise error

    train_recipe(recipe(runs_folder), tmp_path / "run", watchers=[fails])
    assert told[-1].step == 3
    assert state(tmp_path / "run") == state(finished_run)


# Signals


def test_signals_are_recorded_and_handlers_restored() -> None:
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in usual:
        found = Interrupts()
        with catch_signals(found):
            os.kill(os.getpid(), number)
            assert found.signal == number
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    assert {number: signal.getsignal(number) for number in usual} == usual


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        found = Interrupts()
        with catch_signals(found):
            os.kill(os.getpid(), signal.SIGHUP)
        assert found.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ignored_signals_are_restored_for_tests_and_ignored_again_after_them() -> None:
    with ignoring(signal.SIGINT, signal.SIGHUP):
        with default_signals():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
            test_signals_are_recorded_and_handlers_restored()
        assert signal.getsignal(signal.SIGINT) == signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
SIGNAL_TEST = "tests/training/test_survival.py::test_signals_are_recorded_and_handlers_restored"
DEMO_TEST = "tests/demo/test_demo.py::test_an_interrupted_demo_says_how_to_resume_and_resumes"


@pytest.mark.slow
def test_a_signal_test_passes_when_the_parent_ignores_signals() -> None:
    """As in `make test &`."""
    with forked(
        "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", SIGNAL_TEST, ignored=IGNORED
    ) as process:
        assert process.wait() == 0, process.stdout + process.stderr
        assert "1 passed" in process.stdout


@pytest.mark.long
def test_signal_tests_pass_when_the_parent_ignores_signals() -> None:
    """The same with a process that imports everything itself, and with a demo that is interrupted."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SIGNAL_TEST, DEMO_TEST]
    with ignoring(*IGNORED):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def started(runs_folder: Path, out: Path, *changes: str) -> AbstractContextManager[ForkedProcess]:
    """Start `regard train` as a user does."""
    sets = [word for change in (f"data.folder={runs_folder / 'text'}", *changes) for word in ("--set", change)]
    return forked("regard", "train", str(runs_folder / "translation.toml"), *sets, "--out", str(out))


ENDLESS = ("train.steps=100000", "train.checkpoint_every=1000")


@pytest.mark.slow
def test_sigterm_saves_and_prints_the_command_to_resume(runs_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(runs_folder, out, *ENDLESS, "train.average=2") as process:
        wait_until((out / "checkpoints" / "best-00000003").exists, process)
        process.send_signal(signal.SIGTERM)
        status, output = process.wait(), process.stdout
    assert status == 143, output
    found, _ = newest_checkpoint(out)
    assert found is not None
    step = found.progress["step"]
    assert f"Interrupted at step {step:,}." in output
    (command,) = re.findall(r"To resume: regard (.*)", output)
    with forked("regard", *shlex.split(command), "--set", f"train.steps={step + 2}") as process:
        status, output = process.wait(), process.stdout
        assert status == 0, process.stderr
    assert f"resumes after step {step:,}" in output
    assert Model.from_folder(out).about["recipe"]["train"]["average"] == 2, "what --set had changed was forgotten"


def catches_signals(process: ForkedProcess) -> bool:
    """Whether the process handles SIGTERM itself, as it does while it trains."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():  # not on Linux: give it the time
        time.sleep(5)
        return True
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", status.read_text())
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
def test_the_first_ctrl_c_saves_and_the_second_ends_immediately(runs_folder: Path, tmp_path: Path) -> None:
    with started(runs_folder, tmp_path / "run", *ENDLESS) as process:
        wait_until((tmp_path / "run" / "checkpoints" / "best-00000003").exists, process)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert "To resume: " in process.stdout
    assert newest_checkpoint(tmp_path / "run")[0] is not None
    with started(runs_folder, tmp_path / "slow", "train.accumulate=50000") as process:  # a step takes minutes
        wait_until(lambda: catches_signals(process), process)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: STOPPING_NOTE in " ".join(process.stdout.split()), process)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert not (tmp_path / "slow" / "checkpoints").exists(), "the second finished the step"


@pytest.mark.slow
def test_a_short_torture_run() -> None:
    """Kill a run at random times, some during a save; `make torture` is the long version."""
    few = ["--kills", "4", "--in-save", "2", "--publishing", "3", "--flips", "14", "--truncations", "14"]
    with forked("tests.support.torture", *few) as process:
        assert process.wait() == 0, process.stdout + process.stderr
        assert "nothing was lost, and nothing went unnoticed" in process.stdout
