"""Runs survive signals, kill -9, damaged files and full disks: a resumed run ends like an uninterrupted one."""

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import cli
from regard.atomic_files import file_digest
from regard.decoding.text_model import Model
from regard.petit import corpus_files as files
from regard.storage import model_folder as store
from regard.training import checkpoint_files as checkpoint
from regard.training import train as train_module
from regard.training import validation as validate
from regard.training.checkpoint_files import check_intact, newest_checkpoint, publish_model
from regard.training.events import Event, Noted, Stepped, Validated
from regard.training.interrupts import Interrupts, catch_signals
from regard.training.metrics_log import read_metrics
from regard.training.progress import Progress
from regard.training.recipe import Recipe
from regard.training.recipe_files import read_recipe
from regard.training.run_folder import lock_run_folder
from regard.training.schedule import learning_rate
from regard.training.train import train_recipe
from tests.support.recipes import COMMON_TOML, RECIPES_TOML
from tests.support.signals import default_signals, ignoring

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with some text and a recipe for each task; the prepared data are shared by all tests."""
    folder = tmp_path_factory.mktemp("survival")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "HELD_OUT", 8)
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        files.write_petit(60, folder / "text", 0)
        patch.setattr(train_module, "score_best_model", lambda *_: [])  # final scores take longer than the runs
        patch.setattr(validate, "SAMPLE_COUNT", 0)
        for name, text in RECIPES_TOML.items():
            (folder / f"{name}.toml").write_text(text + COMMON_TOML)
        yield folder


def recipe(runs_folder: Path, *changes: str, task: str = "translation") -> Recipe:
    return read_recipe(str(runs_folder / f"{task}.toml"), [f"data.folder={runs_folder / 'text'}", *changes])


@pytest.fixture(scope="module")
def finished_run(runs_folder: Path) -> Path:
    """Return an undisturbed run."""
    train_recipe(recipe(runs_folder), runs_folder / "whole")
    return runs_folder / "whole"


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """Return a copy of it as it was at step 12: its newest checkpoints are those of steps 8 and 12."""
    shutil.copytree(finished_run, tmp_path / "run", ignore=shutil.ignore_patterns("*-00000014"))
    (tmp_path / "run" / "config.json").unlink()
    return tmp_path / "run"


@pytest.fixture(scope="module", autouse=True)
def three_checkpoints() -> Iterator[None]:
    """Keep one more checkpoint than usual, so that tests can remove the last and two are left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "CHECKPOINTS_KEPT", 3)
        yield


@contextmanager
def stopped_at(steps: set[int]) -> Iterator[None]:
    """Send SIGTERM in the middle of each of these steps."""
    usual = learning_rate

    def rate(step: int, *rest: Any) -> float:
        if step in steps:
            steps.discard(step)
            os.kill(os.getpid(), signal.SIGTERM)
        return usual(step, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "learning_rate", rate)
        yield


def losses(run: Path) -> list[tuple[str, int, float]]:
    told = (each for each in read_metrics(run) if isinstance(each, Stepped | Validated))
    return [(type(each).__name__, each.step, each.loss) for each in told]


def state(run: Path) -> dict[str, Any]:
    """Return everything that must be the same however often a run was stopped."""
    last = max((run / "checkpoints").glob("step-" + "[0-9]" * 8))
    progress = json.loads((last / "training.json").read_text())
    names = ("model.safetensors", "training.safetensors")
    return {
        "best": file_digest(run / "model.safetensors"),
        "last": [last.name, *(file_digest(last / name) for name in names)],
        "progress": {key: value for key, value in progress.items() if key != "seconds"},
        "losses": losses(run),
        "folders": sorted(each.name for each in (run / "checkpoints").iterdir()),
    }


def notes(runs_folder: Path, run: Path, *changes: str) -> list[str]:
    """Resume the run and return its notes."""
    told: list[Event] = []
    train_recipe(recipe(runs_folder, *changes), run, resume=True, watchers=[told.append])
    return [
        each.text for each in told if isinstance(each, Noted) and not each.text.startswith("scoring the best model")
    ]


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


def flip(folder: Path) -> None:
    content = bytearray((folder / "training.safetensors").read_bytes())
    content[-5] ^= 4
    (folder / "training.safetensors").write_bytes(content)


def cut(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def half_written(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    folder.rename(folder.with_name(".step-00000012.abc"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "a bit": (flip, "training.safetensors is damaged"),
    "a truncation": (cut, "model.safetensors has"),
    "a file": (lambda folder: (folder / "training.json").unlink(), "training.json is missing"),
    "the manifest": (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missing"),
    "everything": (empty, "manifest.json is missing"),
    "a rename": (half_written, None),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(
    runs_folder: Path, finished_run: Path, run: Path, damage: str
) -> None:
    harm, told = DAMAGES[damage]
    harm(run / "checkpoints" / "step-00000012")
    said = notes(runs_folder, run)
    assert said[-1].startswith("resumes after step 8, from ")
    if told is None:
        assert len(said) == 1
    else:
        assert "step-00000012" in said[0]
        assert told in said[0]
    found, wanted = state(run), state(finished_run)
    assert ("damaged-00000012" in found["folders"]) == (told is not None)
    found["folders"] = [name for name in found["folders"] if not name.startswith("damaged")]
    assert found == wanted


def test_a_run_without_an_intact_checkpoint_is_not_restarted_silently(runs_folder: Path, run: Path) -> None:
    for folder in (run / "checkpoints").glob("step-*"):
        flip(folder)
    before = sorted((run / "checkpoints").rglob("*"))
    with pytest.raises(ValueError, match=r"are damaged: step-00000012 .*step-00000008 .* remove .*checkpoints"):
        train_recipe(recipe(runs_folder), run, resume=True)
    assert sorted((run / "checkpoints").rglob("*")) == before


def test_every_byte_of_a_manifest_is_checked(tmp_path: Path) -> None:
    for name in (*store.MODEL_FILES, "training.json"):
        (tmp_path / name).write_text(name)
    store.write_manifest(tmp_path)
    check_intact(tmp_path)
    path = tmp_path / "manifest.json"
    content = path.read_bytes()
    flips = [content[:i] + bytes([content[i] ^ 1 << i % 8]) + content[i + 1 :] for i in range(len(content))]
    cuts = [content[:i] for i in range(len(content))]
    for changed in (*flips, *cuts, content + b" ", content.replace(b"  ", b"\t"), content.replace(b"\n", b"\r\n")):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
            check_intact(tmp_path)
    path.write_bytes(content)
    check_intact(tmp_path)


def test_a_damaged_best_model_is_reported_and_replaced(runs_folder: Path, run: Path) -> None:
    for folder in (run / "checkpoints").glob("best-*"):
        cut(folder)
    said = notes(runs_folder, run)
    assert "the best model so far is damaged" in said[0]
    assert "best-" in said[0]
    assert Model.from_folder(run).about["scores"]["step"] == 14


def test_a_best_model_lost_after_the_last_step(runs_folder: Path, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    for folder in (tmp_path / "run" / "checkpoints").glob("best-*"):
        shutil.rmtree(folder)
    notes(runs_folder, tmp_path / "run")
    assert Model.from_folder(tmp_path / "run").about["scores"]["step"] == 14


def test_unknown_and_damaged_folders_do_not_disturb_a_save(runs_folder: Path, finished_run: Path, run: Path) -> None:
    """Someone made copies, and a checkpoint that is not resumed from is damaged."""
    folder = run / "checkpoints"
    shutil.copytree(folder / "step-00000012", folder / "step-00000012.copy")
    shutil.copytree(folder / "step-00000012", folder / "step-mine")
    (folder / "best-of-all").mkdir()
    (folder / "step-00000008" / "training.json").write_text("{")
    assert notes(runs_folder, run)[0].startswith("resumes after step 12")
    assert state(run)["last"] == state(finished_run)["last"]
    assert {"step-00000012.copy", "step-mine", "best-of-all"} <= set(state(run)["folders"])


def test_two_checkpoints_and_their_best_models_are_kept(
    runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "CHECKPOINTS_KEPT", 2)
    train_recipe(recipe(runs_folder), tmp_path / "run")
    names = state(tmp_path / "run")["folders"]
    known = {
        json.loads((tmp_path / "run" / "checkpoints" / step / "training.json").read_text())["best_step"]
        for step in ("step-00000012", "step-00000014")
    }
    assert names == sorted([*(f"best-{step:08d}" for step in known), "step-00000012", "step-00000014"])


def test_a_damaged_log_does_not_stop_a_run(runs_folder: Path, finished_run: Path, run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join([*lines[:2], b"\0\0\0{\n", *lines[2:]]) + b'{"event": "Ste')
    notes(runs_folder, run)
    assert losses(run) == losses(finished_run)


def test_additions_of_other_versions_do_not_stop_a_run(runs_folder: Path, finished_run: Path, run: Path) -> None:
    """Unknown fields and events in every JSON file of a run: it is resumed and ends as usual."""
    extra = {"added_later": {"a": [1]}}
    for folder in (run / "checkpoints").iterdir():
        for path in (folder / name for name in ("config.json", "generation_config.json", "training.json")):
            if path.exists():
                path.write_text(json.dumps(json.loads(path.read_text()) | extra))
        config = json.loads((folder / "config.json").read_text())
        config["about"] |= extra
        (folder / "config.json").write_text(json.dumps(config))
        store.write_manifest(folder)
        manifest = json.loads((folder / "manifest.json").read_text()) | extra
        for entry in manifest["files"].values():
            entry |= extra
        store.write_json(folder / "manifest.json", manifest)
    lines = (run / "metrics.jsonl").read_bytes().splitlines()
    kept = json.dumps({"event": "Cooled", "step": 3, "degrees": 21.5})
    changed = [json.dumps(json.loads(line) | extra) for line in lines]
    (run / "metrics.jsonl").write_text("\n".join([changed[0], kept, *changed[1:], ""]))
    assert notes(runs_folder, run)[0].startswith("resumes after step 12")
    after = (run / "metrics.jsonl").read_text().split("\n")
    until = [line for line in changed if json.loads(line)["step"] <= 12 and json.loads(line)["event"] != "Ended"]
    assert after[: len(until) + 1] == [until[0], kept, *until[1:]]
    assert losses(run) == losses(finished_run)
    assert state(run) | {"folders": 0} == state(finished_run) | {"folders": 0}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step": "12"}, "step='12' has type str"),
        ({"step": None}, "step=None has type NoneType"),
        ({"kept": 3}, "kept=3"),
        ({"kept": [1, "2"]}, "kept='2'"),
        ({"tokens": [1]}, r"tokens=\[1\]"),
    ],
)
def test_progress_of_the_wrong_type_is_reported(
    runs_folder: Path, run: Path, change: dict[str, Any], told: str
) -> None:
    folder = run / "checkpoints" / "step-00000012"
    progress = json.loads((folder / "training.json").read_text()) | change
    store.write_json(folder / "training.json", progress)
    store.write_manifest(folder)
    with pytest.raises(ValueError, match=rf"training.json cannot be resumed from: {told}"):
        notes(runs_folder, run)


def test_missing_fields_of_progress_have_defaults(tmp_path: Path) -> None:
    assert Progress.from_json({"step": 3, "added_later": 1}, tmp_path) == Progress(step=3)
    with pytest.raises(ValueError, match="step=None"):
        Progress.from_json({}, tmp_path)


# Disks


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


# Resuming


def test_without_a_checkpoint_a_run_starts_again(runs_folder: Path, finished_run: Path, tmp_path: Path) -> None:
    assert notes(runs_folder, tmp_path / "run") == [
        "there is no checkpoint to resume from: this run starts from the beginning"
    ]
    assert state(tmp_path / "run") == state(finished_run)


@pytest.mark.parametrize("change", ["train.lr=0.5", "model.d_ff=64", "train.seed=1", "tokenizer.vocab_size=384"])
def test_resuming_with_another_recipe_is_rejected(runs_folder: Path, run: Path, change: str) -> None:
    key, _, value = change.partition("=")
    with pytest.raises(ValueError, match=rf"started with {key}=.* now it is {value}"):
        train_recipe(recipe(runs_folder, change), run, resume=True)


def test_a_run_is_not_overwritten(runs_folder: Path, finished_run: Path, tmp_path: Path) -> None:
    before = state(finished_run)
    with pytest.raises(ValueError, match="already holds a run: continue it with --resume"):
        train_recipe(recipe(runs_folder), finished_run)
    (tmp_path / "notes.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(ValueError, match="does not hold a run"):
            train_recipe(recipe(runs_folder), tmp_path, resume=resume)
    assert state(finished_run) == before
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["train.en", "dev.fr"])
def test_changed_training_text_is_rejected(runs_folder: Path, run: Path, name: str) -> None:
    path = runs_folder / "text" / name
    before = path.read_text()
    lines = before.splitlines(keepends=True)
    path.write_text("".join([*lines[1:], lines[0]]))  # the same words, hence the same tokenizer
    try:
        with pytest.raises(ValueError, match="trained on different text"):
            train_recipe(recipe(runs_folder), run, resume=True)
    finally:
        path.write_text(before)


def test_a_finished_run_resumes_with_more_steps(runs_folder: Path, run: Path, tmp_path: Path) -> None:
    notes(runs_folder, run)
    assert notes(runs_folder, run, "train.steps=17")[-1].startswith("resumes after step 14")
    train_recipe(recipe(runs_folder, "train.steps=17"), tmp_path / "at once")
    assert state(run)["last"][:2] == state(tmp_path / "at once")["last"][:2]


def test_a_run_folder_is_used_by_one_process_at_a_time(runs_folder: Path, run: Path, tmp_path: Path) -> None:
    before = sorted((run / "checkpoints").rglob("*"))
    with (
        lock_run_folder(run),
        pytest.raises(ValueError, match=rf"is in use: another process \({os.getpid()}\) is training into it"),
    ):
        train_recipe(recipe(runs_folder), run, resume=True)
    assert sorted((run / "checkpoints").rglob("*")) == before
    with lock_run_folder(tmp_path / "new"), pytest.raises(ValueError, match="is in use"):
        train_recipe(recipe(runs_folder), tmp_path / "new")
    assert not (tmp_path / "new").exists(), "an empty folder is left"
    notes(runs_folder, run)


def test_a_run_that_fails_to_start_leaves_no_folder(runs_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        train_recipe(recipe(runs_folder, 'data.validation.files=["no.fr", "no.en"]'), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# A loadable model at any time


def test_a_run_in_progress_can_be_loaded(runs_folder: Path, tmp_path: Path) -> None:
    out, seen = tmp_path / "run", []

    def look(event: Event) -> None:
        if isinstance(event, Validated):
            assert not (out / "config.json").exists()
            seen.append((event.step, event.best, regard.load(out).about["scores"]["step"]))

    train_recipe(recipe(runs_folder), out, watchers=[look])
    assert [step for step, *_ in seen] == [3, 6, 9, 12, 14]
    assert all(loaded == step for step, best, loaded in seen if best)
    assert regard.load(out).about == Model.from_folder(out).about


def test_the_newest_intact_model_is_loaded(finished_run: Path, run: Path) -> None:
    bests = sorted((run / "checkpoints").glob("best-*"))
    assert len(bests) > 1
    for best, before in zip(bests[::-1], bests[-2::-1], strict=False):
        cut(best)
        assert regard.load(run).about == Model.from_folder(before).about
    cut(bests[0])
    with pytest.raises(ValueError, match=rf"without a model to load: .*{bests[-1].name}.*{bests[0].name}"):
        regard.load(run)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    with pytest.raises(ValueError, match="no model has been validated yet"):
        regard.load(run)


def test_a_resumed_run_loads_its_newest_model_not_the_last_published(runs_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with stopped_at({4}):
        assert train_recipe(recipe(runs_folder), out).ended.reason == "interrupted"
    assert regard.load(out).about["scores"]["step"] == 3
    seen = []

    def look(event: Event) -> None:
        if isinstance(event, Validated) and event.best:
            seen.append((event.step, regard.load(out).about["scores"]["step"]))

    train_recipe(recipe(runs_folder), out, resume=True, watchers=[look])
    assert seen
    assert all(step == loaded for step, loaded in seen)


@pytest.mark.parametrize("at", range(6))
def test_publishing_can_be_interrupted_anywhere(run: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newest = sorted((run / "checkpoints").glob("best-*"))[-2:]
    publish_model(run, older)
    usual, left = shutil.copyfile, iter(range(at + 1))

    def copy(source: Path, target: Path) -> None:
        usual(source, target)
        if next(left) == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", copy)
    with pytest.raises(KeyboardInterrupt):
        publish_model(run, newest)
    monkeypatch.undo()
    assert regard.load(run).about == Model.from_folder(newest).about
    publish_model(run, newest)
    assert Model.from_folder(run).about == Model.from_folder(newest).about


def test_a_damaged_model_is_not_published(run: Path) -> None:
    best = max((run / "checkpoints").glob("best-*"))
    cut(best)
    with pytest.raises(ValueError, match=r"model\.safetensors has"):
        publish_model(run, best)


# Watchers


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


@pytest.mark.slow
def test_signal_tests_pass_when_the_parent_ignores_signals() -> None:
    """As in `make test &`, where two of them failed."""
    names = (
        "training/test_survival.py::test_signals_are_recorded_and_handlers_restored",
        "demo/test_demo.py::test_an_interrupted_demo_says_how_to_resume_and_resumes",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in names)]
    with ignoring(signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def started(runs_folder: Path, out: Path, *changes: str) -> Iterator["subprocess.Popen[str]"]:
    """Start `regard train` as a user does."""
    sets = [word for change in (f"data.folder={runs_folder / 'text'}", *changes) for word in ("--set", change)]
    command = [sys.executable, "-m", "regard", "train", str(runs_folder / "translation.toml"), *sets, "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, f"{path} does not come"
        time.sleep(0.02)


@pytest.mark.slow
def test_sigterm_saves_and_prints_the_command_to_resume(runs_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(runs_folder, out, "train.steps=100000", "train.checkpoint_every=1000", "train.average=2") as process:
        wait_for(out / "checkpoints" / "best-00000003", process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 143, said
    found, _ = newest_checkpoint(out)
    assert found is not None
    step = found.progress["step"]
    assert f"Interrupted at step {step:,}." in said
    (command,) = re.findall(r"To resume: regard (.*)", said)
    more = [sys.executable, "-m", "regard", *shlex.split(command), "--set", f"train.steps={step + 2}"]
    done = subprocess.run(more, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert f"resumes after step {step:,}" in done.stdout
    assert Model.from_folder(out).about["recipe"]["train"]["average"] == 2, "what --set had changed was forgotten"


@pytest.mark.slow
def test_the_first_ctrl_c_saves_and_the_second_ends_immediately(runs_folder: Path, tmp_path: Path) -> None:
    with started(runs_folder, tmp_path / "run", "train.steps=100000", "train.checkpoint_every=1000") as process:
        wait_for(tmp_path / "run" / "checkpoints" / "best-00000003", process)
        process.send_signal(signal.SIGINT)
        assert "To resume: " in process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert newest_checkpoint(tmp_path / "run")[0] is not None
    with started(runs_folder, tmp_path / "slow", "train.accumulate=20000") as process:  # a step takes minutes
        wait_for(tmp_path / "slow" / "samples.txt", process)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None, "the first ended it within a step"
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - begun < 10
    assert not (tmp_path / "slow" / "checkpoints").exists()


@pytest.mark.slow
def test_a_short_torture_run() -> None:
    """Kill a run at random times, some during a save; `make torture` is the long version."""
    few = ["--kills", "6", "--in-save", "2", "--publishing", "4", "--flips", "42", "--truncations", "42"]
    command = [sys.executable, "-m", "tests.support.torture", *few]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was lost, and nothing went unnoticed" in done.stdout
