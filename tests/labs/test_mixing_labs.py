"""The labs scaling, copy, average, one-head, two-heads and nonlinear."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.labs import average, copy, nonlinear, one_head, scaling, two_heads
from regard.labs.lab import LabResult
from regard.model.attention import MultiHeadAttention, attention
from tests.support.lab_runs import check_complete, failing, run_lab_with

SMALL_SIZES = {
    "scaling": ["widths=8,64,512", "length=32", "sequences=8"],
    "copy": ["keys=8,128", "draws=50", "leads=0,4,6,8,10,12,14"],
    "average": ["draws=50", "betas=0,3,6,9,12"],
    "one-head": ["samples=2000", "betas=5,20"],
    "two-heads": ["samples=2000", "betas=5,20"],
    "nonlinear": ["sequences=8", "length=8", "width=32", "scales=0.01,0.1,1"],
}


def run_small(name: str, *changes: str) -> LabResult:
    return run_lab_with(name, *SMALL_SIZES[name], *changes)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return weights


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", SMALL_SIZES)
def test_every_claim_holds_whatever_the_seed(name: str, seed: int) -> None:
    result = run_small(name, f"seed={seed}")
    assert result.holds, [result.claims[number].text for number in failing(result)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_SIZES)
def test_tables_and_figure_are_complete(name: str) -> None:
    result = run_small(name)
    check_complete(result)


def test_the_measures_of_scaling_match_numpy() -> None:
    q, k = torch.randn(2, 3, 16, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    measures = scaling.measure(q, k)
    torch.manual_seed(1)
    towards = torch.randn(3, 16, 16).numpy()
    scores = (q @ k.mT).numpy() / math.sqrt(8)
    weights = softmax(scores)
    entropy = -(weights * np.log(weights)).sum(-1).mean() / math.log(16)
    gradient = weights * (towards - (weights * towards).sum(-1, keepdims=True))
    expected = (scores.var(ddof=1), entropy, np.linalg.norm(gradient, axis=-1).mean())
    assert (measures.variance, measures.entropy, measures.gradient) == pytest.approx(expected, rel=1e-4)


def test_without_the_division_all_depends_on_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def undivided(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return attention(q * math.sqrt(q.size(-1)), k, v)

    monkeypatch.setattr(scaling, "attention", undivided)
    assert 3 in failing(run_small("scaling"))


def test_heads_as_wide_as_each_other_are_as_sharp() -> None:
    assert {1, 2} <= {*failing(run_small("scaling", "widths=64,72"))}


def test_the_error_of_a_copy_is_the_weight_of_the_other_keys() -> None:
    leads = (0.0, 2.0, 5.0, 9.0)
    for keys in (4, 32):
        measured = copy.errors(copy.Sizes(leads=leads, width=512, draws=100), keys, score_std=0.0)
        # the mean of the others is √(1 + 1 / (S − 1)) lengths of v_a away from v_a, for large widths
        rest = [(keys - 1) / (math.exp(lead) + keys - 1) * math.sqrt(1 + 1 / (keys - 1)) for lead in leads]
        assert measured == pytest.approx(rest, rel=0.02)


@pytest.mark.slow
def test_random_scores_need_a_lead_greater_by_half_their_variance() -> None:
    sizes = copy.Sizes(leads=(9.0, 10.0, 11.0, 12.0, 13.0), draws=100)
    equal, random = (copy.lead_for_a_copy(sizes, copy.errors(sizes, 512, score_std)) for score_std in (0.0, 1.0))
    assert random - equal == pytest.approx(0.5, abs=0.1)  # the mean of eˣ is e to the ½


def test_the_weights_of_an_average() -> None:
    sizes = average.Sizes(draws=20, keys=6, width=8)
    kinds = average.keys_by_kind(sizes)
    values = torch.randn_like(kinds[average.ORTHONORMAL])
    for beta in (0.0, 1.0, 4.0, 9.0):
        even = average.measure(kinds[average.ORTHONORMAL], values, beta)
        assert even.weight_a == pytest.approx(math.exp(beta) / (2 * math.exp(beta) + 4))
        assert even.weight_b == pytest.approx(even.weight_a)
        longer = average.measure(kinds[average.LONGER], values, beta)
        expected = softmax(np.array([1.21 * beta, beta, 0, 0, 0, 0]))
        assert (longer.weight_a, longer.weight_b) == pytest.approx((expected[0], expected[1]))


def test_keys_have_the_stated_covariance() -> None:
    sizes = one_head.Sizes(keys=3, width=4, samples=40_000, alpha=0.01)
    samples = one_head.draw_samples(sizes, 0.5)
    assert torch.allclose(samples.means @ samples.means.mT, torch.eye(3, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(samples.keys.mean(0), samples.means, atol=0.02)
    stretched = torch.cov(samples.keys[:, 0].mT)
    expected = 0.01 * torch.eye(4, dtype=torch.float64) + 0.5 * torch.outer(samples.means[0], samples.means[0])
    assert torch.allclose(stretched, expected, atol=0.02)
    assert torch.allclose(torch.cov(samples.keys[:, 1].mT), 0.01 * torch.eye(4, dtype=torch.float64), atol=1e-3)


def test_attention_of_the_heads_matches_numpy() -> None:
    sizes = one_head.Sizes(keys=5, width=6, samples=30)
    samples = one_head.draw_samples(sizes, 0.5)
    keys, means, values = samples.keys.numpy(), samples.means.numpy(), samples.values.numpy()
    one = softmax(7 * keys @ (means[0] + means[1]))
    output, weights = one_head.attend(7 * (samples.means[0] + samples.means[1])[None], samples)
    assert np.allclose(weights, one)
    assert np.allclose(output, one @ values)
    two = (softmax(7 * keys @ means[0]) + softmax(7 * keys @ means[1])) / 2
    output, weights = one_head.attend(7 * samples.means[:2], samples)
    assert np.allclose(weights, two)
    assert np.allclose(output, two @ values)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [6.0, 12.0])
def test_the_mixing_weight_has_the_predicted_distribution(beta: float) -> None:
    samples = one_head.draw_samples(one_head.Sizes(samples=20_000), 0.5)
    weight = one_head.attend(beta * (samples.means[0] + samples.means[1])[None], samples)[1][:, 0]
    for limit in (0.1, 0.3, 0.5, 0.7, 0.9):
        below = NormalDist(0, beta * math.sqrt(0.5)).cdf(math.log(limit / (1 - limit)))
        assert one_head.share(weight, 0.0, limit) == pytest.approx(below, abs=0.02)


def test_two_heads_uses_the_samples_of_one_head() -> None:
    one, two = run_small("one-head", "seed=3"), run_small("two-heads", "seed=3")
    varying = [row[2] for row in one.tables[0].rows if row[1] == one_head.VARYING_LENGTH]
    assert varying == [row[2] for row in two.tables[0].rows if row[1] == two_heads.ONE_HEAD]
    assert len(varying) == 2


@pytest.mark.slow
def test_two_heads_miss_k_a_when_it_is_too_short() -> None:
    sizes = one_head.Sizes(samples=20_000)
    samples = one_head.draw_samples(sizes, 0.5)
    samples = samples.where(samples.lengths >= 0)
    too_short = float((samples.lengths < math.log(7) / 10).double().mean())
    assert two_heads.predicted_misses(10.0, sizes) == pytest.approx(too_short, abs=0.005)
    two = two_heads.measure(10.0 * samples.means[:2], samples)
    assert one_head.share(two.weight_a, *two_heads.MISSED) == pytest.approx(too_short, abs=0.003)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_reversed_keys_are_most_of_what_two_heads_miss(seed: int) -> None:
    """Counted independently of the lab's own code."""
    samples = one_head.draw_samples(one_head.Sizes(seed=seed), 0.5)
    keys, means = samples.keys.numpy(), samples.means.numpy()
    along = keys[:, 0] @ means[0]
    weight = (softmax(20 * keys @ means[0])[:, 0] + softmax(20 * keys @ means[1])[:, 0]) / 2
    missed, middle, is_reversed = weight <= 0.25, (weight >= 0.4) & (weight <= 0.6), along < 0
    assert is_reversed.mean() == pytest.approx(0.079, abs=0.017)  # four standard errors
    assert missed[is_reversed].all()
    assert is_reversed[missed].mean() == pytest.approx(0.78, abs=0.06)
    assert middle[~is_reversed].mean() == pytest.approx(0.957, abs=0.01)
    assert missed[~is_reversed].mean() == pytest.approx(0.024, abs=0.007)
    claims = " ".join(claim.text for claim in run_lab_with("two-heads", f"seed={seed}").claims)
    for figure in (middle[~is_reversed].mean(), missed[~is_reversed].mean(), is_reversed.mean()):
        assert f"{figure:.1%}" in claims
    assert f"{is_reversed[missed].mean():.0%} of all misses" in claims
    assert f"reversed in {is_reversed.mean():.1%}" in run_lab_with("one-head", f"seed={seed}").claims[1].text


@pytest.mark.slow
def test_the_predicted_share_of_single_values() -> None:
    sizes = one_head.Sizes(samples=40_000)
    samples = one_head.draw_samples(sizes, 0.5)
    assert one_head.predicted_reversed(sizes) == pytest.approx(float((samples.lengths < 0).double().mean()), abs=0.004)
    kept = samples.where(samples.lengths >= 0)
    for beta in (5.0, 20.0):
        weight = one_head.mixing_weight(beta, kept)
        counted = one_head.share(weight, 0.0, 0.1) + one_head.share(weight, 0.9, 1.0)
        assert one_head.predicted_single(one_head.VARYING_LENGTH, beta, sizes) == pytest.approx(counted, abs=0.01)


@pytest.mark.slow
def test_the_variance_of_a_coin_toss_is_one() -> None:
    samples = one_head.draw_samples(one_head.Sizes(samples=20_000, betas=(1e6,)), 0.5)
    coin = two_heads.measure(
        1e6 * (samples.means[0] + samples.means[1])[None], samples
    )  # so long that one value gets all the weight
    assert coin.variance == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda x: 3 * x.flip(-1), 0.0),
        (lambda x: torch.ones_like(x), 0.5),  # 1 instead of 1 + 1
        (lambda x: x**2, 1.0),  # with y = x: 4 x² instead of 2 x²
        (lambda x: x**3, 3.0),
    ],
)
def test_the_deviation_of_known_functions(step: Callable[[Tensor], Tensor], expected: float) -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    assert nonlinear.deviation(step, x, x) == pytest.approx(expected, abs=1e-12)


def mean_of_values(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with uniform weights."""
    weights = torch.full((*q.shape[:-1], k.size(-2)), 1 / k.size(-2), dtype=q.dtype)
    return weights @ v, weights


def hard_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with all the weight on the highest score."""
    weights = torch.nn.functional.one_hot((q @ k.mT).argmax(-1), k.size(-2)).to(q.dtype)
    return weights @ v, weights


def test_uniform_attention_does_not_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "attention", mean_of_values)
    assert failing(run_small("copy")) == [1, 2, 3]


def test_hard_attention_does_not_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(average, "attention", hard_attention)
    assert failing(run_small("average")) == [0, 1, 2]


def test_keys_of_equal_length_average() -> None:
    assert failing(run_small("average", "longer=0")) == [3]


def test_one_head_is_steady_when_keys_have_a_fixed_length(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = one_head.draw_samples
    monkeypatch.setattr(one_head, "draw_samples", lambda sizes, _: steady(sizes, 0.0))
    assert failing(run_small("one-head")) == [1, 2, 3, 4]


def test_one_head_is_not_steady_when_all_keys_vary() -> None:
    assert 0 in failing(run_small("one-head", "alpha=0.01"))


def test_two_heads_with_the_same_query_are_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = one_head.attend
    monkeypatch.setattr(two_heads, "attend", lambda queries, samples: attend(queries.sum(0, keepdim=True), samples))
    assert failing(run_small("two-heads")) == [0, 1, 2, 3, 4]


def test_attention_that_ignores_its_input_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mean(MultiHeadAttention):
        def forward(self, query: Tensor, _: Tensor, value: Tensor) -> Tensor:  # type: ignore[override]
            return self.out(self.v(value.mean(-2, keepdim=True).expand_as(query)))

    monkeypatch.setattr(nonlinear, "MultiHeadAttention", Mean)
    assert failing(run_small("nonlinear")) == [3, 4]


def test_a_projection_with_a_bias_is_not_taken_for_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = nonlinear.linear_steps
    monkeypatch.setattr(nonlinear, "linear_steps", lambda mha, z: linear(mha, z) | {"shifted": lambda x: x + 1})
    assert failing(run_small("nonlinear")) == [0]


@pytest.mark.parametrize("name", ["average", "one-head", "two-heads"])
def test_more_keys_than_dimensions_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"keys=20 cannot be orthogonal in width=8: increase the width"):
        run_small(name, "keys=20", "width=8")
