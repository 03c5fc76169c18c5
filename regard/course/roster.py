"""A class list, read from a CSV file, and which of its students handed in which submission.

The columns are recognised by their titles, so that lists exported from Canvas (its gradebook), Gradescope and Moodle
can be used as they are. A list of one's own has the columns id, name and email.
"""

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.course.submissions import NOTHING_HANDED_IN, Submission
from regard.errors import RegardError
from regard.untrusted_files import read_file

MAX_ROSTER_BYTES = 20_000_000
COLUMNS = {
    "id": ("id", "student id", "sid", "identifier", "id number"),
    "name": ("name", "student", "full name", "student name"),
    "first": ("first name", "firstname", "first", "given name"),
    "last": ("last name", "lastname", "last", "surname", "family name"),
    "email": ("email", "email address", "e-mail", "mail"),
    "sis_id": ("sis user id",),
    "login": ("sis login id", "login id", "login", "username"),
    "section": ("section", "sections"),
}
"""The titles by which a column is recognised, without regard to case."""


@dataclass(frozen=True)
class Student:
    """A student of the class list. Missing columns are empty."""

    id: str
    name: str
    email: str = ""
    sis_id: str = ""
    login: str = ""
    section: str = ""


@dataclass(frozen=True)
class Roster:
    """A class list."""

    students: tuple[Student, ...]
    titles: tuple[str, ...] = ()
    """The titles of all columns of the file."""

    @property
    def is_from_canvas(self) -> bool:
        """Whether it was exported from Canvas's gradebook, so that the ids are Canvas's own."""
        return {"student", "id", "section"} <= {title.casefold() for title in self.titles}


def read_roster(path: Path) -> Roster:
    """Read a class list; a RegardError that names the line if it cannot be used."""
    try:
        text = read_file(path, MAX_ROSTER_BYTES).decode("utf-8-sig")
    except UnicodeError:
        raise RegardError(f"{path} is not encoded in UTF-8: export it as CSV UTF-8") from None
    if "\0" in text:
        raise RegardError(f"{path} is not a text file: export the class list as CSV")
    lines = text.splitlines() or [""]
    delimiter = max(",;\t", key=lines[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        titles = next(rows, [])
        columns = _columns(titles, path)
        students = [
            student
            for row in rows
            if any(cell.strip() for cell in row) and (student := _student(row, columns, path, rows.line_num))
        ]
    except csv.Error as error:
        raise RegardError(f"{path}, line {rows.line_num}: {error}") from None
    if not students:
        raise RegardError(f"{path} lists no students")
    for student_id, count in Counter(student.id for student in students if student.id).items():
        if count > 1:
            raise RegardError(f"{path} lists the id {student_id} {count} times: each student needs an id of their own")
    return Roster(tuple(students), tuple(title.strip() for title in titles))


def match_roster(submissions: Sequence[Submission], roster: Roster) -> list[tuple[Student | None, Submission]]:
    """Find the student of each submission: by id, by email or login, or else by a name that only one student has.

    Students without a submission get an empty one. Submissions without a student come last.
    """
    indexes: list[tuple[Mapping[str, Student], Callable[[Submission], Sequence[str]]]] = [
        (_index(roster, lambda student: (student.id, student.sis_id)), lambda submission: (submission.id,)),
        (_index(roster, lambda student: (student.email, student.login)), lambda submission: (submission.email,)),
        (
            _index(roster, lambda student: (student.id, student.sis_id, student.login, student.email.split("@")[0])),
            lambda submission: (submission.name,),
        ),
        (_index(roster, lambda student: name_keys(student.name)), lambda submission: name_keys(submission.name)),
    ]
    handed_in: dict[Student, Submission] = {}
    unknown: list[tuple[Student | None, Submission]] = []
    for submission in submissions:
        found = (index.get(_fold(key)) for index, keys in indexes for key in keys(submission) if key)
        student = next((student for student in found if student), None)
        if student is None or student in handed_in:
            unknown.append((None, submission))
        else:
            handed_in[student] = replace(submission, name=student.name)
    known: list[tuple[Student | None, Submission]] = [
        (student, handed_in.get(student) or Submission(student.name, None, problem=NOTHING_HANDED_IN))
        for student in roster.students
    ]
    return known + unknown


def name_keys(name: str) -> list[str]:
    """Spellings of a name that are compared: the words in either order, without accents, spaces and punctuation.

    >>> name_keys("Lovelace, Ada")
    ['lovelaceada', 'adalovelace']
    """
    last, comma, first = name.partition(",")
    words = _words(f"{first} {last}" if comma else name)
    orders = [words[split:] + words[:split] for split in range(len(words) - 1, -1, -1)]
    return list(dict.fromkeys("".join(order) for order in orders if order))


def _words(text: str) -> list[str]:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return re.findall(r"\w+", plain.replace("_", " "))


def _fold(key: str) -> str:
    return unicodedata.normalize("NFC", key.strip().casefold())


def _index(roster: Roster, keys: Callable[[Student], Sequence[str]]) -> dict[str, Student]:
    """The students by their keys. A key of several students is left out."""
    students: dict[str, set[Student]] = defaultdict(set)
    for student in roster.students:
        for key in keys(student):
            if key:
                students[_fold(key)].add(student)
    return {key: next(iter(owners)) for key, owners in students.items() if len(owners) == 1}


def _columns(titles: Sequence[str], path: Path) -> dict[str, int]:
    """The number of each known column; a RegardError if there is none for the name."""
    known = {title: column for column, names in COLUMNS.items() for title in names}
    columns: dict[str, int] = {}
    for index, title in enumerate(titles):
        if (column := known.get(title.strip().casefold())) is not None:
            columns.setdefault(column, index)
    if "name" not in columns and not {"first", "last"} <= set(columns):
        found = ", ".join(title.strip() for title in titles if title.strip()) or "nothing"
        raise RegardError(f"{path}, line 1: a class list has the columns id, name and email; found: {found}")
    return columns


def _student(row: Sequence[str], columns: Mapping[str, int], path: Path, line: int) -> Student | None:
    """The student of a row; None for a row of Canvas's gradebook that is not about a student."""
    cells = {column: row[index].strip() if index < len(row) else "" for column, index in columns.items()}
    name = cells.get("name") or f"{cells.get('first', '')} {cells.get('last', '')}".strip()
    if "points possible" in name.casefold() or (not name and not cells.get("id")):
        return None
    if not name:
        raise RegardError(f"{path}, line {line}: the student has no name")
    student_id = re.sub(r"^participant\s+(?=\d+$)", "", cells.get("id", ""), flags=re.IGNORECASE)  # Moodle's worksheet
    columns_of_student = ("email", "sis_id", "login", "section")
    return Student(student_id, name, **{column: cells.get(column, "") for column in columns_of_student})
