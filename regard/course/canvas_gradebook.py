"""Points as a CSV file that Canvas's gradebook imports (Grades > Import).

Canvas finds a student by ID, its own user id; or else by SIS User ID or SIS Login ID; or else by the name. It finds the
assignment by the title of the column, such as "Homework 3 (4711)" in an exported gradebook. A title without a known id
creates an assignment, whose points are then in the row "Points Possible".
"""

import re
from collections.abc import Sequence

from regard.course.class_report import csv_text
from regard.course.classroom import ClassMember, StudentResult
from regard.course.roster import Roster
from regard.course.submissions import CANVAS_SYSTEM
from regard.errors import RegardError

TITLES = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
"""Titles of the columns before the assignment's, in the order in which Canvas expects them."""
WITH_ID = re.compile(r"(?P<title>.*\S)\s*\(\d+\)")


def as_canvas_csv(students: Sequence[StudentResult], title: str, roster: Roster | None = None) -> str:
    """The points in a column with this title. Students without a checked file have none."""
    column = _column_title(title, roster)
    rows: list[tuple[str, ...]] = [(*TITLES, column)]
    if not WITH_ID.fullmatch(column):
        max_points = max((student.report.max_points for student in students if student.report), default=0.0)
        rows.append(("    Points Possible", "", "", "", "", f"{max_points:g}"))
    for student in students:
        if roster is not None and student.member.student is None:
            continue
        rows.append((*_identity(student.member, roster), student.points))
    return csv_text(rows)


def _column_title(title: str, roster: Roster | None) -> str:
    """The complete title of the column, with Canvas's id if the exported gradebook has a column with this title."""
    if not title.strip():
        raise RegardError("--canvas needs the title of the assignment's column in the gradebook")
    for column in roster.titles if roster else ():
        match = WITH_ID.fullmatch(column)
        if column == title or (match and match["title"] == title):
            return column
    return title


def _identity(member: ClassMember, roster: Roster | None) -> tuple[str, str, str, str, str]:
    """The cells by which Canvas finds a student."""
    submission, student = member.submission, member.student
    canvas_id = submission.id if submission.system == CANVAS_SYSTEM else ""
    if student is None:
        sis_id = "" if canvas_id or submission.system == "moodle" else submission.id
        return submission.name, canvas_id, sis_id, submission.email, ""
    if roster is not None and roster.is_from_canvas:
        return student.name, student.id, student.sis_id, student.login, student.section
    sis_id = student.sis_id or (student.id if student.id != canvas_id else "")
    return student.name, canvas_id, sis_id, student.login or student.email, student.section
