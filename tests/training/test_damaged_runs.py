"""Damaged checkpoints, models and logs of a run are reported, and the newest intact ones used."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.decoding.text_model import Model
from regard.storage import model_folder as store
from regard.training import checkpoint_files as checkpoint
from regard.training.checkpoint_files import check_intact
from regard.training.progress import Progress
from regard.training.train import train_recipe
from tests.support.interrupted_runs import cut, flip, losses, notes, recipe, state

pytestmark = pytest.mark.slow

USUALLY_KEPT = checkpoint.CHECKPOINTS_KEPT  # the fixtures keep one more


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
    monkeypatch.setattr(checkpoint, "CHECKPOINTS_KEPT", USUALLY_KEPT)
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
    with pytest.raises(ValueError, match=rf"no run can be resumed from .*training.json: {told}"):
        notes(runs_folder, run)


def test_missing_fields_of_progress_have_defaults(tmp_path: Path) -> None:
    assert Progress.from_json({"step": 3, "added_later": 1}, tmp_path) == Progress(step=3)
    with pytest.raises(ValueError, match="step=None"):
        Progress.from_json({}, tmp_path)
