"""When students may see an assignment's solution.

A teacher sets the date in the assignment's `assignment.toml` (`release = 2026-12-01T18:00:00`), or for several
assignments in `course.toml` next to their folders, which takes precedence:

    [release]
    self-attention = 2026-12-01
    kv-cache = 2026-12-15T18:00:00+01:00

A date without a time is the beginning of that day; without a time zone, it is in the local one.
"""

from datetime import date, datetime
from pathlib import Path

from regard.config import check_keys, check_type
from regard.course.assignment import Assignment, load_assignments
from regard.course.assignment_files import read_toml
from regard.errors import RegardError

COURSE_FILE = "course.toml"


def release_time(assignment: Assignment) -> datetime | None:
    """When the solution is released; None if there is no date, so that it always is."""
    path = assignment.folder.parent / COURSE_FILE
    released = assignment.release
    if path.is_file():
        dates = _read_dates(path)
        released = dates.get(assignment.name, released)
    if released is None:
        return None
    if not isinstance(released, datetime):
        released = datetime(released.year, released.month, released.day)
    return released.astimezone()  # adds the local time zone if there is none


def released_solution(assignment: Assignment, now: datetime | None = None) -> str:
    """The source of the reference; a RegardError before the date of its release."""
    released, now = release_time(assignment), now or datetime.now().astimezone()
    if released is not None and now < released:
        raise RegardError(
            f"the solution of {assignment.name} is released on {released:%Y-%m-%d at %H:%M %Z}: until then, "
            "`regard check --hint 1` shows where to look"
        )
    return assignment.reference


def _read_dates(path: Path) -> dict[str, date]:
    settings = read_toml(path)
    check_keys(str(path), settings, ("release",))
    dates = settings.get("release", {})
    if not isinstance(dates, dict):
        raise RegardError(f"{path}: release must be a table: [release] and then one line for each assignment")
    check_keys(f"{path}: [release]", dates, [assignment.name for assignment in load_assignments(path.parent)])
    for name, value in dates.items():
        check_type(f"{path}: release.{name}", value, date)
    return dates
