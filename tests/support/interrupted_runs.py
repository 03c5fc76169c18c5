"""Runs that are stopped, damaged and resumed: what they must have in common with an undisturbed one.

The fixtures that go with it (`runs_folder`, `finished_run`, `run`) are in tests/training/conftest.py.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from regard.atomic_files import file_digest
from regard.training import train as train_module
from regard.training.events import Event, Noted, Stepped, Validated
from regard.training.metrics_log import read_metrics
from regard.training.recipe import Recipe
from regard.training.recipe_files import read_recipe
from regard.training.schedule import learning_rate
from regard.training.train import train_recipe


def recipe(runs_folder: Path, *changes: str, task: str = "translation") -> Recipe:
    """Return the recipe of a task with these changes."""
    return read_recipe(str(runs_folder / f"{task}.toml"), [f"data.folder={runs_folder / 'text'}", *changes])


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
    """Return the logged losses of a run."""
    events = (event for event in read_metrics(run) if isinstance(event, Stepped | Validated))
    return [(type(event).__name__, event.step, event.loss) for event in events]


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
        "folders": sorted(folder.name for folder in (run / "checkpoints").iterdir()),
    }


def notes(runs_folder: Path, run: Path, *changes: str) -> list[str]:
    """Resume the run and return its notes."""
    events: list[Event] = []
    train_recipe(recipe(runs_folder, *changes), run, resume=True, watchers=[events.append])
    texts = [event.text for event in events if isinstance(event, Noted)]
    return [text for text in texts if not text.startswith("scoring the best model")]


def flip(folder: Path) -> None:
    """Change one bit of a checkpoint."""
    content = bytearray((folder / "training.safetensors").read_bytes())
    content[-5] ^= 4
    (folder / "training.safetensors").write_bytes(content)


def cut(folder: Path) -> None:
    """Remove the last byte of a model."""
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
