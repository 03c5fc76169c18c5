"""Checkpoints on disk: a run can be resumed from them whatever happens to the machine.

`checkpoints/step-00012000/` is a model folder with two additional files: `training.safetensors` (the optimizer's
moments and the weights kept for averaging) and `training.json` (the counters). `checkpoints/best-00011000/` is the
model with the best validation, and `checkpoints/snapshot-00000400/` a copy of the weights that shows how they were
learned (`train.snapshots`). Each is written to a temporary folder, flushed to disk, listed in a manifest with its
digests, and then renamed; only then is an older one removed. Two checkpoints are kept, together with the best models
they refer to. When the run ends, the files of the best model are copied into the run's own folder.
"""

import errno
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.atomic_files import flush_to_disk, new_folder, raising_write_errors
from regard.decoding.text_model import Model
from regard.errors import DISK_FULL_ERRNOS, RegardError, error_number
from regard.storage.model_folder import MANIFEST_FILE, RECIPE_FILE, as_json, check_manifest, write_json, write_manifest
from regard.storage.own_module_folder import is_own_module_folder, read_own_module_folder
from regard.storage.weights import write_weights
from regard.training.metrics_log import METRICS_FILE, SAMPLES_FILE
from regard.untrusted_files import read_json

CHECKPOINTS_KEPT = 2
"""Number of checkpoints kept in a run's folder."""
TRAINING_TENSORS, TRAINING_JSON = "training.safetensors", "training.json"
TEMPORARY_PREFIX = ".coming."
"""Prefix of files that are being copied into a run's folder."""


@dataclass(frozen=True)
class Checkpoint:
    """A saved state that a run can be resumed from."""

    folder: Path
    progress: dict[str, Any]
    model: Model
    tensors: dict[str, Tensor]


def write_checkpoint(run: Path, step: int, model: Model, tensors: dict[str, Tensor], progress: dict[str, Any]) -> Path:
    """Write a checkpoint, then remove those it makes superfluous; if the disk is full, earlier ones stay."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    needed = _size(model.network.state_dict()) + _size(tensors)

    def write(temporary: Path) -> None:
        model.write_files(temporary)
        write_weights(temporary / TRAINING_TENSORS, tensors)
        write_json(temporary / TRAINING_JSON, progress)

    _write(folder, write, needed)
    _prune(run, step)
    return folder


def write_best_model(run: Path, step: int, model: Model) -> Path:
    """Write the model with the best validation so far."""
    folder = best_model_folder(run, step)
    _write(folder, model.write_files, _size(model.network.state_dict()))
    for other in _unreferenced_bests(run, numbered_folders(run, "step")):
        if other != folder:
            remove_folder(other)
    return folder


def write_snapshot(run: Path, step: int, model: Model) -> None:
    """Write a copy of the weights, rounded to float16, that is kept until the run's folder is removed."""
    folder = run / "checkpoints" / f"snapshot-{step:08d}"
    _write(folder, lambda temporary: model.write_files(temporary, "float16"), _size(model.network.state_dict()) // 2)


def best_model_folder(run: Path, step: int) -> Path:
    """The folder of the best model, validated at this step."""
    return run / "checkpoints" / f"best-{step:08d}"


def newest_checkpoint(run: Path, module: nn.Module | None = None) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, and what is wrong with each newer one.

    None if there is no checkpoint. Raises a RegardError if there are some and all are damaged, so that work is never
    lost silently. `module` is given if the run trains a user's module: it must be the one that was saved.
    """
    damaged: list[str] = []
    for folder in reversed(numbered_folders(run, "step")):
        try:
            check_intact(folder)
            progress = read_json(folder / TRAINING_JSON)
        except (ValueError, OSError) as error:
            damaged.append(f"{folder.name} cannot be resumed: {error}")
            continue
        _check_same_module(folder, module)
        try:
            model = Model.from_folder(folder, module)
            return Checkpoint(folder, progress, model, load_file(folder / TRAINING_TENSORS)), damaged
        except (ValueError, OSError, SafetensorError) as error:
            damaged.append(f"{folder.name} cannot be resumed: {error}")
    if damaged:
        raise RegardError(
            f"all checkpoints in {run} are damaged: {'; '.join(damaged)}. "
            f"Restore one from a backup; or, to start again, remove {run / 'checkpoints'} or choose another --out"
        )
    return None, damaged


def _check_same_module(folder: Path, module: nn.Module | None) -> None:
    """Raise a RegardError unless the checkpoint holds what the run trains: a user's module, or Regard's network."""
    if module is not None:
        read_own_module_folder(folder, module.state_dict())
    elif is_own_module_folder(folder):
        raise RegardError(f"{folder.parent.parent} trained a module of your own: resume it with the same module")


def check_intact(folder: Path) -> None:
    """Raise a RegardError that names the damaged file of a folder, if any. The manifest is checked too."""
    check_manifest(folder)
    manifest = folder / MANIFEST_FILE
    if manifest.read_bytes() != as_json(read_json(manifest)).encode():
        raise RegardError(f"{manifest} is damaged: its content has changed since it was written")


def rename_damaged(run: Path, step: int) -> None:
    """Rename the checkpoints after this step, which are damaged, so that they are not considered again."""
    for folder in numbered_folders(run, "step"):
        if step_of(folder) > step:
            damaged = folder.with_name(f"damaged-{step_of(folder):08d}")
            shutil.rmtree(damaged, ignore_errors=True)
            folder.rename(damaged)


def remove_leftovers(run: Path) -> None:
    """Remove temporary files left by a process that was killed while writing."""
    for folder in (run / "checkpoints").glob(".*-*"):
        shutil.rmtree(folder, ignore_errors=True)
    for pattern in (f"{TEMPORARY_PREFIX}*", *(f".{name}.*" for name in (RECIPE_FILE, METRICS_FILE, SAMPLES_FILE))):
        for file in run.glob(pattern):
            file.unlink(missing_ok=True)


def publish_model(run: Path, best: Path) -> None:
    """Copy the best model's files into the run's folder; `config.json` last, so that it exists only with all others."""
    check_intact(best)
    withdraw_model(run)
    names = (file.relative_to(best).as_posix() for file in best.rglob("*") if file.is_file())
    for name in sorted(names, key=lambda name: (name == "config.json", name)):
        temporary = run / f"{TEMPORARY_PREFIX}{name.replace('/', '-')}"
        with raising_write_errors(run / name):
            (run / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(best / name, temporary)
            flush_to_disk(temporary)
            if name == "config.json":
                flush_to_disk(run)
            temporary.replace(run / name)
    flush_to_disk(run)


def withdraw_model(run: Path) -> None:
    """Remove the published model's `config.json`: `load` then uses the newest best model in `checkpoints/`."""
    (run / "config.json").unlink(missing_ok=True)
    flush_to_disk(run)


def _size(tensors: Mapping[str, Tensor]) -> int:
    """Size of all tensors in bytes."""
    return sum(x.numel() * x.element_size() for x in tensors.values())


def _write(folder: Path, write: Callable[[Path], None], needed: int) -> None:
    try:
        if not folder.parent.is_dir():
            folder.parent.mkdir()  # without parents: a run's folder that the user removed must not come back
            flush_to_disk(folder.parent.parent)
        if folder.exists():  # left by an earlier process that came further
            remove_folder(folder)
        if shutil.disk_usage(folder.parent).free < needed:
            raise OSError(errno.ENOSPC, "the disk is full")
        with new_folder(folder) as temporary:
            write(temporary)
            write_manifest(temporary)
    except (OSError, SafetensorError) as error:
        raise RegardError(f"{folder} could not be saved: {_explain(error, folder, needed)}") from error


def _explain(error: OSError | SafetensorError, folder: Path, needed: int) -> str:
    if not folder.parent.parent.is_dir():
        return "the run's folder no longer exists. It was removed or renamed during the run"
    free = shutil.disk_usage(folder.parent.parent).free
    is_full = error_number(error) in DISK_FULL_ERRNOS
    reason = f"about {needed:,} bytes are needed and {free:,} are free" if is_full else str(error)
    return f"{reason}. What was saved before is unchanged; fix this, then continue with --resume"


def numbered_folders(run: Path, kind: str) -> list[Path]:
    """The folders `step-N`, `best-N` or `snapshot-N`, sorted by N. Other names are ignored."""
    folders = (run / "checkpoints").glob(f"{kind}-*")
    return sorted((path for path in folders if re.fullmatch(rf"{kind}-\d{{8,}}", path.name)), key=step_of)


def step_of(folder: Path) -> int:
    """The step in the name of a folder."""
    return int(folder.name.rpartition("-")[2])


def _prune(run: Path, step: int) -> None:
    """Keep the newest checkpoints up to this step, and the best models they refer to."""
    steps = numbered_folders(run, "step")
    kept = [folder for folder in steps if step_of(folder) <= step][-CHECKPOINTS_KEPT:]
    for folder in [*(path for path in steps if path not in kept), *_unreferenced_bests(run, kept)]:
        remove_folder(folder)


def _unreferenced_bests(run: Path, checkpoints: Sequence[Path]) -> list[Path]:
    """The best models that none of these checkpoints refers to."""
    referenced = []
    for folder in checkpoints:
        with suppress(ValueError, OSError):  # a damaged checkpoint is reported when it is needed
            referenced.append(read_json(folder / TRAINING_JSON).get("best_step"))
    return [folder for folder in numbered_folders(run, "best") if step_of(folder) not in referenced]


def remove_folder(folder: Path) -> None:
    """Delete a folder, renamed first to what `remove_leftovers` recognizes, so that it is never seen half deleted."""
    hidden = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(hidden, ignore_errors=True)
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
