"""The part of `regard check` that checks a class."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from regard.course.classroom import StudentResult
    from regard.course.roster import Roster
    from regard.course.similar_files import SimilarPair


@dataclass(frozen=True)
class ClassFiles:
    """Which files are written about a class, and where."""

    html: bool
    csv: bool
    canvas: str
    """Title of the column of canvas.csv; empty for no such file."""
    feedback: bool
    hint: int
    """Level of the hints in the feedback."""
    out: Path | None

    def write(
        self, title: str, students: "list[StudentResult]", similar: "list[SimilarPair]", roster: "Roster | None"
    ) -> None:
        """Write the files that were asked for."""
        from regard.course.canvas_gradebook import as_canvas_csv
        from regard.course.class_report import as_csv, as_html
        from regard.course.feedback import feedback_files

        folder = self.out or Path()
        if self.html:
            write_output(folder / "class.html", as_html(students, title, similar))
        if self.csv:
            write_output(folder / "class.csv", as_csv(students, similar))
        if self.canvas:
            write_output(folder / "canvas.csv", as_canvas_csv(students, self.canvas, roster))
        if self.feedback:
            for name, text in feedback_files(students, self.hint):
                write_output(folder / "feedback" / name, text, quiet=True)
            typer.echo(str(folder / "feedback"), err=True)


def check_class(
    path: Path,
    assignment: str | None,
    course: Path | None,
    roster_file: Path | None,
    hidden_probes: Path | None,
    jobs: int | None,
    as_json: bool,
    files: ClassFiles,
) -> NoReturn:
    """Check a folder or zip file, print the result and write the files about it. Exits with status 0 or 1."""
    from rich.progress import track

    from regard.course.assignment import ASSIGNMENTS_FOLDER
    from regard.course.class_report import as_json_list, show_class
    from regard.course.classroom import check_class, read_class, similar_pairs
    from regard.course.roster import read_roster
    from regard.plots.console import console

    screen, course = console(), course or ASSIGNMENTS_FOLDER
    roster = read_roster(roster_file) if roster_file else None
    with tempfile.TemporaryDirectory(prefix="regard-class-") as scratch:
        members = read_class(path, Path(scratch), assignment, course, roster)
        results = check_class(members, assignment, course, jobs, hidden_probes)
        hidden = as_json or not screen.is_terminal
        students = list(track(results, "checking", total=len(members), console=screen, transient=True, disable=hidden))
    similar = similar_pairs(students)
    if as_json:
        typer.echo(json.dumps(as_json_list(students, similar), indent=2, ensure_ascii=False))
    else:
        show_class(screen, students, similar)
    files.write(path.resolve().stem, students, similar, roster)
    raise typer.Exit(0 if all(student.passed for student in students) else 1)


def write_output(path: Path, text: str, quiet: bool = False) -> None:
    """Write a file, with its folder, and say so unless `quiet`."""
    from regard.atomic_files import write_file

    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text)
    if not quiet:
        typer.echo(str(path), err=True)
