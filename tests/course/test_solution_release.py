"""The release of solutions after a date that the teacher sets."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.course.assignment import Assignment, read_assignment
from regard.course.solution_file import read_solution
from regard.course.solution_release import release_time, released_solution
from tests.support.example_course import write_example_course

EASTERN = timezone(timedelta(hours=-5))


@pytest.fixture
def course(tmp_path: Path) -> Path:
    return write_example_course(tmp_path)


def with_release(course: Path, text: str) -> Assignment:
    path = course / "average" / "assignment.toml"
    path.write_text(f"release = {text}\n{path.read_text()}")
    return read_assignment(course / "average")


def test_a_solution_is_released_at_its_date(course: Path) -> None:
    assert release_time(read_assignment(course / "average")) is None
    of = with_release(course, "2026-12-01T18:00:00+01:00")
    before, after = (datetime(2026, 12, 1, 12, minute, tzinfo=EASTERN) for minute in (0, 1))
    assert released_solution(of, before) == of.reference
    with pytest.raises(ValueError, match="the solution of average is released on 2026-12-01 at"):
        released_solution(of, before - timedelta(seconds=1))
    (course / "course.toml").write_text("[release]\naverage = 2026-12-02\n")
    with pytest.raises(ValueError, match="released on 2026-12-02 at 00:00"):
        released_solution(of, after)
    midnight = datetime(2026, 12, 2).astimezone()
    assert released_solution(of, midnight) == of.reference


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[release]\nmean = 2026-12-02\n", "has no key 'mean'"),
        ("[release]\naverage = 'tomorrow'\n", r"release\.average='tomorrow' has type str: expected date"),
        ("release = 3\n", "release must be a table"),
        ("[releases]\n", "has no key 'releases': did you mean 'release'"),
        ("[release\n", "is not valid TOML"),
    ],
)
def test_slips_in_the_dates_are_reported(text: str, message: str, course: Path) -> None:
    (course / "course.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        release_time(read_assignment(course / "average"))


def test_the_command_prints_or_writes_the_solution(course: Path) -> None:
    arguments = ["course", "solution", "average", "--course", str(course)]
    of = read_assignment(course / "average")
    assert CliRunner().invoke(app, arguments).stdout == of.reference
    notebook = course / "solution.ipynb"
    assert CliRunner().invoke(app, [*arguments, "--out", str(notebook)]).exit_code == 0
    assert "running_mean" in read_solution(notebook).names
    assert "already exists" in str(CliRunner().invoke(app, [*arguments, "--out", str(notebook)]).exception)
    with_release(course, "2999-01-01")
    refused = CliRunner().invoke(app, arguments)
    assert "is released on 2999-01-01" in str(refused.exception)
    assert refused.stdout == ""
