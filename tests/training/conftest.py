"""A small run, and copies of it to damage and resume."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.petit import corpus_files
from regard.training import checkpoint_files, validation
from regard.training import train as train_module
from regard.training.train import train_recipe
from tests.support.interrupted_runs import recipe
from tests.support.recipes import COMMON_TOML, RECIPES_TOML


@pytest.fixture(scope="session")
def survival_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with some text and a recipe for each task."""
    folder = tmp_path_factory.mktemp("survival")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_files, "HELD_OUT", 8)
        corpus_files.write_petit(60, folder / "text", 0)
    for name, text in RECIPES_TOML.items():
        (folder / f"{name}.toml").write_text(text + COMMON_TOML)
    return folder


@pytest.fixture(scope="module")
def runs_folder(survival_folder: Path) -> Iterator[Path]:
    """Return the folder, while runs are short and share the prepared data.

    They keep one more checkpoint than usual, so that tests can remove the last and two are left.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(survival_folder / "cache"))
        patch.setattr(train_module, "score_best_model", lambda *_: [])  # final scores take longer than the runs
        patch.setattr(validation, "SAMPLE_COUNT", 0)
        patch.setattr(checkpoint_files, "CHECKPOINTS_KEPT", 3)
        yield survival_folder


@pytest.fixture(scope="module")
def finished_run(runs_folder: Path) -> Path:
    """Return an undisturbed run; the modules of a session share it."""
    if not (runs_folder / "whole").exists():
        train_recipe(recipe(runs_folder), runs_folder / "whole")
    return runs_folder / "whole"


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """Return a copy of it as it was at step 12: its newest checkpoints are those of steps 8 and 12."""
    shutil.copytree(finished_run, tmp_path / "run", ignore=shutil.ignore_patterns("*-00000014"))
    (tmp_path / "run" / "config.json").unlink()
    return tmp_path / "run"
