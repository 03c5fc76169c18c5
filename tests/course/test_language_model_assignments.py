"""The assignments decoder-lm and kv-cache: every mistake is named, and correct solutions pass, in any style."""

from itertools import combinations
from pathlib import Path

import pytest
import torch

from regard.course.assignment import Assignment, Variant, load_assignment
from regard.course.diagnose import Diagnosis, diagnose
from regard.course.fixed_weights import set_weights
from regard.course.observe import observe
from tests.support.variant_runs import observe_variant

SOLUTIONS = Path(__file__).parent / "solutions"
ASSIGNMENTS = {name: load_assignment(name) for name in ("decoder-lm", "kv-cache")}
VARIANTS = [(name, number) for name, of in ASSIGNMENTS.items() for number in range(len(of.variants))]


def diagnose_source(source: str, of: Assignment) -> Diagnosis:
    return diagnose(observe(source, of), of, source)


def ids(found: Diagnosis) -> list[str]:
    return sorted(each.id for each in found.mistakes)


def edited(source: str, *edits: tuple[str, str]) -> str:
    return Variant("a student's", edits).applied_to(source)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), VARIANTS)
def test_a_known_mistake_is_named_and_nothing_else(name: str, number: int) -> None:
    of = ASSIGNMENTS[name]
    variant = of.variants[number]
    found = diagnose(observe_variant(variant, of), of, variant.applied_to(of.reference))
    assert not found.passed
    assert (ids(found), found.possible) == ([variant.mistake], ())
    assert found.points < sum(of.points.values())


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_many_mistakes_are_known(name: str) -> None:
    assert len({each.mistake for each in ASSIGNMENTS[name].variants}) >= 10


@pytest.mark.parametrize("path", [path for name in ASSIGNMENTS for path in sorted((SOLUTIONS / name).glob("*.py"))])
@pytest.mark.slow
def test_a_correct_solution_gets_all_points(path: Path) -> None:
    of = ASSIGNMENTS[path.parent.name]
    found = diagnose_source(path.read_text(), of)
    assert (found.passed, found.mistakes, found.failures) == (True, (), {})
    assert found.points == sum(of.points.values())


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_there_are_three_different_correct_solutions(name: str) -> None:
    sources = [path.read_text() for path in (SOLUTIONS / name).glob("*.py")]
    assert len(sources) >= 3
    assert all(one != other for one, other in combinations([*sources, ASSIGNMENTS[name].reference], 2))


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_every_probe_has_points(name: str) -> None:
    assert set(ASSIGNMENTS[name].points) == set(ASSIGNMENTS[name].probes)


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_a_starter_reports_gaps_and_no_mistakes(name: str) -> None:
    of = ASSIGNMENTS[name]
    found = diagnose_source(of.starter, of)
    assert not found.passed
    assert found.mistakes == ()
    assert {each.kind for each in found.failures.values()} == {"NotImplementedError"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solution", "edits", "mistake"),
    [
        ("decoder-lm/terse", [("[:, 1:]\n", "\n"), ("logits[:, :-1].flatten", "logits.flatten")], "loss-not-shifted"),
        ("decoder-lm/terse", [("i[:, None] >= i", "i[:, None] > i")], "mask-hides-present"),
        ("decoder-lm/terse", [("weight[:n]", "weight[1 : n + 1]")], "positions-start-at-one"),
        ("decoder-lm/terse", [("[:, -1].softmax", "[:, 0].softmax")], "greedy-takes-first-position"),
        ("decoder-lm/terse", [("[False] * (len", "[True] * (len")], "loss-on-prompt"),
        ("decoder-lm/loops", [("range(row + 1)", "range(seq)")], "causal-mask-missing"),
        ("decoder-lm/loops", [("best == end", "best is end is None")], "greedy-does-not-stop"),
        ("decoder-lm/loops", [("        x = self.norm(x)\n", "")], "final-norm-missing"),
        (
            "decoder-lm/loops",
            [("torch.arange(seq).expand(batch, seq)", "torch.zeros_like(tokens)")],
            "positions-all-the-same",
        ),
        ("decoder-lm/loops", [("wanted = [*target, end]", "wanted = target")], "end-not-learned"),
        ("decoder-lm/weights", [("diagonal=1", "diagonal=2")], "mask-leaks-future"),
        ("decoder-lm/weights", [("len(source) + 1 :", "len(source) :")], "loss-on-separator"),
        ("decoder-lm/weights", [("[*source, separator], count", "source, count")], "separator-missing"),
        ("kv-cache/pairs", [("weight[old : old + new]", "weight[:new]")], "cache-positions-wrong"),
        ("kv-cache/pairs", [("zip(cache.pairs[i], (k, v),", "zip((k, v), cache.pairs[i],")], "cache-prepended"),
        (
            "kv-cache/pairs",
            [("model.out(model.norm(x))\n\n\ndef gen", "model.out(x)\n\n\ndef gen")],
            "final-norm-missing",
        ),
        ("kv-cache/rooms", [("if self.k is not None:\n", "if False:\n")], "cache-forgets-when-full"),
        ("kv-cache/rooms", [("more = [*k.shape[:2], 2 * end,", "more = [*k.shape[:2], 50,")], "cache-too-small"),
        (
            "kv-cache/rooms",
            [("attn_mask=mask)", "attn_mask=None if room is None else mask)")],
            "given-model-changed",
        ),
        ("kv-cache/rooms", [("triu(total - new + 1)", "triu(1)")], "cache-mask-wrong"),
        ("kv-cache/rooms", [("k, v = room.add(k, v)", "room.add(k, v)")], "cache-not-appended"),
        ("kv-cache/rooms", [("tokens[:, cache.length :]", "tokens[:, -1:]")], "cache-prompt-not-read"),
        ("kv-cache/one_by_one", [("attention.v(y)", "attention.k(y)")], "value-from-key"),
        ("kv-cache/one_by_one", [(".div(math.sqrt(q.shape[-1]))", "")], "no-scaling"),
        (
            "kv-cache/pairs",
            [
                ("cache = Cache(len(model.blocks))\n    w", "cache = KEPT\n    w"),
                ("\n\n\ndef step", "\n\n\nKEPT = Cache(2)\n\n\ndef step"),
            ],
            "cache-not-reset",
        ),
    ],
)
def test_a_mistake_is_named_in_other_styles(solution: str, edits: list[tuple[str, str]], mistake: str) -> None:
    source = edited((SOLUTIONS / f"{solution}.py").read_text(), *edits)
    assert ids(diagnose_source(source, ASSIGNMENTS[solution.partition("/")[0]])) == [mistake]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("decoder-lm", {"positions-missing", "greedy-does-not-stop"}),
        ("kv-cache", {"cache-positions-wrong", "cache-prompt-not-read"}),
    ],
)
def test_two_mistakes_at_once_are_both_named(name: str, pair: set[str]) -> None:
    of = ASSIGNMENTS[name]
    first = {each.mistake: each for each in reversed(of.variants)}
    source = of.reference
    for each in pair:
        source = first[each].applied_to(source)
    assert set(ids(diagnose_source(source, of))) == pair


@pytest.mark.slow
@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_an_unknown_mistake_is_not_named(name: str) -> None:
    of = ASSIGNMENTS[name]
    odd = {
        "decoder-lm": ("output = self.out(self.norm(hidden))", "output = self.out(self.norm(hidden.sin()))"),
        "kv-cache": ("scores = scores / math.sqrt(q.shape[-1])", "scores = scores / 1.7 + 0.1 * scores.sin()"),
    }[name]
    found = diagnose_source(edited(of.reference, odd), of)
    assert (found.passed, found.mistakes, found.possible) == (False, (), ())
    assert found.stage is not None


def test_the_cached_reference_generates_the_same_as_the_uncached_one() -> None:
    """The starter's own `generate` is an independent reference."""
    names: dict[str, object] = {}
    exec(ASSIGNMENTS["kv-cache"].reference, names)
    torch.manual_seed(3)
    model = set_weights(names["Decoder"](13, 12, 3, 3, 40))  # type: ignore[operator]
    prompts = torch.randint(13, (5, 4))
    assert torch.equal(names["generate"](model, prompts, 20), names["generate_cached"](model, prompts, 20))  # type: ignore[operator]
