"""A class: every solution in a folder, checked side by side; who made which mistake, and what to teach again."""

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

from regard.course.assignment import HERE, Mistake
from regard.course.check import Report, UnknownAssignmentError, answered, check
from regard.course.notebook import read_solution
from regard.course.terminal_report import verdict
from regard.errors import RegardError
from regard.formatting import visible

SUFFIXES = (".py", ".ipynb")
LEFT_OUT = re.compile(r"^[._]|\.ipynb_checkpoints|__pycache__|__MACOSX")
FOUND, TEACH = "what was found", "what to teach again"
NOT_BEGUN, UNFINISHED, NAMELESS, UNRUN = "not begun", "not done yet", "a mistake without a name", "could not be run"
"""what else there is to say of solutions that are not right"""
LONGEST = 200
"""characters of a verdict in the terminal"""


@dataclass(frozen=True)
class Student:
    """One solution of a class."""

    name: str
    """of the student's folder, or of the file"""
    path: Path
    report: Report | None
    error: str = ""
    """why there is no report"""

    @property
    def mistakes(self) -> list[str]:
        """The ids of those that were found."""
        return [] if self.report is None else [each.id for each in self.report.diagnosis.mistakes]

    @property
    def passed(self) -> bool:
        """Whether all is right."""
        return self.report is not None and self.report.passed

    @property
    def told(self) -> str:
        """The verdict in a few words."""
        if self.report is None:
            return self.error
        if self.mistakes:
            return ", ".join(
                self.report.bank[each].title if each in self.report.bank else each for each in self.mistakes
            )
        said = verdict(self.report).plain[2:]
        if (failure := self.report.seen.failures.get("")) is None:
            return said
        at = f"{self.report.solution.where(failure.line)}: " if failure.line else ""
        return f"{said} {at}{failure.kind}: {failure.message}"

    @property
    def state(self) -> str:
        """Why it is not right, where that is no mistake that has a name; nothing if it is right or has one."""
        if self.passed or self.mistakes:
            return ""
        if self.report is None or not self.report.ran:
            return UNRUN
        return UNFINISHED if self.report.begun and self.report.gaps else NAMELESS if self.report.begun else NOT_BEGUN

    @property
    def points(self) -> str:
        """Points got, as written."""
        return "" if self.report is None else f"{self.report.points:g}"


def solutions(folder: Path) -> list[tuple[str, Path]]:
    """The files of a class: each beside the student's name, which is that of the folder, or else of the file."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    kept = [path for path in found if not any(LEFT_OUT.search(part) for part in path.relative_to(folder).parts)]
    own = Counter(path.relative_to(folder).parts[0] for path in kept)
    return [(_name(path.relative_to(folder), own), path) for path in kept]


def only_solution(path: Path) -> Path:
    """The file, or the one of a folder; a ValueError when that holds several or none."""
    if not path.is_dir():
        return path
    found = [file for _, file in solutions(path)]
    if len(found) != 1:
        raise RegardError(f"{path} holds {len(found)} files that are .py or .ipynb, and a solution is one")
    return found[0]


def check_class(
    folder: Path, assignment: str | None = None, course: Path = HERE, workers: int | None = None
) -> Iterator[Student]:
    """Check all, several at a time; one after the other in the files' order. A bad file has its error told."""
    files = solutions(folder)
    if not files:
        raise RegardError(f"{folder} holds no solution: neither a .py nor an .ipynb file")
    usual = None if assignment else _usual([path for _, path in files], course)
    one = partial(_checked, assignment=assignment, course=course, usual=usual)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        yield from pool.map(one, files)


def _usual(paths: Iterable[Path], course: Path) -> str | None:
    """The assignment that most of a class answer, as far as their names tell."""
    found: Counter[str] = Counter()
    for path in paths:
        with suppress(ValueError, OSError):
            found[answered(read_solution(path), path, course).name] += 1
    return found.most_common(1)[0][0] if found else None


def _checked(file: tuple[str, Path], assignment: str | None, course: Path, usual: str | None) -> Student:
    """One of a class; a file that is no Python, and so hides its names, is taken to answer what is usual there."""
    name, path = file
    try:
        try:
            return Student(name, path, check(path, assignment, course))
        except UnknownAssignmentError:
            if usual is None or read_solution(path).syntax_error is None:
                raise
            return Student(name, path, check(path, usual, course))
    except UnknownAssignmentError as error:
        return Student(name, path, None, error.why)
    except Exception as error:  # whatever it is, the others are still to be checked
        return Student(
            name, path, None, f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        )


def _name(path: Path, own: Mapping[str, int]) -> str:
    first = path.parts[0]
    return path.stem if len(path.parts) == 1 else first if own[first] == 1 else str(path.with_suffix(""))


def tally(students: Sequence[Student]) -> list[tuple[str, Mistake | None, list[str]]]:
    """Each mistake that was made, what is known of it, and who made it; the most frequent first."""
    known: dict[str, Mistake] = {}
    made: dict[str, list[str]] = {}
    for student in students:
        for each in student.mistakes:
            made.setdefault(each, []).append(student.name)
            if student.report is not None and each in student.report.bank:
                known[each] = student.report.bank[each]
    named = sorted(made.items(), key=lambda each: (-len(each[1]), each[0]))
    return [(name, known.get(name), names) for name, names in named]


def others(students: Sequence[Student]) -> dict[str, list[str]]:
    """Who is not right for another reason than a mistake that has a name, by that reason."""
    found = {state: [each.name for each in students if each.state == state] for state in _STATES}
    return {state: names for state, names in found.items() if names}


_STATES = (NAMELESS, UNFINISHED, NOT_BEGUN, UNRUN)


def show_class(console: Console, students: Sequence[Student]) -> None:
    """By student, then by mistake."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("student")
    table.add_column("points", justify="right")
    table.add_column(FOUND)
    for each in students:
        sign = ("✓ ", "green") if each.passed else ("✗ ", "red")
        table.add_row(Text.assemble(sign, visible(each.name)), each.points, Text(visible(_cut(each.told))))
    console.print(table)
    console.print()
    console.print(Text(f"{sum(each.passed for each in students)} of {len(students)} are right.", "bold"))
    if made := tally(students):
        console.print()
        console.print(_by_mistake(made, len(students)))
    if rest := others(students):
        console.print()
        console.print(Text("; ".join(f"{state}: {len(names)}" for state, names in rest.items())))


def _cut(text: str) -> str:
    return textwrap.shorten(text, LONGEST, placeholder=" …")


def _by_mistake(made: Sequence[tuple[str, Mistake | None, list[str]]], count: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column(TEACH)
    table.add_column("students", justify="right")
    table.add_column("")
    for name, told, names in made:
        bar = "█" * max(1, round(20 * len(names) / count))
        table.add_row(Text(told.title if told else name), str(len(names)), Text(bar, "magenta"))
    return table


def as_csv(students: Sequence[Student]) -> str:
    """A line for each student, which spreadsheets take for text and numbers alone."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["student", "file", "assignment", "passed", "points", "max_points", "mistakes", "verdict"])
    for each in students:
        report = each.report
        told = (
            [report.assignment.name, report.passed, f"{report.points:g}", f"{report.most_points:g}"]
            if report
            else [""] * 4
        )
        writer.writerow(map(_defused, [each.name, each.path.name, *map(str, told), " ".join(each.mistakes), each.told]))
    return file.getvalue()


def _defused(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = visible(cell)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def as_html(students: Sequence[Student], title: str) -> str:
    """The class as a page in one file, for light and dark: it runs no script and fetches nothing."""
    made, rest = tally(students), others(students)
    columns = [name for name, _, _ in made]
    parts = {
        "title": _escaped(title),
        "count": str(len(students)),
        "right": str(sum(each.passed for each in students)),
        "bars": "\n".join(_bar(*each, len(students)) for each in made) or "<p>No mistake that has a name.</p>",
        "others": "".join(f"<li><b>{_escaped(state)}</b>: {_names(names)}</li>" for state, names in rest.items()),
        "heads": "".join(f'<th class="mistake">{_escaped(name)}</th>' for name in columns),
        "found": FOUND,
        "rows": "\n".join(_row(each, columns) for each in students),
    }
    template = Path(__file__).with_name("class.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _bar(name: str, told: Mistake | None, names: Sequence[str], count: int) -> str:
    title, question = (told.title, told.question) if told else (name, "")
    who = _names(names)
    share = 100 * len(names) / count
    return (
        f"<section><h3>{_escaped(title)} <small>{_escaped(name) if told else ''}</small></h3>"
        f'<div class="bar"><i style="width:{share:.0f}%"></i></div><p class="who"><b>{len(names)}</b> {who}</p>'
        f"<p>{_escaped(question)}</p></section>"
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_escaped, names))


def _row(student: Student, columns: Iterable[str]) -> str:
    marks = "".join("<td class=made>●</td>" if name in student.mistakes else "<td></td>" for name in columns)
    most = f"<small>/{student.report.most_points:g}</small>" if student.report else ""
    sign = "<b class=ok>✓</b>" if student.passed else "<b class=no>✗</b>"
    said = _escaped(student.told)
    return (
        f"<tr><th>{sign} {_escaped(student.name)}</th><td class=points>{student.points}{most}</td>{marks}"
        f"<td class=said>{said}</td></tr>"
    )


def _escaped(text: str) -> str:
    return html.escape(visible(text))
