"""Snapshots: copies of the weights taken during a run, from which `regard serve` shows how the attention of each head
emerges.

`checkpoints/snapshot-00000400/` is a model folder. Unlike checkpoints, snapshots hold no optimizer state, are rounded
to float16, and all of them are kept.
"""

from pathlib import Path

from regard.decoding.own_network import OwnNetwork
from regard.training.checkpoint_files import numbered_folders, remove_folder, step_of, write_snapshot
from regard.training.run import TrainingRun

SNAPSHOT_KINDS = ("snapshot", "best", "step")
"""Kinds of folders in `checkpoints/` that hold a model, in the order of preference if several have the same step."""


def snapshot_steps(steps: int, count: int) -> set[int]:
    """The steps of `count` snapshots, of which the first is 0 and the last is `steps`.

    Their distances grow linearly, because attention changes most at the beginning.

    >>> sorted(snapshot_steps(1000, 5))
    [0, 62, 250, 562, 1000]
    """
    if count < 2:
        return {steps} if count else set()
    return {round(steps * (i / (count - 1)) ** 2) for i in range(count)}


def take_snapshot(run: TrainingRun) -> None:
    """Write a snapshot if one is due. All ranks take part, because each may hold a share of the weights."""
    step, settings = run.progress.step, run.settings
    if not settings.snapshots or isinstance(run.network, OwnNetwork):
        return
    if step not in snapshot_steps(settings.steps, settings.snapshots):
        return
    run.meter.pause()
    weights = run.full_weights()
    with run.ranks.sharing_errors():
        if run.ranks.first:
            write_snapshot(run.out, step, run.model_with(weights))
    run.meter.resume()


def remove_snapshots_after(run: Path, step: int) -> None:
    """Remove the snapshots of later steps, which an interrupted process left, when a run is resumed at a step."""
    for folder in numbered_folders(run, "snapshot"):
        if step_of(folder) > step:
            remove_folder(folder)


def model_folders(run: Path) -> dict[int, Path]:
    """The folder of a model for each step of which the run has one, in the order of the steps."""
    folders = {step_of(folder): folder for kind in reversed(SNAPSHOT_KINDS) for folder in numbered_folders(run, kind)}
    return dict(sorted(folders.items()))
