"""Packages that grade an assignment elsewhere: a zip file for Gradescope, and a folder for Docker.

Both contain the checker's own code, so that they grade as this version does, and one assignment. The templates are in
`package_files`.
"""

import io
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from regard.course.assignment import Assignment
from regard.course.hidden_probes import HIDDEN_FILE
from regard.errors import RegardError

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of Regard."""
TEMPLATES = Path(__file__).with_name("package_files")
CHECKER_DATA = (".toml", ".html")
"""Endings of files in `regard/course` that the checker reads, besides Python."""
EXECUTABLE = 0o755
FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of all files in a zip file, so that the same assignment gives the same file."""


def gradescope_package(assignment: Assignment, hint: int = 0) -> bytes:
    """The zip file for Gradescope's autograder. It shows students hints up to this level."""
    files = dict(_checker_files(assignment))
    files["requirements.txt"] = "\n".join(_requirements()).encode() + b"\n"
    for name in ("setup.sh", "run_autograder"):
        files[name] = _fill_in(name, assignment, hint)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, FIXED_DATE)
            info.external_attr = (EXECUTABLE if name in ("setup.sh", "run_autograder") else 0o644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return content.getvalue()


def write_docker_folder(assignment: Assignment, folder: Path) -> None:
    """Write a Dockerfile and what it needs to an existing, empty folder."""
    files = dict(_checker_files(assignment))
    files["requirements.txt"] = "\n".join(_requirements()).encode() + b"\n"
    files["Dockerfile"] = _fill_in("Dockerfile", assignment)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _checker_files(assignment: Assignment) -> Iterator[tuple[str, bytes]]:
    """Regard without its models, page and labs' results, and a course with one assignment."""
    bundled = PACKAGE / "course" / "assignments"
    for path in sorted(PACKAGE.rglob("*")):
        is_data = path.is_relative_to(PACKAGE / "course") and path.suffix in CHECKER_DATA
        if path.is_file() and (path.suffix == ".py" or is_data) and not path.is_relative_to(bundled):
            yield f"regard/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()
    course = assignment.folder.parent
    if (course / "mistakes.toml").is_file():
        yield "course/mistakes.toml", (course / "mistakes.toml").read_bytes()
    for path in sorted(assignment.folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"course/{assignment.name}/{path.relative_to(assignment.folder).as_posix()}", path.read_bytes()
    own_hidden = assignment.folder / HIDDEN_FILE
    added = [path for path in assignment.hidden if path != own_hidden]
    if added and own_hidden in assignment.hidden:
        raise RegardError(f"{own_hidden} already has hidden probes: add those of {added[0]} to it")
    for path in added:
        yield f"course/{assignment.name}/{HIDDEN_FILE}", path.read_bytes()


def _requirements() -> list[str]:
    """The packages that the checker needs, from the metadata of the installed Regard."""
    try:
        listed = requires("regard") or []
    except PackageNotFoundError:
        raise RegardError("Regard is not installed, so its requirements are not known: pip install it first") from None
    needed = [line.partition(";") for line in listed]
    return sorted(name.strip() for name, _, marker in needed if not marker or re.search(r"extra == .course.", marker))


def _fill_in(name: str, assignment: Assignment, hint: int = 0) -> bytes:
    """A template with its gaps filled in."""
    torch = next(line for line in _requirements() if re.match(r"torch\b", line))
    values = {"name": assignment.name, "hint": str(hint), "torch": torch}
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text).encode()
