"""Files that are there whole or not at all, and digests that tell whether they are what they were."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to write into, which becomes `path` when all went well and vanishes otherwise.

    Its files are flushed to disk before the rename and the parent after it, so that a crash leaves either nothing
    or everything. If `path` has come to be meanwhile, it stays, and what was written is dropped.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        temporary.chmod(0o755)  # mkdtemp makes it private
        yield temporary
        for file in sorted(temporary.rglob("*")):
            flush(file)
        flush(temporary)
        try:
            temporary.rename(path)
        except OSError:
            if not path.is_dir():
                raise
        flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def flush(path: Path) -> None:
    """Have the system write a file or a folder's list of names to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """SHA-256 of a file's content, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
