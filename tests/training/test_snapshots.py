"""Snapshots of a run: when they are taken, what they hold, and that training is the same with them."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from regard.decoding.text_model import Model
from regard.training.checkpoint_files import numbered_folders, step_of
from regard.training.snapshots import model_folders, snapshot_steps
from regard.training.train import train_recipe
from tests.support.interrupted_runs import recipe, stopped_at


@pytest.mark.parametrize(("steps", "count"), [(1, 2), (1, 60), (14, 4), (100, 24), (3500, 24), (5000, 60), (7, 8)])
def test_steps_start_at_zero_end_at_the_last_and_spread_out(steps: int, count: int) -> None:
    chosen = sorted(snapshot_steps(steps, count))
    assert chosen[0] == 0
    assert chosen[-1] == steps
    assert len(chosen) <= count
    gaps = [b - a for a, b in pairwise(chosen)]
    assert all(later >= earlier - 1 for earlier, later in pairwise(gaps))  # up to rounding


def test_no_snapshots_by_default_and_one_is_the_last_step() -> None:
    assert snapshot_steps(100, 0) == set()
    assert snapshot_steps(100, 1) == {100}


@pytest.mark.slow
def test_a_stopped_run_has_the_same_snapshots_and_weights(runs_folder: Path, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    settings = recipe(runs_folder, "train.snapshots=4")
    train_recipe(settings, whole)
    steps = [step_of(folder) for folder in numbered_folders(whole, "snapshot")]
    assert steps == [0, 2, 6, 14]
    with stopped_at({7}):
        train_recipe(settings, stopped)
    (stopped / "checkpoints" / "snapshot-00000009").mkdir()  # as if the process had come further
    train_recipe(settings, stopped, resume=True)
    for folder in numbered_folders(whole, "snapshot"):
        ours, theirs = (Model.from_folder(run / "checkpoints" / folder.name).network for run in (whole, stopped))
        for name, weight in ours.state_dict().items():
            assert torch.equal(weight, theirs.state_dict()[name])
    assert [step_of(folder) for folder in numbered_folders(stopped, "snapshot")] == steps
    last = Model.from_folder(whole / "checkpoints" / "step-00000014").network.state_dict()
    for name, weight in Model.from_folder(model_folders(whole)[14]).network.state_dict().items():
        torch.testing.assert_close(weight, last[name], rtol=1e-3, atol=1e-6)  # float16
