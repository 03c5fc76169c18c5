"""Commands that write a folder accept a new or empty one; any other is left untouched unless `force` is given."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard import cli, load
from regard.atomic_files import new_folder
from regard.decoding.text_model import Model
from regard.interop.export import export
from regard.petit import corpus_files as files
from regard.petit.corpus_files import write_petit
from regard.training.run_folder import check_run_folder, lock_run_folder
from tests.support.recipes import small_recipe
from tests.support.text_models import TOKENIZER, random_model


@pytest.fixture(autouse=True)
def few_held_out_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "HELD_OUT", 3)


@cache
def model() -> Model:
    """Return a model that can be exported: its targets start with <pad>, whose row is zero."""
    made = random_model()
    made.network.float()
    with torch.no_grad():
        made.network.embedding.tokens.weight[TOKENIZER.pad] = 0
    return made


def petit_command(folder: Path, force: bool) -> None:
    words = ["data", "petit", "--pairs", "3", "--out", str(folder), *(["--force"] if force else [])]
    done = CliRunner().invoke(cli.app, words)
    if done.exception is not None:
        raise done.exception


WRITERS: dict[str, tuple[Callable[[Path, bool], object], str]] = {
    "write_petit": (lambda folder, force: write_petit(3, folder, force=force), "train.fr"),
    "regard data petit": (petit_command, "train.fr"),
    "Model.save": (lambda folder, force: model().save(folder, force=force), "config.json"),
    "export": (lambda folder, force: export(model(), folder, force=force), "config.json"),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.slow
def test_only_new_and_empty_folders_are_written(name: str, tmp_path: Path) -> None:
    write, file = WRITERS[name]
    write(tmp_path / "new" / "er", False)
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", False)
    assert contents(tmp_path / "empty") == contents(tmp_path / "new" / "er")
    assert file in contents(tmp_path / "empty")
    used = tmp_path / "used"
    (used / "mine").mkdir(parents=True)
    (used / "mine" / "notes.txt").write_text("precious")
    (used / file).write_text("old")
    before = contents(used)
    with pytest.raises(ValueError, match=r"used already exists and is not empty: .* force=True$"):
        write(used, False)
    assert contents(used) == before
    write(used, True)
    assert contents(used) == {"mine/notes.txt": b"precious"} | contents(tmp_path / "empty")
    (tmp_path / "file").write_text("precious")
    for force in (False, True):
        with pytest.raises(ValueError, match="file already exists and is not a folder"):
            write(tmp_path / "file", force)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "new", "used"], "something was left"


def test_force_replaces_every_file_of_the_previous_model(tmp_path: Path) -> None:
    """Files of the previous model that the new one does not have are removed: a mixture could not be loaded."""
    model().save(tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("precious")
    bare = random_model(layers=1)
    bare.network.float()
    bare.tokenizer = None
    bare.save(tmp_path / "model", force=True)
    names = ["config.json", "generation_config.json", "manifest.json", "model.safetensors", "notes.txt"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == names
    assert load(tmp_path / "model").config == bare.config
    export(model(), tmp_path / "model", force=True)
    assert not (tmp_path / "model" / "manifest.json").exists()


def test_an_obstructing_folder_is_reported_and_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    (tmp_path / "config.json").write_text("old")
    with pytest.raises(ValueError, match=r"model.safetensors is in the way"):
        model().save(tmp_path, force=True)
    assert contents(tmp_path) == {"config.json": b"old"}


def test_a_failure_leaves_the_old_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with suppress(RuntimeError), new_folder(tmp_path, force=True) as temporary:
        (temporary / "a").write_text("new")
        raise RuntimeError
    assert contents(tmp_path) == {"a": b"old"}


def test_training_accepts_an_empty_folder(tmp_path: Path) -> None:
    check_run_folder(small_recipe(), tmp_path, resume=False)
    with lock_run_folder(tmp_path):
        check_run_folder(small_recipe(), tmp_path, resume=False)
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(ValueError, match="already exists and does not hold a run"):
        check_run_folder(small_recipe(), tmp_path, resume=False)


def test_course_starter_code_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("my work")
    start = ["course", "start", "self-attention", "--out", str(path)]
    done = CliRunner().invoke(cli.app, start)
    assert "replace it with --force" in str(done.exception)
    assert path.read_text() == "my work"
    assert CliRunner().invoke(cli.app, [*start, "--force"]).exit_code == 0
    assert path.read_text() != "my work"
