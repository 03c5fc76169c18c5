"""Which runs can be resumed, and which model of a run is loaded, whenever it is loaded."""

import os
import shutil
from pathlib import Path

import pytest

import regard
from regard.data import epoch_examples
from regard.decoding.text_model import Model
from regard.training.checkpoint_files import publish_model
from regard.training.events import Event, Validated
from regard.training.run_folder import lock_run_folder
from regard.training.train import train_recipe
from regard.untrusted_files import read_json
from tests.support.interrupted_runs import cut, notes, recipe, state, stopped_at

pytestmark = pytest.mark.slow


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


def test_a_run_resumes_within_a_shard_of_an_epoch(
    runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several shards, as a large corpus has; a checkpoint of a run with one shard cannot be resumed."""
    monkeypatch.setattr(epoch_examples, "MAX_SHARD_EXAMPLES", 20)
    monkeypatch.setattr(epoch_examples, "BLOCK_EXAMPLES", 4)
    train_recipe(recipe(runs_folder), tmp_path / "at once")
    positions = set()
    for steps in (5, 10, 14):
        train_recipe(recipe(runs_folder, f"train.steps={steps}"), tmp_path / "run", resume=steps > 5)
        progress = read_json(max((tmp_path / "run" / "checkpoints").glob("step-*")) / "training.json")
        positions.add((progress["epoch"], progress["shard"]))
    assert progress["shards"] == 3
    assert len({shard for _, shard in positions}) > 1
    assert state(tmp_path / "run")["last"][:2] == state(tmp_path / "at once")["last"][:2]
    monkeypatch.setattr(epoch_examples, "MAX_SHARD_EXAMPLES", 1_000)
    with pytest.raises(ValueError, match=r"divided an epoch into 3 part\(s\), and not into 1"):
        train_recipe(recipe(runs_folder, "train.steps=20"), tmp_path / "run", resume=True)


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
