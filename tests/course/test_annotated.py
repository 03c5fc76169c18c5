"""The assignment `annotated`: every known mistake is named, and correct solutions pass in any style."""

from pathlib import Path

import pytest
import torch

from regard.course.assignment import ASSIGNMENTS_FOLDER, Assignment, Variant, read_assignment
from regard.course.diagnose import Diagnosis, diagnose
from regard.course.observe import SolutionRun, observe
from regard.course.unfinished import find_gaps
from tests.support.variant_runs import groups_that_look_alike, observe_variant

SOLUTIONS = sorted((Path(__file__).parent / "solutions" / "annotated").glob("*.py"))

# Mistakes in solutions of other styles than the reference's: solution, text, replacement, id of the mistake.
MISTAKES = [
    ("einsum", "query / sqrt(query.shape[-1])", "query", "no-scaling"),
    ("einsum", "query / sqrt(query.shape[-1])", "query / query.shape[-1]", "scaled-without-root"),
    ("einsum", "F.softmax(energy, dim=3)", "F.softmax(energy, dim=2)", "softmax-wrong-axis"),
    ("einsum", "torch.where(mask, energy,", "torch.where(~mask, energy,", "mask-inverted"),
    ("einsum", "torch.finfo(energy.dtype).min", "0.0", "mask-too-weak"),
    ("einsum", "diagonal=1", "diagonal=2", "mask-leaks-future"),
    ("einsum", "diagonal=1", "diagonal=0", "mask-hides-present"),
    ("einsum", "ahead == 0", "ahead == 1", "mask-inverted"),
    ("einsum", "mixed.permute(0, 2, 1, 3).flatten(2)", "mixed.reshape(query.shape)", "heads-merged-without-transpose"),
    ("einsum", "(query, key, value), strict", "(query, key, key), strict", "value-from-key"),
    ("einsum", "return self.linears[-1](mixed", "return (mixed", "no-output-projection"),
    ("einsum", "[turns.sin(), turns.cos()]", "[turns.cos(), turns.sin()]", "positions-sin-cos-exchanged"),
    ("einsum", "waves.flatten(1)", "waves.transpose(1, 2).flatten(1)", "positions-not-interleaved"),
    (
        "einsum",
        'self.register_buffer("pe", waves.flatten(1).unsqueeze(0), persistent=False)',
        "self.pe = nn.Parameter(torch.randn(1, max_len, d_model))",
        "positions-trained",
    ),
    ("einsum", "deepcopy(module) for _ in range(N)", "[module] * N", "layers-share-parameters"),
    ("einsum", "return x + y", "return self.norm(x) + y", "residual-from-normed"),
    ("einsum", "self.act = nn.ReLU()", "self.act = nn.GELU()", "feed-forward-other-activation"),
    ("einsum", "self.act = nn.ReLU()", "self.act = nn.Identity()", "feed-forward-without-activation"),
    ("einsum", "self.src_attn(y, m, m, mask", "self.src_attn(y, y, y, mask", "encoder-output-unused"),
    ("einsum", "self.src_attn(y, m, m, mask=src_mask)", "self.src_attn(y, m, m)", "padding-attended"),
    ("einsum", "FeedForward(d_model, d_ff, dropout)", "FeedForward(d_model, d_ff)", "dropout-hard-coded"),
    ("einsum", "deepcopy(module) for _ in", '__import__("copy").copy(module) for _ in', "layers-share-parameters"),
    (
        "folded",
        "            x = layer(x, mask)\n        return self.norm(x)",
        "            y = layer(x, mask)\n        return self.norm(y)",
        "layers-not-chained",
    ),
    (
        "folded",
        "self.src_attn(self.norm2(x), memory,",
        "self.self_attn(self.norm2(x), memory,",
        "source-attention-unused",
    ),
    ("builtin", "hidden = ~whole", "hidden = whole", None),  # not in attention itself
    ("builtin", "math.pi / 2 - angles", "angles", "positions-sin-cos-exchanged"),
    ("builtin", "torch.outer(torch.arange(max_len)", "torch.outer(torch.arange(max_len) + 1", "positions-start-at-one"),
    ("builtin", "requires_grad=False", "requires_grad=True", "positions-trained"),
    ("builtin", "1 / 10000 **", "1 / 1000 **", "positions-wrong-base"),
    ("builtin", "x = x + self.pe[: x.size(1), :]", "x = x + self.pe[: x.size(0), None]", "positions-over-batch"),
    ("builtin", "F.dropout(x, self.p, training=self.training)", "F.dropout(x, self.p)", "dropout-in-eval"),
    ("builtin", "self.drop(sublayer(self.norm(x))) + x", "self.norm(x + self.drop(sublayer(x)))", "norm-on-wrong-side"),
    ("builtin", "(self.norm(x))) + x", "(self.norm(x)) + x)", "dropout-on-residual"),
    ("builtin", "self.second(self.first(x, attend)", "self.first(self.first(x, attend)", "norm-shared"),
    ("builtin", "torch.log(torch.softmax(", "(torch.softmax(", "generator-without-log"),
    ("builtin", "copy.deepcopy(attn), ff", "attn, ff", "attentions-share-parameters"),
    ("builtin", "math.sqrt(self.d_model) * F.embedding", "F.embedding", "embeddings-not-scaled"),
    ("loops", "query.shape[-1] ** -0.5", "1", "no-scaling"),
    ("loops", "range(row + 1)", "range(row)", "mask-hides-present"),
    ("loops", "range(row + 1)", "range(min(row + 2, size))", "mask-leaks-future"),
    ("loops", "math.cos(angle)", "math.sin(angle)", "positions-one-wave"),
    ("loops", "torch.clamp(x, min=0)", "torch.tanh(x)", "feed-forward-other-activation"),
    ("loops", "vectors * self.scale", "vectors * self.scale**2", "embeddings-scaled-without-root"),
    ("loops", "torch.sqrt(variance + self.eps)", "(variance + self.eps)", "norm-by-variance"),
    ("loops", "*rest)\n        return self.norm(x)", "*rest)\n        return x", "final-norm-missing"),
    ("loops", "src_attn(y, memory, memory,", "src_attn(memory, y, y,", "encoder-output-as-queries"),
    ("folded", "reshape(b, -1, h, d).swapaxes(1, 2)", "reshape(b, h, -1, d)", "heads-by-reshape"),
    ("folded", "/ d**0.5", "", "no-scaling"),
    ("folded", ".nan_to_num(0.0)", "", "masked-row-nan"),
    ("folded", "x.swapaxes(1, 2).contiguous().view(", "x.reshape(", "heads-merged-without-transpose"),
    ("folded", "mask = mask.unsqueeze(1)", "mask = None", "mask-missing"),
    ("folded", "mean = x.sum(-1, keepdim=True) / self.n", "mean = 0", "norm-not-centred"),
    ("folded", "memory, memory, src_mask)", "memory, memory, tgt_mask)", "cross-attention-masked-causally"),
    ("folded", "self.self_attn(y, y, y, tgt_mask)", "self.self_attn(y, y, y)", "target-mask-unused"),
    (
        "folded",
        "x = x + self.dropout(self.self_attn(y, y, y, mask))",
        "x = self.self_attn(y, y, y, mask)",
        "residual-missing",
    ),
]


@pytest.fixture(scope="module")
def annotated() -> Assignment:
    """The assignment."""
    return read_assignment(ASSIGNMENTS_FOLDER / "annotated")


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["first", "all"])
def seen(annotated: Assignment, request: pytest.FixtureRequest) -> dict[Variant, SolutionRun]:
    """The run of the first variant of each mistake or, in long tests, of all variants."""
    first = {each.mistake: each for each in reversed(annotated.variants)}
    variants = annotated.variants if request.param else first.values()
    return {each: observe_variant(each, annotated) for each in variants}


def ids(found: Diagnosis) -> set[str]:
    return {each.id for each in found.mistakes}


@pytest.mark.slow
def test_every_variant_is_named(annotated: Assignment, seen: dict[Variant, SolutionRun]) -> None:
    wrong = {}
    for variant, shown in seen.items():
        found = diagnose(shown, annotated, variant.applied_to(annotated.reference))
        if ids(found) != {variant.mistake} or found.possible or found.passed:
            wrong[variant.mistake, variant.edits] = found
    assert not wrong


@pytest.mark.slow
def test_variants_of_two_mistakes_differ(annotated: Assignment, seen: dict[Variant, SolutionRun]) -> None:
    for alike in groups_that_look_alike(seen, annotated.probes):
        assert len({each.mistake for each in alike}) == 1, alike


def test_many_mistakes_are_known(annotated: Assignment) -> None:
    """The most common mistakes that can be made in a Transformer."""
    named = {each.mistake for each in annotated.variants}
    assert len(named) >= 80
    assert {
        "no-scaling",
        "scaled-by-wrong-width",
        "scaled-without-root",
        "heads-by-reshape",
        "softmax-wrong-axis",
    } <= named
    assert {"heads-merged-without-transpose", "mask-hides-present", "mask-leaks-future", "mask-inverted"} <= named
    assert {"mask-after-softmax", "no-output-projection", "value-from-key", "query-key-swapped"} <= named
    assert {"dropout-in-eval", "weights-wrong-shape", "norm-on-wrong-side", "layers-share-parameters"} <= named


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_correct_solutions_pass(annotated: Assignment, path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    found = diagnose(observe(source, annotated), annotated, source)
    assert found.passed, [name for name in annotated.probes if name not in found.right]
    assert found.points == sum(annotated.points.values())


@pytest.mark.slow
@pytest.mark.parametrize(("style", "old", "new", "mistake"), MISTAKES)
def test_mistakes_in_other_styles_are_named(
    annotated: Assignment, style: str, old: str, new: str, mistake: str | None
) -> None:
    right = next(path for path in SOLUTIONS if path.stem == style).read_text(encoding="utf-8")
    assert old in right
    source = right.replace(old, new)
    found = diagnose(observe(source, annotated), annotated, source)
    assert not found.passed
    assert ids(found) == ({mistake} if mistake else set())


@pytest.mark.slow
def test_a_mistake_is_named_and_located(annotated: Assignment) -> None:
    source = annotated.reference.replace("torch.ones(1, size, size).tril()", "torch.ones(1, size, size).tril(1)")
    found = diagnose(observe(source, annotated), annotated, source)
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "tril(1)" in text)
    assert [(each.id, each.line) for each in found.mistakes] == [("mask-leaks-future", line)]


@pytest.mark.slow
def test_two_mistakes_are_both_named(annotated: Assignment) -> None:
    source = annotated.reference.replace("* math.sqrt(self.d_model)", "").replace(".tril()", ".tril(-1)")
    found = diagnose(observe(source, annotated), annotated, source)
    assert ids(found) == {"embeddings-not-scaled", "mask-hides-present"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x.std(-1, keepdim=True)", "x.std(-1, keepdim=True, correction=0)"),
        ("(std + self.eps)", "(std**2 + self.eps).sqrt()"),
        ("self.eps = eps", "self.eps = 1e-5"),
        ("torch.ones(1, size, size).tril().bool()", "torch.ones(size, size).tril()"),
        ("self.pe[: x.size(1)]", "self.pe[: x.size(1)].detach()"),
    ],
)
def test_harmless_differences_are_accepted(annotated: Assignment, old: str, new: str) -> None:
    assert old in annotated.reference
    source = annotated.reference.replace(old, new)
    assert diagnose(observe(source, annotated), annotated, source).passed


def test_the_starter_has_only_gaps(annotated: Assignment) -> None:
    """It defines all required names, gets almost no points, and no mistake is named."""
    assert len(find_gaps(annotated.starter)) >= 16
    names: dict[str, object] = {}
    exec(annotated.starter, names)
    assert set(annotated.defines) <= set(names)
    found = diagnose(observe(annotated.starter, annotated), annotated, annotated.starter)
    assert not found.passed
    assert not found.mistakes
    assert not found.possible
    assert found.points <= 2


def test_points_and_sizes_match_the_probes(annotated: Assignment) -> None:
    assert list(annotated.points) == list(annotated.probes)
    example = observe(annotated.reference, annotated).values["example"]["log_probs"]
    sizes = annotated.sizes
    assert example.shape == (sizes["batch"], sizes["seq"], sizes["tgt_vocab"])
    assert torch.allclose(example.exp().sum(-1), torch.ones(example.shape[:2], dtype=example.dtype))
