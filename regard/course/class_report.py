"""Reports about a class: in the terminal, as CSV, as a page, as a column for Canvas, and feedback for each student."""

import csv
import html
import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.course.assignment import Mistake
from regard.course.classroom import (
    MistakeTally,
    StudentResult,
    missing_isolation,
    tally_mistakes,
    tally_other_states,
)
from regard.course.json_report import as_json
from regard.course.similar_files import SimilarPair
from regard.formatting import visible

MAX_VERDICT_CHARACTERS = 200
"""Maximum length of a verdict in the terminal."""
MAX_BAR_WIDTH = 20
"""Width of the bar of a mistake that everyone made, in the terminal."""
MAX_PAIRS_SHOWN = 20
"""Maximum number of similar pairs in the terminal."""
SIMILAR_TITLE = "Nearly the same code, worth reading side by side"
UNUSUAL_TITLE = "Unusual in a solution, worth reading"
CSV_TITLES = (
    *("student", "file", "assignment", "passed", "points", "max_points", "mistakes", "verdict"),
    *("id", "email", "late", "similar_to", "deductions", "unusual"),
)


def show_class(console: Console, students: Sequence[StudentResult], similar: Sequence[SimilarPair] = ()) -> None:
    """Print a table by student, then one by mistake, then files that are nearly the same."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("student")
    table.add_column("points", justify="right")
    table.add_column("result")
    for student in students:
        sign = ("✓ ", "green") if student.passed else ("✗ ", "red")
        summary = textwrap.shorten(student.summary, MAX_VERDICT_CHARACTERS, placeholder=" …")
        late = " (late)" if student.member.submission.is_late else ""
        table.add_row(Text.assemble(sign, visible(student.name), late), student.points, Text(visible(summary)))
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
    if similar:
        console.print()
        console.print(Text(f"{SIMILAR_TITLE}:", "bold"))
        for pair in similar[:MAX_PAIRS_SHOWN]:
            console.print(Text(visible(f"  {' and '.join(pair.names)}: {pair}")))
        if len(similar) > MAX_PAIRS_SHOWN:
            console.print(Text(f"  and {len(similar) - MAX_PAIRS_SHOWN} more pairs, in class.html and class.csv"))
    if unusual := [student for student in students if student.unusual]:
        console.print()
        console.print(Text(f"{UNUSUAL_TITLE}:", "bold"))
        for student in unusual:
            console.print(Text(visible(f"  {student.name}: {student.unusual}")))
    for note in missing_isolation(students):
        console.print()
        console.print(Text(f"Note: {note}", "yellow"))


def _mistake_table(mistakes: Sequence[MistakeTally], count: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("what to review")
    table.add_column("students", justify="right")
    table.add_column("")
    for mistake_id, mistake, names in mistakes:
        bar = "█" * max(1, round(MAX_BAR_WIDTH * len(names) / count))
        table.add_row(Text(mistake.title if mistake else mistake_id), str(len(names)), Text(bar, "magenta"))
    return table


def as_csv(students: Sequence[StudentResult], similar: Sequence[SimilarPair] = ()) -> str:
    """One line per student. No cell can be interpreted as a formula by a spreadsheet."""
    rows: list[tuple[str, ...]] = [CSV_TITLES]
    for student in students:
        marks, submission = ["", "", "", ""], student.member.submission
        if (report := student.report) is not None:
            marks = [report.assignment.name, str(report.passed), f"{report.points:g}", f"{report.max_points:g}"]
        file = student.path.name if student.path else ""
        twins = "; ".join(_others(student.name, similar))
        deductions = "; ".join(report.grade.changes()) if report else ""
        cells = [student.name, file, *marks, " ".join(student.mistakes), student.summary]
        rows.append((*cells, student.id, student.email, str(submission.is_late), twins, deductions, student.unusual))
    return csv_text(rows)


def as_json_list(students: Sequence[StudentResult], similar: Sequence[SimilarPair] = ()) -> list[dict[str, Any]]:
    """What was found for each student, under stable keys."""
    return [
        {
            "student": student.name,
            "id": student.id,
            "email": student.email,
            "late": student.member.submission.is_late,
            "similar_to": _others(student.name, similar),
            **(as_json(student.report) if student.report else {"error": student.error}),
        }
        for student in students
    ]


def csv_text(rows: Iterable[Iterable[str]]) -> str:
    """A CSV file in which no cell can be interpreted as a formula by a spreadsheet."""
    file = io.StringIO()
    csv.writer(file).writerows([_escape_formula(cell) for cell in row] for row in rows)
    return file.getvalue()


def _others(name: str, similar: Iterable[SimilarPair]) -> list[str]:
    """The students whose files are nearly the same as this student's."""
    return [f"{other} ({pair})" for pair in similar for other in _other_name(name, pair)]


def _other_name(name: str, pair: SimilarPair) -> list[str]:
    one, other = pair.names
    return [other] if name == one else [one] if name == other else []


def _escape_formula(cell: str) -> str:
    text = visible(cell)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def as_html(students: Sequence[StudentResult], title: str, similar: Sequence[SimilarPair] = ()) -> str:
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
        "similar": _similar_list(similar) + _unusual_list(students),
        "heads": "".join(f'<th class="mistake">{_escape(column)}</th>' for column in columns),
        "rows": "\n".join(_student_row(student, columns) for student in students),
    }
    template = Path(__file__).with_name("class.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _similar_list(similar: Sequence[SimilarPair]) -> str:
    pairs = "".join(f"<li><b>{_join(pair.names)}</b>: {_escape(str(pair))}</li>" for pair in similar)
    return f'<h2>{SIMILAR_TITLE}</h2>\n<ul class="others">{pairs}</ul>' if pairs else ""


def _unusual_list(students: Sequence[StudentResult]) -> str:
    unusual = [student for student in students if student.unusual]
    lines = "".join(f"<li><b>{_escape(student.name)}</b>: {_escape(student.unusual)}</li>" for student in unusual)
    return f'<h2>{UNUSUAL_TITLE}</h2>\n<ul class="others">{lines}</ul>' if lines else ""


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
    possible = changes = ""
    if student.report:
        possible = f"<small>/{student.report.max_points:g}</small>"
        changes = "".join(f"<br><small>{_escape(text)}</small>" for text in student.report.grade.changes())
    sign = "<b class=ok>✓</b>" if student.passed else "<b class=no>✗</b>"
    return (
        f"<tr><th>{sign} {_escape(student.name)}</th><td class=points>{student.points}{possible}{changes}</td>{marks}"
        f"<td class=result>{_escape(student.summary)}</td></tr>"
    )


def _join(names: Iterable[str]) -> str:
    return ", ".join(map(_escape, names))


def _escape(text: str) -> str:
    return html.escape(visible(text))
