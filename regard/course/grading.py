"""Points: what each part gives, what each mistake costs, and what style, shape comments and brevity add.

A single slip, such as a missing root, breaks most parts of a solution. So a solution whose mistakes are known loses
their deductions, and never more than the parts that they break. If the mistake is unknown, the steps of the example
that are correct give a share of the points.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from regard.config import did_you_mean
from regard.course.assignment import Assignment, Mistake
from regard.course.diagnose import Diagnosis
from regard.course.style import forward_statements, longest_function
from regard.course.unfinished import unfinished_probes
from regard.errors import RegardError

STYLE, SHAPES, BREVITY = "style", "shape comments", "brevity"
"""Names of the marks that are not for parts."""


class Mark(NamedTuple):
    """Points for a part of a solution. If none are possible, the points are added to or taken from the total."""

    scored: float
    possible: float


@dataclass(frozen=True)
class Grade:
    """The points of a solution."""

    marks: Mapping[str, Mark]
    """The points for each probe, then for style, shape comments and brevity if they count."""
    deductions: Mapping[str, float]
    """What each mistake costs, by its id. Of mistakes that cannot be told apart, only the cheapest counts."""
    lost_by_parts: float
    """Points of the parts that are written and wrong."""
    lost: float
    """Points that are lost for them, which is less if the mistakes are known."""
    is_judged: bool
    """Whether there is enough code to judge its style: at least one part has points and no gap is left."""

    @property
    def points(self) -> float:
        """The total number of points scored, which is never negative."""
        return max(0.0, round(sum(mark.scored for mark in self.marks.values()), 6))

    @property
    def max_points(self) -> float:
        """The total number of points possible, without those for brevity."""
        return float(sum(mark.possible for mark in self.marks.values()))

    def explain(self) -> str:
        """Why wrong parts get points, in one sentence; empty if they get none."""
        if self.lost >= self.lost_by_parts:
            return ""
        if not self.deductions:
            return f"The correct steps of the example count: {self.lost:g} points are lost, not {self.lost_by_parts:g}."
        costs = " + ".join(f"{points:g}" for points in self.deductions.values())
        if len(self.deductions) == 1:
            return (
                f"The mistake costs {costs} points, not the {self.lost_by_parts:g} points of all parts that it breaks."
            )
        return f"The mistakes cost {costs} points, not the {self.lost_by_parts:g} points of all parts that they break."

    def changes(self) -> list[str]:
        """What mistakes, shape comments and brevity take or add, each as a short text such as "no-scaling -2"."""
        costs = [f"{mistake_id} {-points:+g}" for mistake_id, points in self.deductions.items()]
        extra = {name: mark.scored for name, mark in self.marks.items() if not mark.possible and mark.scored}
        return [*costs, *(f"{name} {points:+g}" for name, points in extra.items())]


def grade(
    assignment: Assignment,
    diagnosis: Diagnosis,
    catalogue: Mapping[str, Mistake],
    source: str,
    has_gaps: bool,
    shape_remarks: int,
    style_remarks: int,
) -> Grade:
    """Grade a solution, given what was found out about it and the numbers of remarks."""
    points = {probe: float(value) for probe, value in assignment.points.items()}
    wrong = [probe for probe in points if probe not in diagnosis.right]
    unwritten = unfinished_probes(diagnosis.failures, assignment.defines, source)
    lost_by_parts = sum(points[probe] for probe in wrong if probe not in unwritten)
    deductions = _deductions(assignment, diagnosis, catalogue)
    lost = lost_by_parts
    if deductions:
        lost = min(lost, sum(deductions.values()))
    elif not has_gaps and diagnosis.progress is not None:
        lost = min(lost, sum(points.values()) - _credit_for_progress(assignment, diagnosis))
    kept = 1 - lost / lost_by_parts if lost_by_parts else 0.0
    marks = {probe: Mark(points[probe], points[probe]) for probe in points}
    for probe in wrong:
        marks[probe] = Mark(0.0 if probe in unwritten else points[probe] * kept, points[probe])
    is_judged = not has_gaps and any(mark.scored > 0 for mark in marks.values())
    if assignment.style_points:
        is_clean = is_judged and not style_remarks
        marks[STYLE] = Mark(float(assignment.style_points) if is_clean else 0.0, float(assignment.style_points))
    if assignment.shape_deduction:
        marks[SHAPES] = Mark(-float(assignment.shape_deduction) if is_judged and shape_remarks else 0.0, 0.0)
    if assignment.brevity_points:
        is_brief = diagnosis.passed and is_short(assignment, source)
        marks[BREVITY] = Mark(float(assignment.brevity_points) if is_brief else 0.0, 0.0)
    return Grade(marks, deductions, lost_by_parts, lost, is_judged)


def is_short(assignment: Assignment, source: str) -> bool:
    """Whether a solution keeps to the assignment's limits for brevity."""
    lines, statements = assignment.brevity_lines, assignment.brevity_statements
    return (not lines or longest_function(source) <= lines) and (
        not statements or forward_statements(source, assignment.defines) <= statements
    )


def _deductions(assignment: Assignment, diagnosis: Diagnosis, catalogue: Mapping[str, Mistake]) -> dict[str, float]:
    known = {variant.mistake for variant in assignment.variants}
    for mistake_id, points in assignment.deductions.items():
        where = f"{assignment.folder / 'assignment.toml'}, [deductions]"
        if mistake_id not in known:
            raise RegardError(f"{where}: {mistake_id}: {did_you_mean(mistake_id, sorted(known))}")
        if isinstance(points, bool) or not isinstance(points, int | float) or points < 0:
            raise RegardError(f"{where}: {mistake_id} must be a number of points, not {points!r}")

    def cost(mistake_id: str) -> float:
        default = catalogue[mistake_id].deduction if mistake_id in catalogue else Mistake.deduction
        return float(assignment.deductions.get(mistake_id, default))

    ids = [match.id for match in diagnosis.mistakes]
    if diagnosis.possible:
        ids.append(min(diagnosis.possible, key=cost))
    return {mistake_id: cost(mistake_id) for mistake_id in ids}


def _credit_for_progress(assignment: Assignment, diagnosis: Diagnosis) -> float:
    """Points for the steps of the example that are correct before the first wrong one."""
    progress, stages = diagnosis.progress, assignment.stages
    if progress is None or progress.first_wrong not in stages:
        return 0.0
    correct = stages.index(progress.first_wrong) - len(progress.unseen)
    return sum(assignment.points.values()) * assignment.progress_credit * max(0, correct) / len(stages)
