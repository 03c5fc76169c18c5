"""Single mistakes are named exactly in homework of many styles, also in unfinished files."""

import tomllib
from pathlib import Path

import pytest

from regard.course.assignment import Variant, load_assignment
from regard.course.diagnose import Diagnosis, diagnose
from regard.course.observe import SolutionRun, observe
from regard.course.unfinished import find_gaps

SOLUTIONS = Path(__file__).parent / "solutions"
CASES = [
    pytest.param(
        solution,
        Variant(mistake, tuple((old, new) for old, new in edits)),
        id=f"{number}-{solution}-{mistake}",
        marks=[pytest.mark.slow, *(() if solution.startswith("self-attention") else (pytest.mark.long,))],
    )
    for number, (solution, mistake, edits) in enumerate(
        tomllib.loads((SOLUTIONS / "mistakes.toml").read_text("utf-8"))["cases"]
    )
]


def run_source(name: str, source: str) -> tuple[SolutionRun, Diagnosis]:
    assignment = load_assignment(name)
    run = observe(source, assignment)
    return run, diagnose(run, assignment, source)


def named(diagnosis: Diagnosis) -> tuple[list[str], tuple[str, ...]]:
    return [match.id for match in diagnosis.mistakes], diagnosis.possible


@pytest.mark.parametrize(("solution", "variant"), CASES)
def test_a_single_mistake_is_named_exactly(solution: str, variant: Variant) -> None:
    right = (SOLUTIONS / f"{solution}.py").read_text(encoding="utf-8")
    _, diagnosis = run_source(solution.split("/")[0], variant.applied_to(right))
    assert not diagnosis.passed
    assert named(diagnosis) == ([variant.mistake], ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "written", "mistake"),
    [
        ("decoder-lm", "    return torch.ones(seq, seq, dtype=torch.bool).tril(-1)", "mask-hides-present"),
        pytest.param(
            "annotated",
            "    return torch.ones(1, size, size).tril(1).bool()",
            "mask-leaks-future",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_is_written_of_an_unfinished_file_is_diagnosed(name: str, written: str, mistake: str) -> None:
    starter = load_assignment(name).starter
    function, gap = find_gaps(starter)[0 if name == "decoder-lm" else 1]
    assert "mask" in function
    lines = starter.split("\n")
    lines[gap - 1] = written
    run, diagnosis = run_source(name, "\n".join(lines))
    assert {failure.kind for failure in run.failures.values()} == {"NotImplementedError"}
    assert named(diagnosis) == ([mistake], ())


def test_functions_that_return_nothing_yet_are_unfinished() -> None:
    starter = load_assignment("decoder-lm").starter.replace(
        '    raise NotImplementedError("write causal_mask")', "    ..."
    )
    _, diagnosis = run_source("decoder-lm", starter)
    assert named(diagnosis) == ([], ())
    assert diagnosis.progress is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "is_right", "remark"),
    [
        ("assert hidden % num_heads == 0, 'sizes'", True, "an AssertionError"),
        ("if hidden % num_heads:\n            raise TypeError('sizes')", True, "a TypeError"),
        ("if hidden % num_heads:\n            raise ValueError('sizes')", True, None),
        ("torch.ones(hidden).view(num_heads, -1)", False, None),  # an error for want of a check
        ("pass", False, None),
    ],
)
def test_any_error_that_refuses_sizes_on_purpose_is_accepted(check: str, is_right: bool, remark: str | None) -> None:
    reference = load_assignment("multi-head-self-attention").reference
    old = reference[
        reference.index("        if hidden % num_heads:") : reference.index("        self.num_heads, self.head")
    ]
    run, diagnosis = run_source("multi-head-self-attention", reference.replace(old, f"        {check}\n"))
    assert diagnosis.passed == is_right
    assert named(diagnosis) == ([] if is_right else ["heads-not-checked"], ())
    sentences = [f"num_heads=4 with hidden=6 should raise a ValueError. Here it is {remark}, which is accepted."]
    assert run.notes == (sentences if remark else [])


def test_a_missing_package_is_named_with_what_a_teacher_can_do() -> None:
    source = "from no_such_package.torch import Rearrange\n" + load_assignment("self-attention").reference
    failure = run_source("self-attention", source)[0].failures[""]
    assert "No module named 'no_such_package'" in failure.message
    assert failure.message.endswith("a teacher installs it where `regard check` runs: pip install no_such_package)")
    assert failure.line == 1


def test_a_solution_that_works_only_in_float32_passes() -> None:
    reference = load_assignment("self-attention").reference
    source = reference.replace(
        "q = self.q(x)", "x = x.clone()\n        assert x.dtype == torch.float32\n        q = self.q(x)"
    )
    assert run_source("self-attention", source)[1].passed


@pytest.mark.parametrize(
    "cached",
    [
        "generate_cached = generate",
        """
def generate_cached(model, prompts, count):
    for _ in range(count):
        prompts = torch.cat([prompts, step(model, prompts, Cache(len(model.blocks)))[:, -1:].argmax(-1)], 1)
    return prompts
""",
    ],
)
@pytest.mark.slow
def test_generation_that_reads_everything_again_does_not_pass(cached: str) -> None:
    _, diagnosis = run_source("kv-cache", f"{load_assignment('kv-cache').reference}\n\n{cached}\n")
    assert named(diagnosis) == (["cache-not-used"], ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("row = row + weight * value", "row = row + weight * value / len(values)", "weights"),
        ("self.attend_one(sentence)", "self.attend_one(x[0])", None),
    ],
)
def test_progress_is_found_in_loops_over_sequences(old: str, new: str, expected: str | None) -> None:
    """No step is called wrong only because the solution computes one sequence at a time."""
    source = (SOLUTIONS / "self-attention" / "token_by_token.py").read_text(encoding="utf-8")
    _, diagnosis = run_source("self-attention", Variant("unknown", ((old, new),)).applied_to(source))
    found = diagnosis.progress
    assert not diagnosis.mistakes
    assert (found.last_right if found else None) == expected


@pytest.mark.slow
def test_no_step_is_called_wrong_that_an_error_prevents() -> None:
    """The losses of the updates are missing because the example stops before them."""
    source = (SOLUTIONS / "training-loop" / "helpers.py").read_text(encoding="utf-8")
    _, diagnosis = run_source("training-loop", Variant("unknown", (("    return total\n", ""),)).applied_to(source))
    assert "example" in diagnosis.failures
    assert diagnosis.progress is None
