"""A solution, checked: which assignment it answers, what it does, which mistake it makes, its points and remarks."""

import difflib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from regard.course.assignment import HERE, Assignment, Mistake, assignment, assignments
from regard.course.diagnose import Diagnosis, bench_of, diagnose
from regard.course.missing_returns import KIND, told_of_returns
from regard.course.mistake_catalogue import bank
from regard.course.notebook import Solution, read_solution
from regard.course.observe import Failure, Observed
from regard.course.sandbox import Limits, observe_apart
from regard.course.shape_comments import Remark, shape_remarks
from regard.course.style import StyleRemark, longest_function, style_remarks
from regard.course.unfinished import gaps, is_same_code
from regard.course.worked_example import wrong_shapes
from regard.errors import RegardError

ENOUGH = 0.5
"""of an assignment's names: a file that defines so many of them is meant for it"""
MOST_NEAR = 2
"""names that are nearly right, of those that are told"""
_ALONE = threading.Lock()
"""the reference and its variants run in this process, where chance is common to all"""


@dataclass(frozen=True)
class Report:
    """All that is said of a solution."""

    path: Path
    assignment: Assignment
    solution: Solution
    seen: Observed
    right: Observed
    """what was seen of the reference"""
    diagnosis: Diagnosis
    bank: Mapping[str, Mistake]
    missing: tuple[str, ...]
    """names that it should define and does not"""
    gaps: tuple[tuple[str, int], ...]
    """functions that are still to be written, with their lines"""
    begun: bool
    """not so of the starter as it was given"""
    shapes: tuple[Remark, ...]
    style: tuple[StyleRemark, ...]

    @property
    def passed(self) -> bool:
        """Whether all is right."""
        return self.diagnosis.passed

    @property
    def ran(self) -> bool:
        """Whether the file could be run at all."""
        return "" not in self.seen.failures

    @property
    def status(self) -> int:
        """The command's: 0 when all is right, 1 when something is not, 2 when the file could not be run."""
        return 0 if self.passed else 1 if self.ran else 2

    @property
    def marks(self) -> dict[str, tuple[float, float]]:
        """Points got and points to get: of each probe, then of style and of brevity where they carry some."""
        of, right = self.assignment, self.diagnosis.right
        marks = {name: (float(points) if name in right else 0.0, float(points)) for name, points in of.points.items()}
        if of.style_points:
            has_style = self.style_counts and not self.style
            marks["style"] = (float(of.style_points) if has_style else 0.0, float(of.style_points))
        if of.brevity_points:
            marks["brevity"] = (float(of.brevity_points) if self.is_brief else 0.0, float(of.brevity_points))
        return marks

    @property
    def style_counts(self) -> bool:
        """Whether there is enough to have a style: some probe is right, and nothing is left to be written."""
        return self.diagnosis.points > 0 and not self.gaps

    @property
    def is_brief(self) -> bool:
        """Right, and no function of it longer than what the assignment calls brief."""
        return self.passed and longest_function(self.solution.source) <= self.assignment.brevity_lines

    @property
    def points(self) -> float:
        """All points got."""
        return float(sum(got for got, _ in self.marks.values()))

    @property
    def most_points(self) -> float:
        """All points to get."""
        return float(sum(most for _, most in self.marks.values()))

    @property
    def wrong_shapes(self) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
        """Of values that have another shape than they should: the shape expected, and the shape got."""
        return wrong_shapes(self.seen, self.right)


def check(path: Path, name: str | None = None, course: Path = HERE, limits: Limits | None = None) -> Report:
    """Check a solution; of which assignment, its names tell if nothing does. A ValueError where that cannot be told."""
    solution = read_solution(path)
    of = assignment(name, course) if name else answered(solution, path, course)
    with ThreadPoolExecutor(1) as apart:
        running = apart.submit(observe_apart, path, of, limits or Limits())
        with _ALONE:
            bench_of(of).prepare(running.done)
        seen = running.result()
    with _ALONE:
        told = diagnose(seen, of, solution.source)
        told = replace(told, failures=told_of_returns(told.failures, solution.source, of.reference))
        right = bench_of(of).right
    ran = "" not in seen.failures
    return Report(
        path=path,
        assignment=of,
        solution=solution,
        seen=seen,
        right=right,
        diagnosis=told,
        bank=bank(course),
        missing=tuple(each for each in of.defines if each not in solution.names),
        gaps=tuple(gaps(solution.source)),
        begun=not is_same_code(solution.source, of.starter),
        shapes=tuple(shape_remarks(solution.source, seen.held, of.sizes)) if ran else (),
        style=tuple(style_remarks(solution.source, bool(solution.cells))) if ran else (),
    )


class UnknownAssignmentError(RegardError):
    """A file that answers no assignment; `why` says so without the names that were looked for."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


def answered(solution: Solution, path: Path, course: Path = HERE) -> Assignment:
    """The assignment that a solution answers; where nothing tells, what it lacks to be Python comes first."""
    try:
        return find_assignment(solution.names, assignments(course), path)
    except UnknownAssignmentError:
        if (broken := solution.syntax_error) is None:
            raise
        said = f"{solution.where(broken[0])}: SyntaxError: {broken[1]}"
        raise UnknownAssignmentError(f"{path}, {said}", said) from None


def find_assignment(names: frozenset[str], among: Sequence[Assignment], path: Path) -> Assignment:
    """The assignment whose names a file defines: all of them, else the most, if those are enough."""
    shares = [(len(names.intersection(each.defines)) / len(each.defines), len(each.defines), each) for each in among]
    best = max(shares, key=lambda each: each[:2], default=None)
    if best is not None and best[0] >= ENOUGH:
        return best[2]
    wanted = sorted({name for each in among for name in each.defines})
    near = [
        f"{name} is near {close[0]}" for name in sorted(names) if (close := difflib.get_close_matches(name, wanted))
    ]
    looked = ", ".join(each.defines[0] + (" …" if len(each.defines) > 1 else "") for each in among)
    hint = f" ({'; '.join(near[:MOST_NEAR])})" if near else ""
    why = f"answers no assignment{hint}"
    raise UnknownAssignmentError(f"{path.name} {why}. Looked for: {looked}; or name one by --assignment.", why)


def explained(failure: Failure) -> str:
    """An error in words that say what the checker wanted, where its class tells that."""
    message = failure.message
    if failure.kind == KIND:
        return message
    if failure.kind == "KeyError" and failure.line is None:
        return f"{message} is not defined at the top of the file"
    if failure.kind == "AttributeError" and failure.line is None:
        return f"the checker looked for something that is not there: {message}"
    if failure.kind == "TypeError" and failure.line is None:
        return f"it cannot be called as the assignment says: {message}"
    if failure.kind == "NotImplementedError":
        return "this part is still to be written"
    return f"{failure.kind}: {message}" if message else failure.kind
