"""A class: every submission is checked; who made which mistake, and what to review."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from regard.course.assignment import ASSIGNMENTS_FOLDER, Mistake, load_assignment, load_assignments
from regard.course.check import CheckReport, UnknownAssignmentError, check, identify_assignment
from regard.course.roster import Roster, Student, match_roster
from regard.course.similar_files import SimilarPair, find_similar
from regard.course.solution_file import read_solution
from regard.course.submissions import NOTHING_HANDED_IN, IsAnswer, Submission, find_submissions, only_submission
from regard.course.terminal_report import verdict
from regard.course.uploaded_files import read_upload
from regard.errors import RegardError

NOT_STARTED, UNFINISHED, NOT_HANDED_IN = "not started", "not finished", "not handed in"
UNKNOWN_MISTAKE, NOT_RUN = "unknown mistake", "could not be run"
OTHER_STATES = (UNKNOWN_MISTAKE, UNFINISHED, NOT_STARTED, NOT_RUN, NOT_HANDED_IN)
"""Why solutions are not correct, other than a mistake from the catalogue."""

MistakeTally = tuple[str, Mistake | None, list[str]]
"""The id of a mistake, its entry in the catalogue, and the names of the students who made it."""


@dataclass(frozen=True)
class ClassMember:
    """A submission, and the student of the class list who handed it in, if there is a list and the student is on it."""

    submission: Submission
    student: Student | None = None


@dataclass(frozen=True)
class StudentResult:
    """The result of one student."""

    member: ClassMember
    report: CheckReport | None
    error: str = ""
    """Why there is no report."""

    @property
    def name(self) -> str:
        """The student's name, as far as it is known."""
        return self.member.submission.name

    @property
    def id(self) -> str:
        """The id of the class list, or else of the download."""
        return self.member.student.id if self.member.student else self.member.submission.id

    @property
    def email(self) -> str:
        """The email address, as far as it is known."""
        return self.member.student.email if self.member.student else self.member.submission.email

    @property
    def path(self) -> Path | None:
        """The file that was checked."""
        return self.member.submission.path

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
        if self.error == NOTHING_HANDED_IN:
            return NOT_HANDED_IN
        if self.report is None or not self.report.ran:
            return NOT_RUN
        if not self.report.is_started:
            return NOT_STARTED
        return UNFINISHED if self.report.gaps else UNKNOWN_MISTAKE

    @property
    def unusual(self) -> str:
        """The lines of the solution that a teacher may want to read, as text."""
        if self.report is None:
            return ""
        return "; ".join(f"{self.report.solution.where(line.line)}: {line.text}" for line in self.report.unusual)

    @property
    def points(self) -> str:
        """The points scored, as text."""
        return "" if self.report is None else f"{self.report.points:g}"


def read_class(
    path: Path,
    scratch: Path,
    assignment: str | None = None,
    course: Path = ASSIGNMENTS_FOLDER,
    roster: Roster | None = None,
) -> list[ClassMember]:
    """The submissions in a folder or a downloaded zip file, which is unpacked into `scratch`.

    With a class list, each of its students is listed. A RegardError if there is nothing to check.
    """
    submissions = find_submissions(read_upload(path, scratch), _answer_test(assignment, course))
    if not submissions:
        raise RegardError(f"{path} contains no solutions (.py or .ipynb files)")
    if roster is None:
        return [ClassMember(submission) for submission in submissions]
    return [ClassMember(submission, student) for student, submission in match_roster(submissions, roster)]


def read_one(path: Path, scratch: Path, assignment: str | None = None, course: Path = ASSIGNMENTS_FOLDER) -> Submission:
    """The submission of one student: a file, or a folder or zip file in which the solution is found."""
    if path.suffix != ".zip" and not path.is_dir():
        return Submission(path.stem, path)
    return only_submission(read_upload(path, scratch), _answer_test(assignment, course))


def _answer_test(assignment: str | None, course: Path) -> IsAnswer:
    """Whether a file answers the assignment, or any assignment of the course if none is given."""
    candidates = [load_assignment(assignment, course)] if assignment else load_assignments(course)

    @cache
    def is_answer(path: Path) -> bool:
        with suppress(RegardError, OSError):
            identify_assignment(read_solution(path).names, candidates, path)
            return True
        return False

    return is_answer


def check_class(
    members: Sequence[ClassMember],
    assignment: str | None = None,
    course: Path = ASSIGNMENTS_FOLDER,
    jobs: int | None = None,
    hidden: Path | None = None,
) -> Iterator[StudentResult]:
    """Check all submissions, `jobs` at a time, and yield the results in their order. A bad file gives a result too.

    The submission of a group is checked once. `hidden` is a file with a teacher's own probes.
    """
    paths = [member.submission.path for member in members if member.submission.path is not None]
    most_common = assignment or _most_common_assignment(paths, course)
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        running: dict[Path, Future[tuple[CheckReport | None, str]]] = {}
        for member in members:
            if (path := member.submission.path) is not None and path not in running:
                running[path] = pool.submit(_check_file, member.submission, assignment, course, most_common, hidden)
        for member in members:
            submission = member.submission
            if submission.path is None:
                yield StudentResult(member, None, submission.problem)
            else:
                yield StudentResult(member, *running[submission.path].result())


def _most_common_assignment(paths: Sequence[Path], course: Path) -> str | None:
    """The assignment that most of a class answer, as far as it is recognised."""
    counts: Counter[str] = Counter()
    candidates = load_assignments(course)
    for path in paths:
        with suppress(RegardError, OSError):
            counts[identify_assignment(read_solution(path).names, candidates, path).name] += 1
    return counts.most_common(1)[0][0] if counts else None


def _check_file(
    submission: Submission, assignment: str | None, course: Path, most_common: str | None, hidden: Path | None
) -> tuple[CheckReport | None, str]:
    """The report, or why there is none. If a syntax error hides a file's names, it is assumed to answer the most common
    assignment."""
    path = submission.path
    if path is None:
        return None, submission.problem
    try:
        try:
            return check(path, assignment, course, others=submission.others, hidden=hidden), ""
        except UnknownAssignmentError:
            if most_common is None or read_solution(path).syntax_error is None:
                raise
            return check(path, most_common, course, others=submission.others, hidden=hidden), ""
    except UnknownAssignmentError as error:
        return None, error.reason
    except RegardError as error:
        return None, str(error)
    except Exception as error:  # whatever it is, the other students' files must still be checked
        return None, f"{type(error).__name__}: {error}"


def similar_pairs(students: Sequence[StudentResult]) -> list[SimilarPair]:
    """The pairs of students whose files for the same assignment are nearly the same."""
    files: dict[Path | None, StudentResult] = {}
    for student in students:
        files.setdefault(student.path, student)  # the members of a group share a file
    by_assignment: dict[str, list[CheckReport]] = defaultdict(list)
    for student in files.values():
        if student.report is not None:
            by_assignment[student.report.assignment.name].append(student.report)
    pairs: list[SimilarPair] = []
    for reports in by_assignment.values():
        sources = {str(report.path): report.solution.source for report in reports}
        pairs += find_similar(sources, [reports[0].assignment.starter])
    return [replace(pair, names=(files[Path(pair.names[0])].name, files[Path(pair.names[1])].name)) for pair in pairs]


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


def missing_isolation(students: Iterable[StudentResult]) -> list[str]:
    """A sentence for each layer of isolation that this system does not have."""
    runs = [student.report.run for student in students if student.report is not None]
    return list(dict.fromkeys(note for run in runs for note in run.missing_isolation))
