"""A run whose disk is full, or whose folder cannot be written: it says so, and resumes once there is room."""

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regard import cli
from regard.training import checkpoint_files as checkpoint
from regard.training.checkpoint_files import newest_checkpoint
from regard.training.events import Event
from regard.training.train import train_recipe
from tests.support.interrupted_runs import notes, recipe, state

pytestmark = pytest.mark.slow


def run_command(monkeypatch: pytest.MonkeyPatch, runs_folder: Path, *words: str) -> int:
    """Run the command in this process and return its exit status."""
    words = ("train", str(runs_folder / "translation.toml"), "--set", f"data.folder={runs_folder / 'text'}", *words)
    monkeypatch.setattr(sys, "argv", ["regard", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def check_resumes(runs_folder: Path, run: Path, finished_run: Path) -> None:
    """Once there is room again, the run ends as if there had always been some."""
    assert not list((run / "checkpoints").glob(".*"))
    found, damaged = newest_checkpoint(run)
    assert found is not None
    assert not damaged
    assert notes(runs_folder, run)[-1].startswith(f"resumes after step {found.progress['step']}, from ")
    assert state(run) == state(finished_run)


@pytest.mark.usefixtures("without_type_checks")
def test_a_run_survives_a_full_disk(
    runs_folder: Path,
    finished_run: Path,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6 - 7, 7))
        assert run_command(patch, runs_folder, "--out", str(run), "--resume") == 2
    error = capsys.readouterr().err
    assert re.search(r"step-00000014 could not be saved: about [\d,]{6,} bytes are needed and 7 are free", error) or (
        re.search(r"best-0000001\d could not be saved: about [\d,]{6,} bytes are needed and 7 are free", error)
    )
    assert "continue with --resume" in error
    check_resumes(runs_folder, run, finished_run)


@pytest.mark.usefixtures("without_type_checks")
def test_a_run_survives_a_file_size_limit(
    runs_folder: Path,
    finished_run: Path,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The model's weights fit, the optimizer's do not: the error occurs in the library that writes them."""
    sizes = [
        (run / "checkpoints" / "step-00000012" / name).stat().st_size
        for name in ("model.safetensors", "training.safetensors")
    ]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (sum(sizes) // 2, before[1]))
    try:
        assert run_command(monkeypatch, runs_folder, "--out", str(run), "--resume") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert re.search(r"step-00000014 could not be saved: about [\d,]{6,} bytes are needed", capsys.readouterr().err)
    check_resumes(runs_folder, run, finished_run)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # TensorBoard may have a file open


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("left", [0, 40_000, 170_000, 300_000])
def test_a_run_survives_a_real_full_disk(
    runs_folder: Path,
    finished_run: Path,
    run: Path,
    tmp_path: Path,
    left: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Filled up to this many bytes: then a log, a best model or a checkpoint does not fit."""
    with small_disk(tmp_path / "disk", 8_000_000):
        out = tmp_path / "disk" / "run"
        shutil.copytree(run, out)
        rest = shutil.disk_usage(out).free - left
        (tmp_path / "disk" / "filled").write_bytes(bytes(max(0, rest // 4096 * 4096)))
        assert run_command(monkeypatch, runs_folder, "--out", str(out), "--resume") == 2
        assert re.search("No space left|bytes are needed", capsys.readouterr().err)
        (tmp_path / "disk" / "filled").unlink()
        check_resumes(runs_folder, out, finished_run)


@pytest.mark.usefixtures("without_type_checks")
def test_unwritable_folders_are_reported(
    runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "closed").mkdir(mode=0o555)
    closed = Path("/proc/run") if os.geteuid() == 0 else tmp_path / "closed" / "run"
    for resume in ((), ("--resume",)):
        assert run_command(monkeypatch, runs_folder, "--out", str(tmp_path / "file"), *resume) == 2
        assert "file already exists" in capsys.readouterr().err
        assert run_command(monkeypatch, runs_folder, "--out", str(closed), *resume) == 2
        assert str(closed) in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_removed_during_a_run_is_reported(runs_folder: Path, tmp_path: Path) -> None:
    def remove(event: Event) -> None:
        if event.step == 6:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with pytest.raises(ValueError, match=r"run/.* could not be (saved|written)"):
        train_recipe(recipe(runs_folder), tmp_path / "run", watchers=[remove])
    assert not (tmp_path / "run").exists()


def test_saving_into_a_removed_run_is_reported(runs_folder: Path, tmp_path: Path) -> None:
    found, _ = newest_checkpoint(runs_folder / "whole")
    assert found is not None
    with pytest.raises(ValueError, match="the run's folder no longer exists"):
        checkpoint.write_checkpoint(tmp_path / "gone", 1, found.model, found.tensors, found.progress)
