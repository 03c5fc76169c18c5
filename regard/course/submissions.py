"""Who handed in which files: the layouts of downloads from Canvas, Moodle and Gradescope, or a folder of any names.

Canvas       lovelaceada_LATE_4711_998877_attention-1.py: name, user id, file id, and the name of the upload
             anon_x7Kq2_998877_attention.py: the same for anonymous grading
Moodle       Ada Lovelace_4711_assignsubmission_file/attention.py: name, participant id; also as a prefix of the file
Gradescope   submission_4711/attention.py, and submission_metadata.yml with the names
other        Ada Lovelace/attention.py or Ada Lovelace.py
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from regard.course.uploaded_files import ARCHIVE_SUFFIX, METADATA_NAME, UploadedFile
from regard.errors import RegardError
from regard.untrusted_files import read_file

CANVAS = re.compile(
    r"(?:(?P<name>.+?)_(?P<late>LATE_)?(?P<id>\d+)|(?P<anonymous_late>LATE_)?(?P<anonymous>anon_[^_]+))"
    r"_(?P<file>\d+)_(?P<original>.+)"
)
MOODLE = re.compile(r"(?P<name>.+?)(?:_(?P<id>\d+))?_assignsubmission_(?:file|onlinetext)(?:_(?P<original>.*))?")
VERSION = re.compile(r"(?:[-_ ]v?(\d{1,3})| ?\((\d{1,3})\))$")
"""The number that a system adds to a name that it already knows: attention-1, attention (2), attention_v3."""
MAX_METADATA_BYTES = 100_000_000
CANVAS_SYSTEM = "canvas"
NOTHING_HANDED_IN = "nothing was handed in"


@dataclass(frozen=True)
class Submission:
    """What a student handed in."""

    name: str
    """The student's name, as far as the download has it."""
    path: Path | None
    """The file to check: of the files that answer the assignment, the latest. None if there is nothing to check."""
    id: str = ""
    """Canvas's user id, Moodle's participant id or Gradescope's student id."""
    email: str = ""
    is_late: bool = False
    problem: str = ""
    """Why there is nothing to check."""
    others: tuple[tuple[str, Path], ...] = ()
    """The student's other Python files under their original names: the solution may import them."""
    feedback_name: str = ""
    """The path of a feedback file that the system, if it is known, can match to the student."""
    system: str = ""
    """Where the submission was downloaded: "canvas", "moodle" or "gradescope"; empty if that is not known."""


@dataclass(frozen=True)
class _Version:
    """A student's file."""

    path: Path
    original: str
    """The name that the student gave it."""
    file_id: int = 0
    """Canvas's id of the file. A later upload has a higher one."""
    feedback_name: str = ""
    """The path of a feedback file that the system can match to this one."""

    @property
    def age(self) -> tuple[int, int, float, bool]:
        """What orders files by the time of their upload, the latest last. A script comes after its notebook."""
        number = VERSION.search(PurePosixPath(self.original).stem)
        version = int(number[1] or number[2]) if number else 0
        return self.file_id, version, self.path.stat().st_mtime, self.path.suffix == ".py"

    @property
    def import_name(self) -> str:
        """The file name by which a solution imports it. Canvas renames uploads: attention-1.py was attention.py."""
        return re.sub(r"-\d{1,3}(?=\.py$)", "", self.original) if self.file_id else self.original


@dataclass
class _Owner:
    """The owner of files in a download."""

    name: str
    id: str = ""
    email: str = ""
    system: str = ""
    is_late: bool = False
    files: list[_Version] = field(default_factory=list)
    problem: str = ""
    feedback_name: str = ""
    """As that of a file, for one that could not be read."""

    def add(self, file: UploadedFile, original: str, file_id: int = 0, feedback_name: str = "") -> None:
        """Add a file, or the reason why it cannot be checked."""
        if not file.problem:
            self.files.append(_Version(file.path, original, file_id, feedback_name))
        elif not self.problem or not file.is_other:
            self.problem, self.feedback_name = file.problem, feedback_name


IsAnswer = Callable[[Path], bool]
"""Whether a file answers the assignment."""


def find_submissions(upload: Sequence[UploadedFile], is_answer: IsAnswer) -> list[Submission]:
    """The submissions of a class, ordered by name. A group's submission is listed for each of its members."""
    files = [file for file in upload if file.name.name != METADATA_NAME]
    owners = _gradescope(upload) or _canvas(files) or _moodle(files)
    owners = owners or _folders([file for file in files if not file.is_other], is_answer)
    submissions = [_choose_file(owner, is_answer) for owner in owners]
    return sorted(submissions, key=lambda submission: (submission.name.casefold(), submission.id))


def only_submission(upload: Sequence[UploadedFile], is_answer: IsAnswer) -> Submission:
    """The submission of one student, to whom all files belong; a RegardError if there is nothing to check."""
    owner = _Owner("")
    for file in upload:
        owner.add(file, file.name.name)
    submission = _choose_file(owner, is_answer)
    if submission.path is None:
        raise RegardError(owner.problem or "no .py or .ipynb file was handed in")
    return submission


def _choose_file(owner: _Owner, is_answer: IsAnswer) -> Submission:
    answers = [file for file in owner.files if is_answer(file.path)] if len(owner.files) > 1 else owner.files
    chosen = max(answers or owner.files, key=lambda file: file.age, default=None)
    rest = sorted((file for file in owner.files if file is not chosen), key=lambda file: file.age)
    return Submission(
        name=owner.name,
        path=chosen.path if chosen else None,
        id=owner.id,
        email=owner.email,
        is_late=owner.is_late,
        problem="" if chosen else owner.problem or NOTHING_HANDED_IN,
        others=tuple({file.import_name: file.path for file in rest if file.path.suffix == ".py"}.items()),
        feedback_name=chosen.feedback_name if chosen else owner.feedback_name,
        system=owner.system,
    )


def _stem(name: str) -> str:
    """A file's name without its ending and the number of its version."""
    return VERSION.sub("", PurePosixPath(name).stem)


def _canvas(files: Sequence[UploadedFile]) -> list[_Owner]:
    """The owners of a download from Canvas; empty if it is not one."""
    named = _matching(files, CANVAS)
    if len({match["file"] for match, _ in named}) < len({match[0] for match, _ in named}):
        return []  # every upload has an id of its own
    owners: dict[str, _Owner] = {}
    for match, file in named:
        student_id = match["id"] or match["anonymous"]
        name = match["name"] or match["anonymous"]
        owner = owners.setdefault(student_id, _Owner(name, student_id, system=CANVAS_SYSTEM))
        owner.is_late |= bool(match["late"] or match["anonymous_late"])
        original = match["original"] if len(file.name.parts) == 1 else file.name.name
        feedback_name = f"{match[0].removesuffix(match['original'])}feedback.txt"
        owner.add(file, original, int(match["file"]), feedback_name)
    return list(owners.values())


def _moodle(files: Sequence[UploadedFile]) -> list[_Owner]:
    """The owners of a download from Moodle, with or without folders; empty if it is not one."""
    owners: dict[str, _Owner] = {}
    for match, file in _matching(files, MOODLE):
        student = f"{match['name']}_{match['id']}" if match["id"] else match["name"]
        owner = owners.setdefault(student, _Owner(match["name"], match["id"] or "", system="moodle"))
        original = match["original"] if len(file.name.parts) == 1 else file.name.name
        owner.add(file, original, feedback_name=f"{student}_assignsubmission_file_/feedback.txt")
    return list(owners.values())


def _matching(files: Sequence[UploadedFile], pattern: re.Pattern[str]) -> list[tuple[re.Match[str], UploadedFile]]:
    """The files whose first folder, or name, matches; none unless that is so for all solutions."""
    files = _without_common_folder(files, lambda files: not pattern.fullmatch(files[0].name.parts[0]))
    matches = [(pattern.fullmatch(file.name.parts[0]), file) for file in files]
    solutions = [match for match, file in matches if not file.is_other]
    if not solutions or not all(solutions):
        return []
    return [(match, file) for match, file in matches if match]


def _gradescope(upload: Sequence[UploadedFile]) -> list[_Owner]:
    """The owners of an export from Gradescope; empty if there is no list of names in it."""
    metadata = next((file for file in upload if file.name.name == METADATA_NAME), None)
    if metadata is None:
        return []
    owners = []
    submitters = parse_submitters(read_file(metadata.path, MAX_METADATA_BYTES).decode("utf-8", "replace"))
    for folder, people in submitters.items():
        files = [file for file in upload if file.name.is_relative_to(metadata.name.parent / folder)]
        for person in people or [{}]:
            owner = _Owner(person.get("name") or folder, person.get("sid", ""), person.get("email", ""), "gradescope")
            for file in files:
                owner.add(file, file.name.name)
            owners.append(owner)
    return owners


def parse_submitters(text: str) -> dict[str, list[dict[str, str]]]:
    """The name, sid and email of each submission's submitters, from Gradescope's submission_metadata.yml.

    Only the part of YAML that Gradescope writes is understood. Everything else in the file, such as the results of
    tests, is skipped.
    """
    submitters: dict[str, list[dict[str, str]]] = {}
    people: list[dict[str, str]] = []
    in_list, list_indent = False, 0
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if key := re.fullmatch(r"(\"?'?)([^\s:'\"][^:'\"]*)\1:\s*", line):
            people = submitters.setdefault(key[2], [])
            in_list = False
        elif re.fullmatch(r"\s+:submitters:\s*", line):
            in_list, list_indent = True, indent
        elif in_list and (entry := re.fullmatch(r"\s*(-\s+)?:(\w+):\s*(.*)", line)):
            if not entry[1] and indent <= list_indent:
                in_list = False
                continue
            if entry[1]:
                people.append({})
            if people:
                people[-1][entry[2]] = _scalar(entry[3])
        elif line.strip():
            in_list = False
    return submitters


def _scalar(text: str) -> str:
    """A YAML scalar as text."""
    text = text.strip()
    if text.startswith('"'):
        with suppress(ValueError):
            return str(json.loads(re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", text)))
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return "" if text in ("null", "~") else text


def _folders(files: Sequence[UploadedFile], is_answer: IsAnswer) -> list[_Owner]:
    """The owners in a folder of any layout: a subfolder or a file for each student.

    Several solutions in a subfolder are versions of one if only the numbers in their names differ. Otherwise they may
    belong to different students, and each is listed.
    """

    def has_several_students(files: Sequence[UploadedFile]) -> bool:
        answers = {_stem(file.name.parts[1]) for file in files if not file.problem and is_answer(file.path)}
        return len(answers) > 1 or all(len(file.name.parts) > 2 for file in files)

    groups: dict[str, list[UploadedFile]] = defaultdict(list)
    for file in _without_common_folder(files, has_several_students):
        groups[file.name.parts[0]].append(file)
    owners = []
    for first_part, members in groups.items():
        is_file = len(members[0].name.parts) == 1
        owner = _Owner(PurePosixPath(first_part).stem if is_file else first_part.removesuffix(ARCHIVE_SUFFIX))
        for file in members:
            owner.add(file, file.name.name)
        answers = [file for file in members if not file.problem and is_answer(file.path)]
        if len({_stem(file.name.name) for file in answers}) == 1 or len(answers) < 2:
            owners.append(owner)
            continue
        for file in answers:
            owners.append(_Owner(str(file.name.with_suffix(""))))
            owners[-1].add(file, file.name.name)
    return owners


def _without_common_folder(
    files: Sequence[UploadedFile], is_common: Callable[[Sequence[UploadedFile]], bool]
) -> Sequence[UploadedFile]:
    """The files, named relative to the folder that contains all of them, such as one that a zip program added."""
    while files and len({file.name.parts[0] for file in files}) == 1:
        if any(len(file.name.parts) == 1 for file in files) or not is_common(files):
            break
        files = [replace(file, name=PurePosixPath(*file.name.parts[1:])) for file in files]
    return files
