"""A class: every solution in a folder is checked; who made which mistake, and what to review."""

import csv
import html
import io
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.course.assignment import ASSIGNMENTS_FOLDER, Mistake
from regard.course.check import CheckReport, UnknownAssignmentError, assignment_of, check
from regard.course.solution_file import read_solution
from regard.course.terminal_report import verdict
from regard.errors import RegardError
from regard.formatting import visible

SUFFIXES = (".py", ".ipynb")
IGNORED = re.compile(r"^[._]|\.ipynb_checkpoints|__pycache__|__MACOSX")
"""Files and folders that are not solutions."""
NOT_STARTED, UNFINISHED = "not started", "not finished"
UNKNOWN_MISTAKE, NOT_RUN = "unknown mistake", "could not be run"
OTHER_STATES = (UNKNOWN_MISTAKE, UNFINISHED, NOT_STARTED, NOT_RUN)
"""Why solutions are not correct, other than a mistake from the catalogue."""
MAX_VERDICT_CHARACTERS = 200
"""Maximum length of a verdict in the terminal."""
MAX_BAR_WIDTH = 20
"""Width of the bar of a mistake that everyone made, in the terminal."""

MistakeTally = tuple[str, Mistake | None, list[str]]
"""The id of a mistake, its entry in the catalogue, and the names of the students who made it."""


@dataclass(frozen=True)
class StudentResult:
    """The result of one solution of a class."""

    name: str
    """The name of the student's folder, or of the file."""
    path: Path
    report: CheckReport | None
    error: str = ""
    """Why there is no report."""

    @property
    def mistakes(self) -> list[str]:
        """The ids of the mistakes that were found."""
        return [] if self.report is None else [mistake.id for mistake in self.report.diagnosis.mistakes]

    @property
    def passed(self) -> bool:
        """Whether the solution is correct."""
        return self.report is not None and self.report.passed

    @property
    def summary(self) -> str:
        """The verdict in a few words."""
        if self.report is None:
            return self.error
        if self.mistakes:
            return "; ".join(map(self.report.title_of, self.mistakes))
        text = verdict(self.report).plain[2:]
        if (failure := self.report.run.failures.get("")) is None:
            return text
        location = f"{self.report.solution.where(failure.line)}: " if failure.line else ""
        return f"{text} {location}{failure.kind}: {failure.message}"

    @property
    def state(self) -> str:
        """Why the solution is not correct, if not because of a known mistake; otherwise empty."""
        if self.passed or self.mistakes:
            return ""
        if self.report is None or not self.report.ran:
            return NOT_RUN
        if not self.report.is_started:
            return NOT_STARTED
        return UNFINISHED if self.report.gaps else UNKNOWN_MISTAKE

    @property
    def points(self) -> str:
        """The points scored, as text."""
        return "" if self.report is None else f"{self.report.points:g}"


def find_solutions(folder: Path) -> list[tuple[str, Path]]:
    """The solutions of a class, each with the student's name: that of the student's folder, or else of the file."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    kept = [path for path in paths if not any(IGNORED.search(part) for part in path.relative_to(folder).parts)]
    counts = Counter(path.relative_to(folder).parts[0] for path in kept)
    return [(_student_name(path.relative_to(folder), counts), path) for path in kept]


def only_solution(path: Path) -> Path:
    """The file itself, or the only solution of a folder; a RegardError if the folder has several or none."""
    if not path.is_dir():
        return path
    files = [file for _, file in find_solutions(path)]
    if len(files) != 1:
        raise RegardError(f"{path} must contain exactly one .py or .ipynb file, but it contains {len(files)}")
    return files[0]


def check_class(
    folder: Path, assignment: str | None = None, course: Path = ASSIGNMENTS_FOLDER, workers: int | None = None
) -> Iterator[StudentResult]:
    """Check all solutions in parallel and yield them in the order of the files. A bad file gives a result too."""
    files = find_solutions(folder)
    if not files:
        raise RegardError(f"{folder} contains no solutions (.py or .ipynb files)")
    most_common = None if assignment else _most_common_assignment([path for _, path in files], course)
    check_file = partial(_check_file, assignment=assignment, course=course, most_common=most_common)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        yield from pool.map(check_file, files)


def _most_common_assignment(paths: Iterable[Path], course: Path) -> str | None:
    """The assignment that most of a class answer, as far as it is recognised."""
    counts: Counter[str] = Counter()
    for path in paths:
        with suppress(RegardError, OSError):
            counts[assignment_of(read_solution(path), path, course).name] += 1
    return counts.most_common(1)[0][0] if counts else None


def _check_file(file: tuple[str, Path], assignment: str | None, course: Path, most_common: str | None) -> StudentResult:
    """Check one file. If a syntax error hides its names, it is assumed to answer the most common assignment."""
    name, path = file
    try:
        try:
            return StudentResult(name, path, check(path, assignment, course))
        except UnknownAssignmentError:
            if most_common is None or read_solution(path).syntax_error is None:
                raise
            return StudentResult(name, path, check(path, most_common, course))
    except UnknownAssignmentError as error:
        return StudentResult(name, path, None, error.reason)
    except RegardError as error:
        return StudentResult(name, path, None, str(error))
    except Exception as error:  # whatever it is, the other students' files must still be checked
        return StudentResult(name, path, None, f"{type(error).__name__}: {error}")


def _student_name(path: Path, counts: Mapping[str, int]) -> str:
    if len(path.parts) == 1:
        return path.stem
    return path.parts[0] if counts[path.parts[0]] == 1 else str(path.with_suffix(""))


def tally_mistakes(students: Sequence[StudentResult]) -> list[MistakeTally]:
    """Each mistake that was made, its entry in the catalogue, and who made it; the most frequent first."""
    known: dict[str, Mistake] = {}
    names: dict[str, list[str]] = {}
    for student in students:
        for mistake_id in student.mistakes:
            names.setdefault(mistake_id, []).append(student.name)
            if student.report is not None and mistake_id in student.report.catalogue:
                known[mistake_id] = student.report.catalogue[mistake_id]
    by_frequency = sorted(names.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(mistake_id, known.get(mistake_id), made_by) for mistake_id, made_by in by_frequency]


def tally_other_states(students: Sequence[StudentResult]) -> dict[str, list[str]]:
    """Whose solutions are not correct for another reason than a known mistake, by the reason."""
    names = {state: [student.name for student in students if student.state == state] for state in OTHER_STATES}
    return {state: made_by for state, made_by in names.items() if made_by}


def show_class(console: Console, students: Sequence[StudentResult]) -> None:
    """Print a table by student, then one by mistake."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("student")
    table.add_column("points", justify="right")
    table.add_column("result")
    for student in students:
        sign = ("✓ ", "green") if student.passed else ("✗ ", "red")
        summary = textwrap.shorten(student.summary, MAX_VERDICT_CHARACTERS, placeholder=" …")
        table.add_row(Text.assemble(sign, visible(student.name)), student.points, Text(visible(summary)))
    console.print(table)
    console.print()
    correct = sum(student.passed for student in students)
    console.print(Text(f"Correct solutions: {correct} of {len(students)}", "bold"))
    if mistakes := tally_mistakes(students):
        console.print()
        console.print(_mistake_table(mistakes, len(students)))
    if states := tally_other_states(students):
        console.print()
        console.print(Text("; ".join(f"{state}: {len(names)}" for state, names in states.items())))


def _mistake_table(mistakes: Sequence[MistakeTally], count: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("what to review")
    table.add_column("students", justify="right")
    table.add_column("")
    for mistake_id, mistake, names in mistakes:
        bar = "█" * max(1, round(MAX_BAR_WIDTH * len(names) / count))
        table.add_row(Text(mistake.title if mistake else mistake_id), str(len(names)), Text(bar, "magenta"))
    return table


def as_csv(students: Sequence[StudentResult]) -> str:
    """One line per student. No cell can be interpreted as a formula by a spreadsheet."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["student", "file", "assignment", "passed", "points", "max_points", "mistakes", "verdict"])
    for student in students:
        marks = ["", "", "", ""]
        if (report := student.report) is not None:
            marks = [report.assignment.name, str(report.passed), f"{report.points:g}", f"{report.max_points:g}"]
        cells = [student.name, student.path.name, *marks, " ".join(student.mistakes), student.summary]
        writer.writerow(map(_escape_formula, cells))
    return file.getvalue()


def _escape_formula(cell: str) -> str:
    text = visible(cell)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def as_html(students: Sequence[StudentResult], title: str) -> str:
    """The class as one self-contained page without scripts, in light and dark."""
    mistakes, states = tally_mistakes(students), tally_other_states(students)
    columns = [mistake_id for mistake_id, _, _ in mistakes]
    parts = {
        "title": _escape(title),
        "count": str(len(students)),
        "correct": str(sum(student.passed for student in students)),
        "mistakes": "\n".join(_mistake_card(*mistake, len(students)) for mistake in mistakes)
        or "<p>No known mistake was found.</p>",
        "others": "".join(f"<li><b>{_escape(state)}</b>: {_join(names)}</li>" for state, names in states.items()),
        "heads": "".join(f'<th class="mistake">{_escape(column)}</th>' for column in columns),
        "rows": "\n".join(_student_row(student, columns) for student in students),
    }
    template = Path(__file__).with_name("class.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _mistake_card(mistake_id: str, mistake: Mistake | None, names: Sequence[str], count: int) -> str:
    title, question = (mistake.title, mistake.question) if mistake else (mistake_id, "")
    small = _escape(mistake_id) if mistake else ""
    share = 100 * len(names) / count
    return (
        f"<section><h3>{_escape(title)} <small>{small}</small></h3>"
        f'<div class="bar"><i style="width:{share:.0f}%"></i></div>'
        f'<p class="students"><b>{len(names)}</b> {_join(names)}</p><p>{_escape(question)}</p></section>'
    )


def _student_row(student: StudentResult, columns: Iterable[str]) -> str:
    marks = "".join("<td class=made>●</td>" if column in student.mistakes else "<td></td>" for column in columns)
    possible = f"<small>/{student.report.max_points:g}</small>" if student.report else ""
    sign = "<b class=ok>✓</b>" if student.passed else "<b class=no>✗</b>"
    return (
        f"<tr><th>{sign} {_escape(student.name)}</th><td class=points>{student.points}{possible}</td>{marks}"
        f"<td class=result>{_escape(student.summary)}</td></tr>"
    )


def _join(names: Iterable[str]) -> str:
    return ", ".join(map(_escape, names))


def _escape(text: str) -> str:
    return html.escape(visible(text))
