"""The number of threads on busy cores, with the use of the cores injected."""

from pathlib import Path

import pytest
import torch

import regard.threads
from regard.cli import spin_briefly
from regard.threads import free_cores, threads_for_free_cores
from regard.training.events import Event, Noted, Started
from regard.training.recipe_files import read_recipe
from regard.training.run_setup import open_run
from tests.demo.test_demo import TINY


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    chosen = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: chosen[-1])
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)


def core_times(idle: int, total: int) -> str:
    """A line of /proc/stat per core: the first core is always busy, the second one was idle for this long."""
    lines = [f"cpu0 {total} 0 0 0 0 0 0 0 0 0", f"cpu1 {total - idle} 0 0 {idle} 0 0 0 0 0 0"]
    return "\n".join(["cpu  1 1 1 1 1 1 1 1 0 0", *lines, "intr 12"])


@pytest.mark.parametrize(("idle", "free"), [(20, 1.0), (0, 0.0), (5, 0.25)])
def test_idle_cores_are_counted(idle: int, free: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text(core_times(100, 200))
    monkeypatch.setattr(regard.threads, "PROC_STAT", stat)
    monkeypatch.setattr(regard.threads, "CPU_QUOTA", tmp_path / "missing")
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1})
    monkeypatch.setattr("time.sleep", lambda _seconds: stat.write_text(core_times(100 + idle, 220)))
    assert free_cores() == pytest.approx(free)


def test_load_and_quota_limit_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(regard.threads, "PROC_STAT", tmp_path / "missing")
    monkeypatch.setattr(regard.threads, "CPU_QUOTA", quota)
    monkeypatch.setattr(regard.threads, "SAMPLE_SECONDS", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1, 2, 3})
    monkeypatch.setattr("os.getloadavg", lambda: (1.0, 0.0, 0.0))
    assert free_cores() == 3
    quota.write_text("150000 100000\n")
    assert free_cores() == 1.5
    quota.write_text("max 100000\n")
    assert free_cores() == 3


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("free", "threads"), [(2.0, 2), (1.8, 2), (1.5, 1), (1.0, 1), (0.0, 1)])
def test_threads_follow_the_free_cores(free: float, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.threads, "free_cores", lambda: free)
    with threads_for_free_cores() as note:
        assert torch.get_num_threads() == threads
        assert (note is None) == (threads == 2)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_the_number_that_the_user_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.threads, "free_cores", lambda: 0.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with threads_for_free_cores() as note:
        assert (torch.get_num_threads(), note) == (2, None)


@pytest.mark.usefixtures("two_threads")
def test_training_says_that_it_uses_fewer_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.threads, "free_cores", lambda: 0.9)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    events: list[Event] = []
    with open_run(read_recipe("petit-fr-en", TINY), tmp_path / "run", False, [events.append]):
        assert torch.get_num_threads() == 1
    (started,) = (event for event in events if isinstance(event, Started))
    assert started.place == "CPU, 1 thread, float32"
    assert [event.text for event in events if isinstance(event, Noted)] == [
        "other programs use the processor: 1 thread instead of 2 (set OMP_NUM_THREADS to choose the number)"
    ]


def test_threads_wait_briefly_unless_the_user_chose() -> None:
    for given, expected in [
        ({}, {"GOMP_SPINCOUNT": "2000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
    ]:
        environment = dict(given)
        spin_briefly(environment)
        assert environment == expected
