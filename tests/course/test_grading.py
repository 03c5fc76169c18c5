"""Points: what parts give, what mistakes cost, and what shape comments, style and brevity add."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.course.assignment import Assignment, load_assignment, load_assignments
from regard.course.diagnose import Diagnosis, MistakeMatch
from regard.course.grading import Grade, Mark, grade
from regard.course.mistake_catalogue import load_catalogue
from regard.course.mistake_location import StageProgress
from regard.course.observe import Failure
from regard.course.style import forward_statements

SHORT = (
    "class MultiHeadSelfAttention:\n    def forward(self, x):\n        '''Text.'''\n        y = x\n        return y\n"
)
TOTAL = 18.0
"""Points of the parts of the assignment multi-head-self-attention, added up by hand."""


@pytest.fixture(scope="module")
def heads() -> Assignment:
    assignment = load_assignment("multi-head-self-attention")
    assert sum(assignment.points.values()) == TOTAL
    return assignment


def graded(of: Assignment, right: str = "", source: str = SHORT, **findings: Any) -> Grade:
    """The grade of a solution with these right probes, mistakes and remarks."""
    options = {name: findings.pop(name, 0) for name in ("has_gaps", "shape_remarks", "style_remarks")}
    probes = tuple(of.points) if right == "all" else tuple(right.split())
    diagnosis = Diagnosis(
        passed=right == "all",
        mistakes=tuple(MistakeMatch(name, None) for name in findings.pop("mistakes", ())),
        possible=findings.pop("possible", ()),
        progress=findings.pop("progress", None),
        right=probes,
        points=float(sum(of.points[probe] for probe in probes)),
        failures=findings.pop("failures", {}),
    )
    assert not findings
    return grade(of, diagnosis, load_catalogue(), source, **options)


def test_a_correct_solution_gets_all_points_and_a_short_one_more(heads: Assignment) -> None:
    best = graded(heads, "all")
    assert (best.points, best.max_points, best.changes()) == (20, 19, ["brevity +1"])
    assert heads.max_points == best.max_points
    longer = SHORT.replace("y = x\n", "y = x; z = y; y = z\n")
    assert graded(heads, "all", longer).points == 19
    assert graded(heads, "all", shape_remarks=2, style_remarks=1).points == 20 - 1 - 1


def test_one_slip_costs_its_deduction_and_not_every_part(heads: Assignment) -> None:
    slip = graded(heads, "invalid_sizes", mistakes=["no-scaling"])
    assert slip.points == TOTAL - 2 + heads.style_points
    assert slip.marks["invalid_sizes"] == Mark(1, 1)
    assert slip.marks["plain"] == pytest.approx((3 * (1 - 2 / 17), 3))
    assert slip.explain() == "The mistake costs 2 points, not the 17 points of all parts that it breaks."
    both = graded(heads, mistakes=["no-scaling", "causal-mask-missing"])
    assert (both.points, both.changes()) == (TOTAL - 2 - 3 + 1, ["no-scaling -2", "causal-mask-missing -3"])


def test_a_mistake_never_costs_more_than_the_parts_that_it_breaks(heads: Assignment) -> None:
    right = " ".join(probe for probe in heads.points if probe != "invalid_sizes")
    expensive = replace(heads, deductions={"heads-not-checked": 5})
    assert graded(expensive, right, mistakes=["heads-not-checked"]).points == TOTAL - 1 + 1
    assert graded(expensive, right, mistakes=["heads-not-checked"]).explain() == ""


def test_an_assignment_overrides_deductions(heads: Assignment) -> None:
    cheap = replace(heads, deductions={"no-scaling": 0.5})
    assert graded(cheap, mistakes=["no-scaling"]).points == TOTAL - 0.5 + 1
    with pytest.raises(ValueError, match=r"assignment\.toml, \[deductions\]: no-scalin: did you mean 'no-scaling'"):
        graded(replace(heads, deductions={"no-scalin": 1}))
    for value in (-1, "2", True):
        with pytest.raises(ValueError, match="no-scaling must be a number of points, not"):
            graded(replace(heads, deductions={"no-scaling": value}))  # type: ignore[dict-item]


def test_of_mistakes_that_cannot_be_told_apart_the_cheapest_counts(heads: Assignment) -> None:
    unclear = graded(heads, possible=("mask-leaks-future", "no-scaling"))
    assert unclear.deductions == {"no-scaling": 2}


def test_parts_that_are_not_written_get_no_points(heads: Assignment) -> None:
    gaps = {
        "dropout": Failure("NotImplementedError", "", 3),
        "returned": Failure("KeyError", f"'{heads.defines[0]}'", 1),
    }
    unfinished = graded(heads, mistakes=["no-scaling"], failures=gaps, has_gaps=True)
    assert unfinished.points == TOTAL - 2 - 1 - 2
    assert unfinished.marks["dropout"] == Mark(0, 2)
    assert unfinished.marks["style"] == Mark(0, 1)


def test_an_unknown_mistake_leaves_points_for_the_steps_that_are_correct(heads: Assignment) -> None:
    later = graded(heads, progress=StageProgress("weights", "scores", 9))
    assert later.points == TOTAL * 0.5 * 4 / 6 + 1
    assert graded(heads, progress=StageProgress("weights", "scores", 9, ("v",))).points == TOTAL * 0.5 * 3 / 6 + 1
    assert graded(heads, progress=StageProgress("q")).points == 0
    assert graded(heads, progress=StageProgress("weights", "scores", 9), has_gaps=True).points == 0
    assert graded(heads, "example plain attention square", progress=StageProgress("weights", "scores", 9)).points == 11


def test_remarks_never_make_a_total_negative(heads: Assignment) -> None:
    expensive = replace(heads, shape_deduction=50)
    assert graded(expensive, "returned", shape_remarks=1).points == 0


def test_a_copied_assignment_has_points_of_its_own(tmp_path: Path) -> None:
    arguments = ["course", "copy", "self-attention", "--out", str(tmp_path / "mine")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    path = tmp_path / "mine" / "self-attention" / "assignment.toml"
    path.write_text(path.read_text(encoding="utf-8") + "\n[deductions]\nno-scaling = 0.5\n", encoding="utf-8")
    mine = load_assignment("self-attention", tmp_path / "mine")
    assert graded(mine, mistakes=["no-scaling"]).points == mine.max_points - 0.5
    assert "already exists" in str(CliRunner().invoke(app, arguments).exception)
    assert "no-scaling = 0.5" in path.read_text(encoding="utf-8")


def test_every_bundled_deduction_leaves_points() -> None:
    """The most expensive mistake of each assignment costs at most a third of its parts."""
    catalogue = load_catalogue()
    for assignment in load_assignments():
        costs = [catalogue[variant.mistake].deduction for variant in assignment.variants]
        assert 0 < max(costs) <= sum(assignment.points.values()) / 3, assignment.name


def test_statements_of_forward_are_counted() -> None:
    source = """class A:
    def forward(self, x):
        '''Text.'''
        if x:
            x = 1; y = 2
        return [z for z in x]
class B:
    def forward(self, x): return x
"""
    assert forward_statements(source, ["A", "B"]) == 4
    assert forward_statements(source, ["B"]) == 1
    assert forward_statements("def forward(x): return x", ["A"]) == 0
    assert forward_statements("def f(:", ["A"]) == 0
