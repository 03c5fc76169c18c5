"""What a run leaves on disk to go on from, whatever happens to the machine.

`checkpoints/step-00012000/` is a model's folder, as any, with two files more: `training.safetensors` (moments of the
optimizer, weights kept for averaging) and `training.json` (how far it is). `checkpoints/best-00011000/` is the model
that did best in validation. Each is written beside its place, flushed to disk, listed in a manifest with its digests,
and then renamed; only then is an older one removed. Two checkpoints are kept, and with them the best models they know.
When the run ends, the best model's files are brought up into the run's own folder. One process at a time writes there.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.atomic_files import flush, new_folder, writing
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.storage.model_folder import MANIFEST, RECIPE, as_json, check_manifest, write_json, write_manifest
from regard.storage.weights import write_weights
from regard.training.metrics_log import METRICS, SAMPLES
from regard.untrusted_files import read_json

KEPT = 2
TENSORS, PROGRESS = "training.safetensors", "training.json"
LOCK, COMING = ".lock", ".coming."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""errors that mean that there is too little room"""


@dataclass(frozen=True)
class Checkpoint:
    """A state to go on from."""

    folder: Path
    progress: dict[str, Any]
    model: Model
    tensors: dict[str, Tensor]


def save_checkpoint(run: Path, step: int, model: Model, tensors: dict[str, Tensor], progress: dict[str, Any]) -> Path:
    """Write a checkpoint and remove those that it makes superfluous; if the disk is full, those before it stay."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    needed = _size(model.network.state_dict()) + _size(tensors)

    def write(temporary: Path) -> None:
        model.write_files(temporary)
        write_weights(temporary / TENSORS, tensors)
        write_json(temporary / PROGRESS, progress)

    _write(folder, write, needed)
    _prune(run, step)
    return folder


def save_best(run: Path, step: int, model: Model) -> Path:
    """Write a model that did best in validation."""
    folder = best_model(run, step)
    _write(folder, model.write_files, _size(model.network.state_dict()))
    for other in _unknown_bests(run, _numbered(run, "step")):
        if other != folder:
            _remove(other)
    return folder


def best_model(run: Path, step: int) -> Path:
    """The folder of the model that did best at this step."""
    return run / "checkpoints" / f"best-{step:08d}"


def newest_checkpoint(run: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with each that was passed over.

    None if there is no checkpoint; if there are some and none is whole, a ValueError: work must not be lost unnoticed.
    """
    damaged: list[str] = []
    for folder in reversed(_numbered(run, "step")):
        try:
            check_whole(folder)
            progress = read_json(folder / PROGRESS)
            return Checkpoint(folder, progress, Model.from_folder(folder), load_file(folder / TENSORS)), damaged
        except (ValueError, OSError, SafetensorError) as error:
            damaged.append(f"{folder.name} cannot be gone on from: {error}")
    if damaged:
        raise RegardError(
            f"{run} has checkpoints, and none of them is whole: {'; '.join(damaged)}. "
            f"Bring one back from a copy; or, to begin anew, remove {run / 'checkpoints'}, or name another --out"
        )
    return None, damaged


def check_whole(folder: Path) -> None:
    """A ValueError that names what is damaged in a folder. Every byte counts, those of the manifest too."""
    check_manifest(folder)
    manifest = folder / MANIFEST
    if manifest.read_bytes() != as_json(read_json(manifest)).encode():
        raise RegardError(f"{manifest} is damaged: it is not as it was written")


def set_aside(run: Path, step: int) -> None:
    """Give checkpoints behind this step, which were found damaged, a name by which none of them is counted again."""
    for folder in _numbered(run, "step"):
        if _number(folder) > step:
            aside = folder.with_name(f"damaged-{_number(folder):08d}")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)


def sweep(run: Path) -> None:
    """Remove what a process that was killed while writing has left."""
    for left in (run / "checkpoints").glob(".*-*"):
        shutil.rmtree(left, ignore_errors=True)
    for pattern in (f"{COMING}*", *(f".{name}.*" for name in (RECIPE, METRICS, SAMPLES))):
        for file in run.glob(pattern):
            file.unlink(missing_ok=True)


def publish(run: Path, best: Path) -> None:
    """Bring the best model's files into the run's folder. Where there is a `config.json`, all the others are whole."""
    check_whole(best)
    withdraw(run)
    for name in sorted((file.name for file in best.iterdir()), key=lambda name: (name == "config.json", name)):
        coming = run / f"{COMING}{name}"
        with writing(run / name):
            shutil.copyfile(best / name, coming)
            flush(coming)
            if name == "config.json":
                flush(run)
            coming.replace(run / name)
    flush(run)


def withdraw(run: Path) -> None:
    """From here on the run's folder has no model of its own: `load` takes the newest best one."""
    (run / "config.json").unlink(missing_ok=True)
    flush(run)


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Within, no other process can train into this folder; the system lets go of it however this process ends."""
    if run.exists() and not run.is_dir():
        raise RegardError(f"{run} is there already, and is no folder: name another by --out")
    new = not run.exists()
    run.mkdir(parents=True, exist_ok=True)
    try:
        with (run / LOCK).open("a+") as file:
            _lock(file, run)
            yield
    finally:
        if new and [each.name for each in run.glob("*")] == [LOCK]:  # it did not come to a run
            (run / LOCK).unlink()
            run.rmdir()


def _lock(file: IO[str], run: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        told = file.read(20).strip()
        raise RegardError(
            f"{run} is in use: another process{f' ({told})' * bool(told)} trains into it. "
            "Wait for it, end it, or name another folder by --out"
        ) from None
    except OSError:  # a file system without locks
        return
    with writing(run / LOCK):
        file.truncate(0)
        os.write(file.fileno(), f"{os.getpid()}\n".encode())  # not through a buffer, whose rest would fail at close


def _size(tensors: Mapping[str, Tensor]) -> int:
    """Their bytes."""
    return sum(x.numel() * x.element_size() for x in tensors.values())


def _write(folder: Path, write: Callable[[Path], None], needed: int) -> None:
    try:
        if not folder.parent.is_dir():
            folder.parent.mkdir()  # and no more: a run's folder that was removed does not come back as a part of itself
            flush(folder.parent.parent)
        if folder.exists():  # left by a process that went further
            _remove(folder)
        if shutil.disk_usage(folder.parent).free < needed:
            raise OSError(errno.ENOSPC, "too little room")
        with new_folder(folder) as temporary:
            write(temporary)
            write_manifest(temporary)
    except (OSError, SafetensorError) as error:
        raise RegardError(f"{folder} could not be saved: {_why(error, folder, needed)}") from error


def _why(error: OSError | SafetensorError, folder: Path, needed: int) -> str:
    if not folder.parent.parent.is_dir():
        return "the run's folder is gone. It was removed or renamed while the run went on"
    free = shutil.disk_usage(folder.parent.parent).free
    code = getattr(error, "errno", None) or int((re.findall(r"os error (\d+)", str(error)) or [0])[0])
    what = f"about {needed:,} bytes are needed, and {free:,} are free" if code in FULL else str(error)
    return f"{what}. What was saved before is as it was; mend that, and go on with --resume"


def _numbered(run: Path, kind: str) -> list[Path]:
    """The folders `step-N` or `best-N`, by N; other names, as of copies that someone made, are not ours."""
    found = [each for each in (run / "checkpoints").glob(f"{kind}-*") if re.fullmatch(rf"{kind}-\d{{8,}}", each.name)]
    return sorted(found, key=_number)


def _number(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _prune(run: Path, step: int) -> None:
    """Keep the newest checkpoints up to this step, and the best models that they know of."""
    steps = _numbered(run, "step")
    kept = [folder for folder in steps if _number(folder) <= step][-KEPT:]
    for folder in [*(each for each in steps if each not in kept), *_unknown_bests(run, kept)]:
        _remove(folder)


def _unknown_bests(run: Path, checkpoints: Sequence[Path]) -> list[Path]:
    """The best models that none of these checkpoints knows of."""
    known = []
    for folder in checkpoints:
        with suppress(ValueError, OSError):  # if it is damaged, that is said when it is needed
            known.append(read_json(folder / PROGRESS).get("best_step"))
    return [folder for folder in _numbered(run, "best") if _number(folder) not in known]


def _remove(folder: Path) -> None:
    """At once under a name that `sweep` knows, so that nobody meets a half of it; then file by file."""
    gone = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
