"""The folder of a run: whether a run may be written into it, and the lock that keeps other processes out."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from regard.atomic_files import raising_write_errors
from regard.errors import RegardError
from regard.storage.model_folder import RECIPE_FILE
from regard.training.recipe import Recipe, check_unchanged
from regard.training.recipe_files import read_recipe

LOCK_FILE = ".lock"


def check_run_folder(recipe: Recipe, out: Path, resume: bool) -> None:
    """Raise a RegardError if a run would be overwritten, or resumed with a different recipe."""
    holds_run = (out / RECIPE_FILE).exists()
    if holds_run and not resume:
        raise RegardError(f"{out} already holds a run: continue it with --resume, or choose another folder with --out")
    if not holds_run and out.exists() and (not out.is_dir() or any(path.name[0] != "." for path in out.iterdir())):
        raise RegardError(f"{out} already exists and does not hold a run: choose another folder with --out")
    if holds_run and any((out / "checkpoints").glob("step-*")):
        check_unchanged(read_recipe(str(out / RECIPE_FILE)), recipe)


@contextmanager
def lock_run_folder(out: Path) -> Iterator[None]:
    """Keep other processes from training into this folder. The system releases the lock however this process ends."""
    if out.exists() and not out.is_dir():
        raise RegardError(f"{out} already exists and is not a folder: choose another with --out")
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with (out / LOCK_FILE).open("a+") as file:
            _lock(file, out)
            yield
    finally:
        if is_new and [path.name for path in out.glob("*")] == [LOCK_FILE]:  # the run never started
            (out / LOCK_FILE).unlink()
            out.rmdir()


def is_locked(out: Path) -> bool:
    """Whether a process is training into this folder. False where the system has no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        with (out / LOCK_FILE).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock file
        pass
    return False


def _lock(file: IO[str], out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process_id = file.read(20).strip()
        process = f"another process ({process_id})" if process_id else "another process"
        raise RegardError(
            f"{out} is in use: {process} is training into it. Wait for it, stop it, or choose another folder with --out"
        ) from None
    except OSError:  # a file system without locks
        return
    with raising_write_errors(out / LOCK_FILE):
        file.truncate(0)
        os.write(file.fileno(), f"{os.getpid()}\n".encode())  # unbuffered: a buffer's rest would fail at close
