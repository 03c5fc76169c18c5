"""The attention assignments: every mistake is named, in every style, and correct solutions pass."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.course.assignment import ASSIGNMENTS_FOLDER, Assignment, Variant, read_assignment
from regard.course.attention_weights import set_weights_by_role
from regard.course.diagnose import Diagnosis, diagnose
from regard.course.fixed_weights import deterministic_output, gradients
from regard.course.observe import SolutionRun, observe
from regard.course.unfinished import find_gaps
from tests.support.variant_runs import groups_that_look_alike, observe_variant

SELF, HEADS, MULTI = "self-attention", "multi-head-self-attention", "multi-head-attention"
NAMES = (SELF, HEADS, MULTI)
SOLUTIONS = Path(__file__).parent / "solutions"
STYLES = [(name, path.stem) for name in NAMES for path in sorted((SOLUTIONS / name).glob("*.py"))]


@cache
def of(name: str) -> Assignment:
    return read_assignment(ASSIGNMENTS_FOLDER / name)


VARIANTS = [
    pytest.param(name, each, id=f"{name}-{number}-{each.mistake}", marks=() if name == SELF else pytest.mark.slow)
    for name in NAMES
    for number, each in enumerate(of(name).variants)
]


@cache
def run_of(name: str, source: str) -> SolutionRun:
    return observe(source, of(name))


@cache
def run_of_variant(name: str, variant: Variant) -> SolutionRun:
    return observe_variant(variant, of(name))


def diagnose_source(name: str, source: str) -> Diagnosis:
    return diagnose(run_of(name, source), of(name), source)


def solution(name: str, style: str) -> str:
    return (SOLUTIONS / name / f"{style}.py").read_text(encoding="utf-8")


def edited(source: str, *edits: tuple[str, str]) -> str:
    return Variant("edited", edits).applied_to(source)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_variant_is_named_exactly(name: str, variant: Variant) -> None:
    found = diagnose(run_of_variant(name, variant), of(name), variant.applied_to(of(name).reference))
    assert not found.passed
    assert [each.id for each in found.mistakes] == [variant.mistake]
    assert not found.possible


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_variants_give_different_values(name: str) -> None:
    runs = {each: run_of_variant(name, each) for each in of(name).variants}
    assert not groups_that_look_alike(runs, of(name).probes)


@pytest.mark.parametrize(
    ("name", "style"), [pytest.param(*each, marks=pytest.mark.slow if "loops" in each else ()) for each in STYLES]
)
def test_a_correct_solution_passes(name: str, style: str) -> None:
    found = diagnose_source(name, solution(name, style))
    assert found.passed, (found.mistakes, found.possible, found.failures)
    assert found.points == sum(of(name).points.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_probe_has_points(name: str) -> None:
    assert set(of(name).points) == set(of(name).probes)


OTHER_STYLES = [
    (SELF, "by_hand", "softmax-overflows", [("torch.exp(z - z.max(dim=dim, keepdim=True).values)", "torch.exp(z)")]),
    (SELF, "by_hand", "softmax-wrong-axis", [("e / e.sum(dim=dim, keepdim=True)", "e / e.sum()")]),
    (SELF, "by_hand", "output-squeezed", [("(value.mT @ weights).mT", "(value.mT @ weights).mT.squeeze()")]),
    (HEADS, "helpers", "mask-only-in-training", [("if self.causal:", "if self.causal and self.training:")]),
    (
        HEADS,
        "helpers",
        "length-hard-coded",
        [
            (
                "self.heads, self.causal",
                'self.register_buffer("hidden", torch.ones(128, 128).triu(1))\n        self.heads, self.causal',
            ),
            ("scores + self.future(x)", "scores.masked_fill(self.hidden[: x.size(1), : x.size(1)] == 1, -torch.inf)"),
        ],
    ),
    (SELF, "einsum", "no-scaling", [(" / self.scale", "")]),
    (SELF, "einsum", "query-key-swapped", [("bqd,bkd->bqk", "bkd,bqd->bqk")]),
    (SELF, "einsum", "weights-transposed", [("bqk,bkd->bqd", "bqk,bqd->bkd")]),
    (SELF, "bmm", "scaled-without-root", [("**-0.5", "**-1.0")]),
    (SELF, "bmm", "scaled-by-wrong-width", [("self.hidden**-0.5", "x.size(-1) ** -0.5")]),
    (SELF, "bmm", "value-from-key", [("self.v(x))", "self.k(x))")]),
    (SELF, "bmm", "softmax-wrong-axis", [("dim=2", "dim=0")]),
    (SELF, "fused", "value-from-query", [("attention(q, k, v)", "attention(q, k, q)")]),
    (SELF, "fused", "mask-not-asked", [("attention(q, k, v)", "attention(q, k, v, is_causal=True)")]),
    (SELF, "fused", "scaled-without-root", [("attention(q, k, v)", "attention(q / q.size(-1) ** 0.5, k, v)")]),
    (SELF, "fused", "bias-missing", [("F.linear(x, weight, bias)", "F.linear(x, weight)")]),
    (SELF, "loops", "no-scaling", [(" / math.sqrt(len(q[t]))", "")]),
    (SELF, "loops", "scaled-by-wrong-width", [("math.sqrt(len(q[t]))", "math.sqrt(seq)")]),
    (
        SELF,
        "loops",
        "no-gradient",
        [("weights = torch.softmax(scores, dim=0)", "weights = scores.softmax(0).tolist()")],
    ),
    (SELF, "by_hand", "softmax-wrong-axis", [("softmax(scores, dim=1)", "softmax(scores, dim=2)")]),
    (SELF, "torch_inside", "key-from-value", [("(self.q, self.k, self.v)", "(self.q, self.v, self.v)")]),
    (SELF, "listed", "value-from-key", [("columns.mT @ v", "columns.mT @ k")]),
    (
        SELF,
        "listed",
        "value-from-key",
        [
            ("self.v, self.k, self.q = self.layers", "_, self.k, self.q = self.layers\n        self.v = self.k"),
            ("v, k, q =", "_, k, q ="),
            ("columns.mT @ v", "columns.mT @ k"),
        ],
    ),
    (SELF, "listed", "scaled-without-root", [("q.size(-1) ** -0.5", "x.size(-1) ** -1")]),
    (HEADS, "listed", "no-output-projection", [("self.mix(torch", "(torch")]),
    (HEADS, "listed", "no-output-projection", [("nn.Sequential(nn.Linear(hidden, hidden), ", "nn.Sequential(")]),
    (HEADS, "listed", "dropout-in-eval", [("self.drop(weights)", "nn.Dropout(0.1)(weights)")]),
    (HEADS, "listed", "dropout-in-eval", [("scores.softmax(dim=2)", "nn.Dropout(0.3)(scores.softmax(dim=2))")]),
    (HEADS, "listed", "weights-wrong-shape", [("weights.permute(0, 3, 1, 2).flatten(0, 1)", "weights")]),
    (HEADS, "listed", "weights-wrong-shape", [(".flatten(0, 1)", ".sum(1)")]),
    (HEADS, "listed", "softmax-wrong-axis", [('float("-inf")', "-1e9"), ("softmax(dim=2)", "softmax(dim=0)")]),
    (HEADS, "listed", "scaled-without-root", [("q.size(-1) ** -0.5", "x.size(-1) ** -1")]),
    (MULTI, "turned", "scaled-without-root", [("Q.shape[-1] ** 0.5", "self.wq.shape[1]")]),
    (
        MULTI,
        "turned",
        "no-output-projection",
        [("return F.linear(self.combine", "return (self.combine"), (", self.wo", "")],
    ),
    (HEADS, "folded", "scaled-by-wrong-width", [("self.d**0.5", "(self.h * self.d) ** 0.5")]),
    (HEADS, "folded", "mask-hides-present", [("diagonal=1", "diagonal=0")]),
    (HEADS, "folded", "mask-leaks-future", [("diagonal=1", "diagonal=2")]),
    (HEADS, "folded", "mask-on-wrong-device", [("device=s.device, ", "")]),
    (HEADS, "folded", "mask-wrong-dtype", [(", dtype=s.dtype", "")]),
    (HEADS, "folded", "dropout-in-eval", [(", training=self.training", "")]),
    (HEADS, "folded", "softmax-wrong-axis", [("F.softmax(s, dim=2)", "F.softmax(s, dim=0)")]),
    (HEADS, "folded", "heads-by-reshape", [("y.view(b, t, self.h, self.d).permute(0, 2, 1, 3).contiguous()", "y")]),
    (
        HEADS,
        "folded",
        "heads-merged-without-transpose",
        [("o.view(b, self.h, t, self.d).permute(0, 2, 1, 3).contiguous()", "o")],
    ),
    (
        HEADS,
        "folded",
        "heads-by-reshape",
        [
            ("y.view(b, t, self.h, self.d).permute(0, 2, 1, 3).contiguous()", "y"),
            ("o.view(b, self.h, t, self.d).permute(0, 2, 1, 3).contiguous()", "o"),
        ],
    ),
    (
        HEADS,
        "folded",
        "batch-mixed",
        [("o.view(b, self.h, t, self.d)", "o.view(self.h, b, t, self.d).transpose(0, 1)")],
    ),
    (HEADS, "einsum", "no-scaling", [(" * q.shape[-1] ** -0.5", "")]),
    (HEADS, "einsum", "mask-hides-present", [("torch.ones(1024, 1024))", "torch.ones(1024, 1024), -1)")]),
    (HEADS, "einsum", "mask-inverted", [("torch.tril", "torch.triu")]),
    (HEADS, "einsum", "mask-inverted", [("== 0", "== 1")]),
    (HEADS, "einsum", "mask-too-weak", [("-1e9", "1e-9")]),
    (HEADS, "einsum", "weights-wrong-shape", [("probabilities.reshape(-1, t, t)", "probabilities")]),
    (HEADS, "einsum", "heads-interleaved", [("(self.num_heads, -1))", "(-1, self.num_heads)).mT")]),
    (HEADS, "einsum", "weights-transposed", [("bhij,bjhd->bihd", "bhij,bihd->bjhd")]),
    (HEADS, "fused", "mask-missing", [("is_causal=self.causal", "is_causal=False"), ("if self.causal:", "if False:")]),
    (HEADS, "fused", "dropout-in-eval", [("self.dropout if self.training else 0.0", "self.dropout")]),
    (HEADS, "fused", "weights-unmasked", [("if self.causal:", "if False:")]),
    (HEADS, "fused", "no-output-projection", [("self.mix(y.transpose", "(y.transpose")]),
    (HEADS, "fused", "value-from-key", [("(self.q, self.k, self.v)", "(self.q, self.k, self.k)")]),
    (HEADS, "loops", "mask-leaks-future", [("t + 1 if self.causal", "min(t + 2, n) if self.causal")]),
    (HEADS, "loops", "bias-missing", [("nn.Linear(hidden, hidden)", "nn.Linear(hidden, hidden, bias=False)")]),
    (HEADS, "loops", "query-key-swapped", [("k[:end, part] @ q[t, part]", "q[:end, part] @ k[t, part]")]),
    (HEADS, "loops", "heads-not-checked", [("raise ValueError(", "print(")]),
    (HEADS, "chunks", "weights-wrong-shape", [("torch.stack(A.chunk(self.num_heads, dim=0), dim=1)", "A[None]")]),
    (HEADS, "chunks", "mask-after-softmax", [("A = A / A.sum(dim=-1, keepdim=True)", "")]),
    (HEADS, "by_hand", "dropout-not-rescaled", [(" / (1 - self.rate)", "")]),
    (HEADS, "by_hand", "dropout-in-eval", [("self.training and ", "")]),
    (HEADS, "by_hand", "mask-inverted", [("place[:, None] < place", "place[:, None] >= place")]),
    (HEADS, "torch_inside", "dropout-in-eval", [("training=self.training", "training=True")]),
    (HEADS, "torch_inside", "mask-hides-present", [("triu(1)", "triu()")]),
    (
        HEADS,
        "torch_inside",
        "weights-wrong-shape",
        [("average_attn_weights=False", "average_attn_weights=True"), (".flatten(0, 1)", "")],
    ),
    (MULTI, "operators", "mask-inverted", [("mask == 0", "mask")]),
    (MULTI, "operators", "scaled-by-wrong-width", [("self.qk_length**0.5", "self.value_length**0.5")]),
    (
        MULTI,
        "operators",
        "value-from-key",
        [
            ("self.W_V(V)", "self.W_V(K)"),
            ("K = self.split", "key = self.split"),
            ("Q, K, V, mask)\n        return self.W_O", "Q, key, V, mask)\n        return self.W_O"),
        ],
    ),
    (MULTI, "operators", "masked-row-nan", [("-1e9", 'float("-inf")')]),
    (
        MULTI,
        "operators",
        "heads-by-reshape",
        [("x.view(B, T, self.num_heads, vec_length).permute(0, 2, 1, 3)", "x.view(B, self.num_heads, T, vec_length)")],
    ),
    (MULTI, "operators", "heads-merged-without-transpose", [("x.transpose(1, 2).contiguous()", "x.contiguous()")]),
    (MULTI, "operators", "no-output-projection", [("self.W_O(self.combine_heads(out))", "self.combine_heads(out)")]),
    (MULTI, "matrices", "no-scaling", [(" / Q.shape[-1] ** 0.5", "")]),
    (
        MULTI,
        "matrices",
        "mask-after-softmax",
        [
            ("            e = e * mask", "            pass"),
            ("(min=1e-9)\n", "(min=1e-9)\n        weights = weights * mask if mask is not None else weights\n"),
        ],
    ),
    (MULTI, "matrices", "mask-missing", [("e = e * mask", "pass")]),
    (MULTI, "fused", "mask-inverted", [("mask = mask.bool()", "mask = ~mask.bool()")]),
    (
        MULTI,
        "fused",
        "mask-missing",
        [("attn_mask=mask", "attn_mask=None"), ("~mask.any(-1, keepdim=True)", "~mask.any()")],
    ),
    (
        MULTI,
        "per_head",
        "softmax-wrong-axis",
        [
            ("return torch.matmul(scores.softmax(3), V)\n\n", "return torch.matmul(scores.softmax(2), V)\n\n"),
            ("scores.softmax(3), V) * (", "scores.softmax(2), V) * ("),
        ],
    ),
    (MULTI, "per_head", "scaled-by-wrong-width", [("K.shape[3]", "K.shape[2]")]),
    (MULTI, "per_head", "key-from-value", [("self.split_heads(K, self.keys)", "self.split_heads(V, self.keys)")]),
    (MULTI, "packed", "no-scaling", [("Q / Q.size(-1) ** 0.5", "Q")]),
    (MULTI, "packed", "mask-inverted", [("1.0 - mask.to(scores.dtype)", "mask.to(scores.dtype)")]),
    (MULTI, "packed", "mask-wrong-dtype", [("mask.to(scores.dtype)", "mask.float()")]),
    (MULTI, "torch_inside", "query-from-key", [("self.layer1(Q)", "self.layer1(K)")]),
    (
        MULTI,
        "torch_inside",
        "tuple-returned",
        [
            (
                "return self.layer4(self.combine_heads(self.scaled_dot_product_attention(Q, K, V, mask)))",
                "return self.layer4(self.combine_heads(self.scaled_dot_product_attention(Q, K, V, mask))), Q",
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("name", "style", "mistake", "edits"),
    [pytest.param(*each, marks=() if each[0] == SELF else pytest.mark.slow) for each in OTHER_STYLES],
)
def test_a_mistake_is_named_in_other_styles(name: str, style: str, mistake: str, edits: list[tuple[str, str]]) -> None:
    found = diagnose_source(name, edited(solution(name, style), *edits))
    assert [each.id for each in found.mistakes] == [mistake], (found.possible, found.stage, found.failures)


TWO_AT_ONCE = [
    (
        HEADS,
        "helpers",
        {"mask-only-in-training", "dropout-on-output"},
        [
            ("if self.causal:", "if self.causal and self.training:"),
            ("output = self.mix(mixed)", "output = self.drop(self.mix(mixed))"),
        ],
    ),
    (SELF, "einsum", {"no-scaling", "value-from-key"}, [(" / self.scale", ""), ("self.v(x)", "self.k(x)")]),
    (
        HEADS,
        "einsum",
        {"no-scaling", "mask-leaks-future"},
        [(" * q.shape[-1] ** -0.5", ""), ("torch.ones(1024, 1024))", "torch.ones(1024, 1024), 1)")],
    ),
    (
        HEADS,
        "folded",
        {"mask-leaks-future", "dropout-in-eval"},
        [("diagonal=1", "diagonal=2"), (", training=self.training", "")],
    ),
    (
        HEADS,
        "listed",
        {"no-output-projection", "weights-wrong-shape"},
        [("self.mix(torch", "(torch"), ("weights.permute(0, 3, 1, 2).flatten(0, 1)", "weights.permute(0, 3, 1, 2)")],
    ),
    (
        MULTI,
        "operators",
        {"no-scaling", "no-output-projection"},
        [(" / self.qk_length**0.5", ""), ("self.W_O(self.combine_heads(out))", "self.combine_heads(out)")],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "style", "mistakes", "edits"), TWO_AT_ONCE)
def test_two_mistakes_at_once_are_named(
    name: str, style: str, mistakes: set[str], edits: list[tuple[str, str]]
) -> None:
    found = diagnose_source(name, edited(solution(name, style), *edits))
    assert {each.id for each in found.mistakes} == mistakes, (found.possible, found.stage)


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_has_gaps_and_contains_no_answer(name: str) -> None:
    source = of(name).starter
    assert find_gaps(source)
    found = diagnose_source(name, source)
    assert not found.passed
    assert not found.points
    assert not found.mistakes
    for line in of(name).reference.splitlines():
        if "# [" in line:
            assert line.partition("#")[0].strip() not in source


LAYERS = [
    ("query", "key", "value", "fc_out"),
    ("fc1", "fc2", "fc3", "fc4"),
    ("to_q", "to_k", "to_v", "to_out"),
    ("w_qs", "w_ks", "w_vs", "fc"),
    ("linear_k", "linear_q", "linear_v", "linear_o"),  # misleading names, which do not change the values
    ("projQ", "projK", "projV", "dense"),
]


@pytest.mark.parametrize("called", LAYERS)
def test_projections_can_have_any_names(called: tuple[str, ...]) -> None:
    source = solution(MULTI, "operators")
    for old, new in zip(("W_Q", "W_K", "W_V", "W_O"), called, strict=True):
        source = source.replace(f"self.{old}", f"self.{new}")
    assert diagnose_source(MULTI, source).passed


@pytest.mark.slow
@pytest.mark.parametrize("called", LAYERS[:4])
def test_values_computed_from_keys_are_recognised_by_name_or_position(called: tuple[str, ...]) -> None:
    source = edited(of(MULTI).reference, ("self.value(V)", "self.value(K)"))
    for old, new in zip(("query", "key", "value", "output"), called, strict=True):
        source = source.replace(f"self.{old} =", f"self.{new} =").replace(f"self.{old}(", f"self.{new}(")
    assert [each.id for each in diagnose_source(MULTI, source).mistakes] == ["value-from-key"]


def test_weights_of_torchs_own_module_are_set_by_role() -> None:
    x = {role: torch.randn(2, length, 6) for role, length in (("query", 3), ("key", 4), ("value", 4))}
    widths = {"query": 6, "key": 6, "value": 6}
    theirs = nn.MultiheadAttention(6, 2, batch_first=True)
    one = set_weights_by_role(theirs, [lambda: theirs(*x.values())], x, widths, {})
    names: dict[str, type[nn.Module]] = {}
    exec(of(MULTI).reference, names)
    mine = names["MultiHeadAttention"](2, 6, 3, 3)
    two = set_weights_by_role(mine, [lambda: mine(*x.values())], x, widths, {})
    torch.testing.assert_close(one(*x.values())[0], two(*x.values()))


def test_random_outputs_become_nan() -> None:
    x = torch.randn(3, requires_grad=True)
    assert deterministic_output(lambda: x * torch.rand(3)).isnan().all()
    assert torch.equal(deterministic_output(lambda: (2 * x, "more")), 2 * x)
    assert torch.equal(gradients(lambda: x.detach(), x=x)["x"], torch.zeros(3))
    assert torch.equal(gradients(lambda: 3 * x, x=x)["x"], 18 * x)


def test_missing_layers_are_reported() -> None:
    found = diagnose_source(SELF, of(SELF).reference.replace("self.q", "self.query"))
    assert "has no .q" in found.failures["example"].message
    assert not found.mistakes
