"""What a run leaves on disk to go on from, whatever happens to the machine.

`checkpoints/step-00012000/` is a model's folder, as any, with two files more: `training.safetensors` (moments of the
optimizer, weights kept for averaging) and `training.json` (how far it is). `checkpoints/best-00011000/` is the model
that did best in validation. Each is written beside its place, flushed to disk, listed in a manifest with its digests,
and then renamed; only then is an older one removed. Two checkpoints are kept, and with them the best models they know.
When the run ends, the best model's files are brought up into the run's own folder.
"""

import errno
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from regard import store
from regard.files import flush, new_folder, read_json
from regard.store import MANIFEST, Stored, check_manifest, write_json, write_manifest
from regard.weights import write_weights

KEPT = 2
TENSORS, PROGRESS = "training.safetensors", "training.json"


@dataclass(frozen=True)
class Checkpoint:
    """A state to go on from."""

    folder: Path
    progress: dict[str, Any]
    model: Stored
    tensors: dict[str, Tensor]


def save_checkpoint(run: Path, step: int, model: Stored, tensors: dict[str, Tensor], progress: dict[str, Any]) -> Path:
    """Write a checkpoint and remove those that it makes superfluous; if the disk is full, those before it stay."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    needed = sum(x.numel() * x.element_size() for x in (*model.network.state_dict().values(), *tensors.values()))

    def write(temporary: Path) -> None:
        store.write(model, temporary)
        write_weights(temporary / TENSORS, tensors)
        write_json(temporary / PROGRESS, progress)

    _write(folder, write, needed)
    _prune(run)
    return folder


def save_best(run: Path, step: int, model: Stored) -> Path:
    """Write a model that did best in validation."""
    folder = run / "checkpoints" / f"best-{step:08d}"
    needed = sum(x.numel() * x.element_size() for x in model.network.state_dict().values())
    _write(folder, lambda temporary: store.write(model, temporary), needed)
    return folder


def newest_checkpoint(run: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with each that was passed over."""
    damaged: list[str] = []
    for folder in reversed(_steps(run)):
        try:
            check_manifest(folder)
            progress = read_json(folder / PROGRESS)
            return Checkpoint(folder, progress, store.load(folder), load_file(folder / TENSORS)), damaged
        except (ValueError, OSError) as error:
            damaged.append(str(error))
    return None, damaged


def best_model(run: Path) -> Path | None:
    """The folder of the newest best model."""
    found = sorted((run / "checkpoints").glob("best-*"))
    return found[-1] if found else None


def sweep(run: Path) -> None:
    """Remove what a process that was killed while writing has left."""
    for left in (run / "checkpoints").glob(".*-*"):
        shutil.rmtree(left, ignore_errors=True)


def publish(run: Path, best: Path) -> None:
    """Bring the best model's files into the run's folder: its manifest goes first, and comes last."""
    (run / MANIFEST).unlink(missing_ok=True)
    (run / "config.json").unlink(missing_ok=True)
    flush(run)
    names = sorted((file.name for file in best.iterdir()), key=lambda name: (name in ("config.json", MANIFEST), name))
    for name in names:
        beside = run / f".{name}"
        shutil.copyfile(best / name, beside)
        flush(beside)
        beside.replace(run / name)
    flush(run)


def _write(folder: Path, write: Any, needed: int) -> None:
    if folder.exists():  # left by a process that went further, or damaged
        shutil.rmtree(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.parent).free < needed:
            raise OSError(errno.ENOSPC, "too little room")
        with new_folder(folder) as temporary:
            write(temporary)
            write_manifest(temporary)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        free = shutil.disk_usage(folder.parent).free
        raise ValueError(
            f"{folder} could not be saved: about {needed:,} bytes are needed, and {free:,} are free. "
            f"What was saved before is as it was; make room, and go on with --resume"
        ) from error


def _steps(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step-*"))


def _prune(run: Path) -> None:
    """Keep the newest checkpoints and the best models that they know of."""
    steps = _steps(run)
    known = {read_json(folder / PROGRESS).get("best_step") for folder in steps[-KEPT:]}
    for folder in steps[:-KEPT]:
        shutil.rmtree(folder)
    for folder in (run / "checkpoints").glob("best-*"):
        if int(folder.name.removeprefix("best-")) not in known:
            shutil.rmtree(folder)
