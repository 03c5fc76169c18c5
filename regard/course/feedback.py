"""A feedback file for each student, named so that Canvas and Moodle can return it to the student.

Canvas (Grades > Upload Submissions) and Moodle (Upload multiple feedback files in a zip) match files by the names of
their downloads.
"""

import re
from collections.abc import Iterator, Sequence

from regard.course.classroom import StudentResult
from regard.course.json_report import as_text
from regard.course.submissions import NOTHING_HANDED_IN
from regard.formatting import visible, visible_lines

MAX_NAME_CHARACTERS = 80
"""Maximum length of a feedback file's name that is made from a student's name."""


def feedback_files(students: Sequence[StudentResult], hint: int = 0) -> Iterator[tuple[str, str]]:
    """The path and the text of each student's feedback, except for students who handed in nothing."""
    used: set[str] = set()
    for student in students:
        if student.error == NOTHING_HANDED_IN:
            continue
        name = student.member.submission.feedback_name or f"{_file_stem(student)}.txt"
        path, number = name, 2
        while path.casefold() in used:  # two students of the same name
            path, number = name.replace(".txt", f" {number}.txt"), number + 1
        used.add(path.casefold())
        yield path, feedback_text(student, hint)


def feedback_text(student: StudentResult, hint: int = 0) -> str:
    """The report as the student would see it with this level of hints, or why there is none."""
    lines = [f"{visible(student.name)}: {student.path.name if student.path else 'no file'}"]
    if student.member.submission.is_late:
        lines.append("Handed in late.")
    if student.report is None:
        lines.append(f"The file could not be checked: {visible_lines(student.error)}")
        return "\n".join(lines) + "\n"
    lines += [f"Points: {student.points} of {student.report.max_points:g}", "", as_text(student.report, hint)]
    return "\n".join(lines)


def _file_stem(student: StudentResult) -> str:
    """A name that every file system accepts."""
    return re.sub(r"[^\w .,@()+-]", "_", visible(student.name))[:MAX_NAME_CHARACTERS].strip(" .") or "student"
