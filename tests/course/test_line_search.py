"""The line that the checker points at, in homework of various styles."""

import ast
import tomllib
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from regard.course.assignment import Assignment, load_assignment
from regard.course.diagnose import diagnose
from regard.course.line_search import TracedFile, find_line
from regard.course.line_tracing import TracedTensor
from regard.course.mistake_location import edited_lines
from regard.course.observe import EXAMPLE, observe
from regard.course.value_index import Layout, ValueIndex, canonical

SOLUTIONS = Path(__file__).parent / "solutions"


class LineCase(NamedTuple):
    """A mistake in a file, and the lines that may be named for it."""

    file: str
    mistake: str
    old: str
    new: str
    also: tuple[str, ...] = ()


CASES_FILE = Path(__file__).parent / "line_cases.toml"
LINE_CASES = [
    LineCase(**{**case, "also": tuple(case.get("also", ()))})
    for case in tomllib.loads(CASES_FILE.read_text(encoding="utf-8"))["case"]
]
QUICK = [
    ("multi-head-self-attention/helpers", {"softmax-wrong-axis", "value-from-query", "mask-leaks-future"}),
    ("multi-head-attention/student", {"keys-and-values-swapped", "heads-by-reshape"}),
    ("self-attention/student", {"no-scaling", "key-from-query", "weights-returned"}),
    ("annotated/lecture", {"encoder-output-unused", "target-mask-unused", "residual-missing"}),
    ("multi-head-self-attention/head_class", {"mask-hides-present", "softmax-wrong-axis", "scaled-by-wrong-width"}),
    ("multi-head-self-attention/merged_heads", {"mask-inverted", "heads-merged-without-transpose"}),
    ("self-attention/token_by_token", {"key-from-query"}),
    ("positions/helpers", {"rotary-backwards", "rotary-sign-missing"}),
    ("training-loop/helpers", {"smoothing-not-taken-away"}),
    ("kv-cache/helpers", {"cache-positions-wrong"}),
    ("annotated/helpers", {"target-masked-as-source", "one-projection-for-all"}),
]
"""Cases that run by default: wiring, a missing step, helper functions and classes, loops over tokens, a right value in
a wrong place."""


@cache
def assignment_of(case: LineCase) -> Assignment:
    return load_assignment(case.file.partition("/")[0])


def right_source(case: LineCase) -> str:
    return (SOLUTIONS / f"{case.file}.py").read_text(encoding="utf-8")


def expected_lines(case: LineCase) -> set[int]:
    right = right_source(case)
    source = right.replace(case.old, case.new)
    tree = ast.parse(source)
    spans = {
        node.name: range(node.lineno, (node.end_lineno or 0) + 1)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    lines = set(edited_lines(source, right))
    for text, _, name in (line.partition("@") for line in case.also):
        numbers = [number for number, line in enumerate(source.split("\n"), 1) if line.strip() == text]
        lines |= {number for number in numbers if not name or number in spans[name]}
    return lines


def score(case: LineCase) -> str:
    """Whether the line that is named for a case is exact or wrong; or "none", or "unknown mistake"."""
    right = right_source(case)
    assert right.count(case.old) == 1
    source = right.replace(case.old, case.new)
    found = diagnose(observe(source, assignment_of(case)), assignment_of(case), source)
    lines = [match.line for match in found.mistakes if match.id == case.mistake]
    if not lines:
        return "unknown mistake"
    if lines[0] is None:
        return "none"
    return "exact" if lines[0] in expected_lines(case) else "wrong"


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in LINE_CASES for file, mistakes in QUICK if case.file == file and case.mistake in mistakes],
    ids=lambda case: f"{case.file}-{case.mistake}",
)
def test_the_exact_line_is_named(case: LineCase) -> None:
    """Only the example runs here, which is fast; the long test below makes the complete diagnosis."""
    assignment = replace(assignment_of(case))
    vars(assignment)["probes"] = {EXAMPLE: assignment.probes[EXAMPLE]}
    right, source = right_source(case), right_source(case).replace(case.old, case.new)
    reference = assignment.reference
    variants = [variant.applied_to(reference) for variant in assignment.variants if variant.mistake == case.mistake]
    solution, *versions = [
        TracedFile(text, observe(text, assignment).traced) for text in (source, reference, *variants)
    ]
    found = [find_line(solution, wrong, versions[0]) for wrong in versions[1:]]
    assert right != source
    assert any(line is not None and line.line in expected_lines(case) for line in found)


@pytest.mark.long
def test_most_lines_are_exact_and_few_are_wrong() -> None:
    counts = Counter(score(case) for case in LINE_CASES)
    scored = counts["exact"] + counts["wrong"] + counts["none"]
    assert scored >= 90
    assert counts["exact"] >= 0.88 * scored, counts
    assert counts["wrong"] <= 0.03 * scored, counts


def traced(line: int, name: str, values: list[float], *callers: int) -> TracedTensor:
    return TracedTensor(line, name, torch.tensor(values), callers=callers)


def test_the_function_of_the_same_name_is_searched_first() -> None:
    """The wrong value passes through `other` first, but the mistake is in `make`."""
    source = "def make(x):\n    y = 2 * x\n    return y\ndef other(x):\n    return 1 * x\n"
    right = TracedFile(source, [traced(2, "y", [2.0, 4.0, 6.0])])
    wrong = TracedFile(source.replace("2", "3"), [traced(2, "y", [3.0, 6.0, 9.0])])
    solution = TracedFile(
        "def other(x):\n    return x\ndef make(x):\n    z = other(3 * x)\n    return z\n",
        [traced(2, "return", [3.0, 6.0, 9.0], 4), traced(4, "z", [3.0, 6.0, 9.0])],
    )
    found = find_line(solution, wrong, right)
    assert found is not None
    assert (found.line, found.by_values) == (4, True)


def test_no_line_is_named_without_evidence() -> None:
    right = TracedFile("def make(x):\n    y = 2 * x\n    return y\n", [traced(2, "y", [2.0, 4.0, 6.0])])
    wrong = TracedFile("def make(x):\n    y = 3 * x\n    return y\n", [traced(2, "y", [3.0, 6.0, 9.0])])
    solution = TracedFile("def make(x):\n    return run(x)\n", [traced(2, "return", [5.0, 7.0, 8.0])])
    assert find_line(solution, wrong, right) is None


def test_the_search_ends_where_functions_call_each_other() -> None:
    source = "def make(x):\n    return even(2 * x)\ndef even(x):\n    return odd(x)\ndef odd(x):\n    return even(x)\n"
    right = TracedFile(source, [traced(6, "return", [2.0, 4.0, 6.0])])
    wrong = TracedFile(source.replace("return even(x)", "return even(-x)"), [traced(6, "return", [-2.0, -4.0, -6.0])])
    solution = TracedFile("def run(x):\n    return x\n", [traced(2, "return", [5.0, 7.0, 8.0])])
    assert find_line(solution, wrong, right) is None


def test_values_are_found_in_other_layouts() -> None:
    value = torch.arange(24.0).reshape(2, 3, 4)
    index = ValueIndex(
        [TracedTensor(1, "x", value.transpose(1, 2).reshape(8, 3)), TracedTensor(2, "y", torch.ones(24))]
    )
    assert [list(index.find(value, layout)) for layout in Layout] == [[], [], [0]]
    assert not index.contains(value.flip(0), Layout.PERMUTED)


def test_masks_are_equal_however_they_are_written() -> None:
    mask = torch.ones(3, 3).tril().bool()
    index = ValueIndex([TracedTensor(1, "mask", torch.zeros(3, 3).masked_fill(~mask, -torch.inf))])
    assert index.contains(mask, Layout.SAME)
    assert index.contains(~mask, Layout.SAME)
    assert not index.contains(mask.T, Layout.PERMUTED)
    assert canonical(torch.ones(3)) is None
