"""A class: every solution in a folder, checked side by side; who made which mistake, and what to teach again."""

import csv
import html
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.course.assignment import HERE, Mistake
from regard.course.check import Report, check
from regard.course.report import verdict
from regard.words import visible

SUFFIXES = (".py", ".ipynb")
LEFT_OUT = re.compile(r"^[._]|\.ipynb_checkpoints|__pycache__|__MACOSX")
WRONG, UNRUN = "something else", "could not be run"


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
        failures = [each for name, each in self.report.seen.failures.items() if not name]
        more = [f"{each.kind}: {each.message}" for each in failures]
        return " ".join([verdict(self.report).plain[2:], *more])

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
        raise ValueError(f"{path} holds {len(found)} files that are .py or .ipynb, and a solution is one")
    return found[0]


def check_class(
    folder: Path, assignment: str | None = None, course: Path = HERE, workers: int | None = None
) -> Iterator[Student]:
    """Check all, several at a time; one after the other in the files' order. A bad file has its error told."""
    files = solutions(folder)
    if not files:
        raise ValueError(f"{folder} holds no solution: neither a .py nor an .ipynb file")
    one = partial(_checked, assignment=assignment, course=course)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        yield from pool.map(one, files)


def _checked(file: tuple[str, Path], assignment: str | None, course: Path) -> Student:
    name, path = file
    try:
        return Student(name, path, check(path, assignment, course))
    except Exception as error:  # whatever it is, the others are still to be checked
        return Student(
            name, path, None, f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        )


def _name(path: Path, own: Mapping[str, int]) -> str:
    first = path.parts[0]
    return path.stem if len(path.parts) == 1 else first if own[first] == 1 else str(path.with_suffix(""))


def tally(students: Sequence[Student]) -> list[tuple[str, Mistake | None, list[str]]]:
    """Each mistake that was made, and who made it, the most frequent first; then what has no name."""
    known: dict[str, Mistake] = {}
    made: dict[str, list[str]] = {}
    for student in students:
        for each in student.mistakes:
            made.setdefault(each, []).append(student.name)
            if student.report is not None and each in student.report.bank:
                known[each] = student.report.bank[each]
    named = sorted(made.items(), key=lambda each: (-len(each[1]), each[0]))
    others = [each for each in students if not each.passed and not each.mistakes]
    unrun = [each.name for each in others if each.report is None or not each.report.ran]
    wrong = [each.name for each in others if each.name not in unrun]
    rest = [(name, None, names) for name, names in ((WRONG, wrong), (UNRUN, unrun)) if names]
    return [*((name, known.get(name), names) for name, names in named), *rest]


def show_class(console: Console, students: Sequence[Student]) -> None:
    """By student, then by mistake."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("student")
    table.add_column("points", justify="right")
    table.add_column("")
    for each in students:
        sign = ("✓ ", "green") if each.passed else ("✗ ", "red")
        table.add_row(Text.assemble(sign, visible(each.name)), each.points, Text(visible(each.told)[:200]))
    console.print(table)
    console.print()
    console.print(Text(f"{sum(each.passed for each in students)} of {len(students)} are right.", "bold"))
    if made := tally(students):
        console.print()
        console.print(_by_mistake(made, len(students)))


def _by_mistake(made: Sequence[tuple[str, Mistake | None, list[str]]], count: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("what to teach again")
    table.add_column("who", justify="right")
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
    made = tally(students)
    columns = [name for name, told, _ in made if told is not None]
    parts = {
        "title": _escaped(title),
        "count": str(len(students)),
        "right": str(sum(each.passed for each in students)),
        "bars": "\n".join(_bar(*each, len(students)) for each in made),
        "heads": "".join(f'<th class="turned"><span>{_escaped(name)}</span></th>' for name in columns),
        "rows": "\n".join(_row(each, columns) for each in students),
    }
    template = Path(__file__).with_name("class.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _bar(name: str, told: Mistake | None, names: Sequence[str], count: int) -> str:
    title, question = (told.title, told.question) if told else (name, "")
    who = ", ".join(map(_escaped, names))
    share = 100 * len(names) / count
    return (
        f"<section><h3>{_escaped(title)} <small>{_escaped(name) if told else ''}</small></h3>"
        f'<div class="bar"><i style="width:{share:.0f}%"></i></div><p class="who"><b>{len(names)}</b> {who}</p>'
        f"<p>{_escaped(question)}</p></section>"
    )


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
