"""Check a solution: which assignment it answers, what it gets right, which mistake it makes, its points and remarks."""

import difflib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from regard.course.assignment import ASSIGNMENTS_FOLDER, Assignment, Mistake, load_assignment, load_assignments
from regard.course.diagnose import Diagnosis, diagnose, matcher_for
from regard.course.grading import Grade, Mark, grade
from regard.course.missing_returns import NO_RETURN, explain_missing_returns
from regard.course.mistake_catalogue import load_catalogue
from regard.course.observe import Failure, SolutionRun
from regard.course.shape_comments import ShapeRemark, shape_remarks
from regard.course.solution_file import Solution, read_solution
from regard.course.solution_process import Limits
from regard.course.solution_runner import observe_in_subprocess
from regard.course.style import StyleRemark, style_remarks
from regard.course.unfinished import find_gaps, is_untouched
from regard.course.unusual_code import UnusualLine, unusual_lines
from regard.course.worked_example import wrong_shapes
from regard.errors import RegardError

MIN_SHARE_OF_NAMES = 0.5
"""Minimum share of an assignment's names that a file must define to count as a solution of it."""
MAX_SIMILAR_NAMES = 2
"""Maximum number of similar names in an error message."""
MAX_EXPECTED_NAMES = 6
"""Maximum number of expected names in an error message."""
_IN_PROCESS = threading.Lock()
"""Held while the reference and variants run in this process, whose random state is shared by all threads."""


@dataclass(frozen=True)
class CheckReport:
    """Everything that was found out about a solution."""

    path: Path
    assignment: Assignment
    solution: Solution
    run: SolutionRun
    reference: SolutionRun
    """The run of the reference solution."""
    diagnosis: Diagnosis
    catalogue: Mapping[str, Mistake]
    missing: tuple[str, ...]
    """Names that the solution should define but does not."""
    gaps: tuple[tuple[str, int], ...]
    """Functions that still have to be written, with their lines."""
    is_started: bool
    """Whether the file differs from the starter."""
    shapes: tuple[ShapeRemark, ...]
    style: tuple[StyleRemark, ...]

    @property
    def passed(self) -> bool:
        """Whether the solution is correct."""
        return self.diagnosis.passed

    @property
    def ran(self) -> bool:
        """Whether the file could be run at all."""
        return "" not in self.run.failures

    @property
    def status(self) -> int:
        """The exit status of the command: 0 if correct, 1 if not, 2 if the file could not be run."""
        if self.passed:
            return 0
        return 1 if self.ran else 2

    @cached_property
    def grade(self) -> Grade:
        """The points, and what each mistake costs."""
        return grade(
            self.assignment,
            self.diagnosis,
            self.catalogue,
            self.solution.source,
            bool(self.gaps),
            len(self.shapes),
            len(self.style),
        )

    @property
    def marks(self) -> Mapping[str, Mark]:
        """Points scored and points possible, for each probe and then for style, shape comments and brevity."""
        return self.grade.marks

    @property
    def points(self) -> float:
        """The total number of points scored."""
        return self.grade.points

    @property
    def max_points(self) -> float:
        """The total number of points possible."""
        return self.grade.max_points

    @cached_property
    def unusual(self) -> list[UnusualLine]:
        """Lines that a teacher may want to read, because a solution has no use for what they do."""
        return unusual_lines(self.solution.source)

    @property
    def wrong_shapes(self) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
        """The expected and the actual shape of each value with a wrong shape."""
        return wrong_shapes(self.run, self.reference)

    def title_of(self, mistake_id: str) -> str:
        """The title of a mistake, or its id if the catalogue does not have it."""
        return self.catalogue[mistake_id].title if mistake_id in self.catalogue else mistake_id


def check(
    path: Path,
    name: str | None = None,
    course: Path = ASSIGNMENTS_FOLDER,
    limits: Limits | None = None,
    others: Sequence[tuple[str, Path]] = (),
    hidden: Path | None = None,
) -> CheckReport:
    """Check a solution of the named assignment, or of the one whose names it defines; a RegardError if none fits.

    The solution can import `others`, further files of the student under these names. `hidden` is a file with a
    teacher's own probes.
    """
    solution = read_solution(path)
    assignment = load_assignment(name, course) if name else assignment_of(solution, path, course)
    if hidden is not None:
        assignment = assignment.with_hidden(hidden.resolve())
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(observe_in_subprocess, path, assignment, limits or Limits(), others)
        with _IN_PROCESS:
            matcher_for(assignment).prepare(running.done)
        run = running.result()
    with _IN_PROCESS:
        diagnosis = diagnose(run, assignment, solution.source)
        failures = explain_missing_returns(diagnosis.failures, solution.source, assignment.reference)
        reference = matcher_for(assignment).reference
    ran = "" not in run.failures
    return CheckReport(
        path=path,
        assignment=assignment,
        solution=solution,
        run=run,
        reference=reference,
        diagnosis=replace(diagnosis, failures=failures),
        catalogue=load_catalogue(course),
        missing=tuple(name for name in assignment.defines if name not in solution.names),
        gaps=tuple(find_gaps(solution.source)),
        is_started=not is_untouched(solution.source, assignment.starter),
        shapes=tuple(shape_remarks(solution.source, run.traced, assignment.sizes)) if ran else (),
        style=tuple(style_remarks(solution.source, bool(solution.cells))) if ran else (),
    )


class UnknownAssignmentError(RegardError):
    """A file that does not answer any assignment. `reason` is the message without the list of expected names."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def assignment_of(solution: Solution, path: Path, course: Path = ASSIGNMENTS_FOLDER) -> Assignment:
    """The assignment that a solution answers. If none is recognised, a syntax error is reported first."""
    try:
        return identify_assignment(solution.names, load_assignments(course), path)
    except UnknownAssignmentError:
        if (syntax_error := solution.syntax_error) is None:
            raise
        line, message = syntax_error
        reason = f"{solution.where(line)}: SyntaxError: {message}"
        raise UnknownAssignmentError(f"{path}, {reason}", reason) from None


def identify_assignment(names: frozenset[str], candidates: Sequence[Assignment], path: Path) -> Assignment:
    """The assignment with the largest share of its names defined, if the share is large enough."""
    shares = [
        (len(names.intersection(candidate.defines)) / len(candidate.defines), len(candidate.defines), candidate)
        for candidate in candidates
    ]
    best = max(shares, key=lambda share: share[:2], default=None)
    if best is not None and best[0] >= MIN_SHARE_OF_NAMES:
        return best[2]
    wanted = sorted({name for candidate in candidates for name in candidate.defines})
    similar = [
        f"did you mean {close[0]} instead of {name}?"
        for name in sorted(names)
        if (close := difflib.get_close_matches(name, wanted))
    ]
    expected = ", ".join(candidate.defines[0] for candidate in candidates[:MAX_EXPECTED_NAMES])
    hint = f" ({' '.join(similar[:MAX_SIMILAR_NAMES])})" if similar else ""
    reason = f"does not answer any assignment{hint}"
    raise UnknownAssignmentError(
        f"{path.name} {reason}. It should define the names of one, such as {expected}; "
        "or choose the assignment with --assignment",
        reason,
    )


def explain_failure(failure: Failure) -> str:
    """An error in words that say what the checker expected, where the error's class tells."""
    message = failure.message
    if failure.kind == NO_RETURN:
        return message
    if failure.kind == "NotImplementedError":
        return "this part still has to be written"
    if failure.line is None:
        if failure.kind == "KeyError":
            return f"{message} is not defined at the top level of the file"
        if failure.kind == "AttributeError":
            return f"the checker needs an attribute that does not exist: {message}"
        if failure.kind == "TypeError":
            return f"it cannot be called the way the assignment describes: {message}"
    return f"{failure.kind}: {message}" if message else failure.kind
