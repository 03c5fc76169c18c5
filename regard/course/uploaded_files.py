"""The files of a class, from a folder or a downloaded zip file. Zip files that students handed in are unpacked too.

Nothing in an archive is trusted: no file is written outside the scratch folder, links are not followed, and limits on
the number and size of files hold for what is unpacked, not for what the archive claims.
"""

import os
import re
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath

from regard.course.solution_file import MAX_NOTEBOOK_BYTES
from regard.errors import RegardError
from regard.formatting import visible

SUFFIXES = (".py", ".ipynb")
"""Endings of the names of solutions."""
ARCHIVE_SUFFIX = ".zip"
METADATA_NAME = "submission_metadata.yml"
"""The file that Gradescope adds to an export: who submitted which folder."""
IGNORED = re.compile(r"^[._]|\.ipynb_checkpoints|__pycache__|__MACOSX")
"""Files and folders that are not solutions."""
OTHER_KIND = "no .py or .ipynb file was handed in"
"""The problem of a student who handed in files of another kind."""
MAX_ARCHIVE_FILES = 20_000
MAX_ARCHIVE_BYTES = 2_000_000_000
"""Maximum number of bytes that are unpacked for a class."""
MAX_UPLOAD_FILES = 200
MAX_UPLOAD_BYTES = 200_000_000
"""Maximum number of bytes that are unpacked from one student's zip file."""
MAX_NAME_BYTES = 200
"""Maximum length of one part of a path, below the 255 bytes of most file systems."""
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class UploadedFile:
    """A file of the class."""

    name: PurePosixPath
    """Its path within the folder or the download. A student's zip file counts as a folder."""
    path: Path
    """Where its content is."""
    problem: str = ""
    """Why it cannot be checked: it is of another kind, or a zip file that could not be unpacked."""

    @property
    def is_other(self) -> bool:
        """Whether it is neither a solution nor a zip file. Its content was not read."""
        return self.problem == OTHER_KIND


@dataclass
class _Budget:
    """What may still be unpacked."""

    files: int
    total_bytes: int


def read_upload(path: Path, scratch: Path) -> list[UploadedFile]:
    """The files of a folder or zip file, in the order of their names. Only solutions and zip files are read.

    Zip files are unpacked into `scratch`. A RegardError if `path` is not a readable zip file or a folder.
    """
    if path.is_dir():
        found = [UploadedFile(PurePosixPath(file.relative_to(path).as_posix()), file) for file in _walk(path)]
    else:
        found = list(_unpack(path, scratch / "class", _Budget(MAX_ARCHIVE_FILES, MAX_ARCHIVE_BYTES), f"{path}: "))
    files = []
    for index, file in enumerate(sorted(found, key=lambda file: file.name)):
        if any(IGNORED.search(part) for part in file.name.parts):
            continue
        if _is_archive(file.name):
            files += _unpack_upload(file, scratch / f"upload-{index}")
        elif file.name.suffix.lower() in SUFFIXES or file.name.name == METADATA_NAME:
            files.append(file)
        else:
            files.append(replace(file, problem=OTHER_KIND))
    return files


def _unpack_upload(upload: UploadedFile, scratch: Path) -> list[UploadedFile]:
    """The solutions in a student's zip file, or the reason why there are none."""
    name = upload.name
    try:
        members = list(_unpack(upload.path, scratch, _Budget(MAX_UPLOAD_FILES, MAX_UPLOAD_BYTES), f"{name.name}: "))
    except (RegardError, OSError) as error:  # a name can be both a file and a folder
        return [replace(upload, problem=str(error))]
    kept = [member for member in members if not any(IGNORED.search(part) for part in member.name.parts)]
    files = [member for member in kept if member.name.suffix.lower() in SUFFIXES]
    if files:
        return [UploadedFile(name / member.name, member.path) for member in files]
    if archives := [member.name for member in kept if _is_archive(member.name)]:
        return [
            replace(upload, problem=f"{name.name} contains another zip file, {archives[0]}: hand in the file itself")
        ]
    return [replace(upload, problem=f"{name.name} contains no .py or .ipynb file")]


def _walk(folder: Path) -> Iterator[Path]:
    """The regular files of a folder. Links are left out: a student's link could name any file of the teacher's."""
    for root, _, names in os.walk(folder):
        for name in names:
            file = Path(root, name)
            if file.is_file() and not file.is_symlink():
                yield file


def _unpack(path: Path, target: Path, budget: _Budget, where: str) -> Iterator[UploadedFile]:
    """The files of a zip file, of which solutions and zip files are unpacked.

    A RegardError, which starts with `where`, if the zip file is bad.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if not members:
                raise RegardError(f"{where}the zip file is empty")
            budget.files -= len(members)
            if budget.files < 0:
                raise RegardError(f"{where}the zip file has {len(members):,} files, which is too many")
            for member in members:
                name = _safe_name(member, where)
                is_wanted = name.suffix.lower() in (*SUFFIXES, ARCHIVE_SUFFIX) or name.name == METADATA_NAME
                if stat.S_ISLNK(member.external_attr >> 16):
                    continue
                if is_wanted:
                    _write_member(archive, member, target / name, budget, f"{where}{name}")
                yield UploadedFile(name, target / name)
    except RegardError:
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError) as error:
        raise RegardError(f"{where}not a readable zip file ({error}): download it again") from None
    except RuntimeError:  # zipfile has no class of its own for this
        raise RegardError(f"{where}the zip file is encrypted: remove the password") from None


def _safe_name(member: zipfile.ZipInfo, where: str) -> PurePosixPath:
    """The path of an archive's member; a RegardError if it leads out of the archive's folder."""
    text = member.filename
    if not member.flag_bits & 0x800:  # not marked as UTF-8, but it may be, as from macOS; zipfile assumed code page 437
        with suppress(UnicodeError):
            text = text.encode("cp437").decode("utf-8")
    name = PurePosixPath(text.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or re.match(r"[A-Za-z]:", text):
        raise RegardError(f"{where}the zip file contains the unsafe path {visible(text)!r} and was not unpacked")
    return PurePosixPath(*(_shorten(visible(part)) for part in name.parts))


def _shorten(part: str) -> str:
    """A part of a path that file systems accept. The ending is kept."""
    if len(part.encode(errors="replace")) <= MAX_NAME_BYTES:
        return part
    suffix = PurePosixPath(part).suffix[:16]
    return part.encode(errors="replace")[: MAX_NAME_BYTES - 64].decode(errors="ignore") + suffix


def _write_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, budget: _Budget, where: str) -> None:
    """Write one file of an archive, as far as the limits allow, with its time of modification."""
    target.parent.mkdir(parents=True, exist_ok=True)
    size, limit = 0, min(budget.total_bytes, MAX_ARCHIVE_BYTES if _is_archive(target) else MAX_NOTEBOOK_BYTES)
    with archive.open(member) as source, target.open("wb") as file:
        while chunk := source.read(CHUNK_BYTES):
            size += len(chunk)
            if size > limit:
                raise RegardError(f"{where}: more than {limit:,} bytes when unpacked, which is too large")
            file.write(chunk)
    budget.total_bytes -= size
    with suppress(OverflowError, ValueError, OSError):  # an archive can have any date, even the 0th of month 0
        modified = time.mktime((*member.date_time, 0, 0, -1))
        os.utime(target, (modified, modified))


def _is_archive(path: PurePath) -> bool:
    return path.suffix.lower() == ARCHIVE_SUFFIX
