"""What can two heads do that one cannot?

The samples are those of the lab one-head in which the length of k_a varies; samples in which k_a is reversed are
counted separately. One head asks for both values at once with q = β(μ_a + μ_b). Two heads ask for one value each, with
q₁ = βμ_a and q₂ = βμ_b, and their outputs are averaged. The lab measures how much the output varies between samples. A
variance of 1 is that of a coin toss between v_a and v_b.
"""

# Dimensions: N samples, H heads, S keys, D width.

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.labs.one_head import AVERAGE, LENGTH_VARIANCE, KeySamples, Sizes, attend, draw_samples, histogram, share

ONE_HEAD, TWO_HEADS = "one head", "two heads"
MISSED = (0.0, 0.25)
"""Range of the mean weight of v_a in which its own head gives it less than half of the weight."""
COLOUR = {ONE_HEAD: ORANGE, TWO_HEADS: BLUE}


@dataclass(frozen=True)
class HeadsAtBeta:
    """Measurements of one or two heads at one β, over all samples."""

    weight_a: Float[Tensor, " N"]
    """Weight of v_a in each sample, averaged over the heads."""
    min_weight_b: float
    """Smallest weight of v_b in any sample."""
    variance: float
    """Variance of the output, as a share of the variance of a coin toss."""


def run(sizes: Sizes) -> LabResult:
    """Measure each β with one head and with two heads."""
    drawn = draw_samples(sizes, LENGTH_VARIANCE)
    is_reversed = drawn.lengths < 0  # [N]
    kept = drawn.where(~is_reversed)
    a, b = kept.means[0], kept.means[1]
    queries = {ONE_HEAD: (a + b)[None], TWO_HEADS: torch.stack((a, b))}  # [H, D]
    measures = {(heads, beta): measure(beta * q, kept) for beta in sizes.betas for heads, q in queries.items()}
    average = {case: share(heads.weight_a, *AVERAGE) for case, heads in measures.items()}
    small, large = sizes.betas[0], sizes.betas[-1]
    one, two = measures[ONE_HEAD, large], measures[TWO_HEADS, large]
    variance_ratio = max(measures[TWO_HEADS, beta].variance / measures[ONE_HEAD, beta].variance for beta in sizes.betas)
    missed, predicted = share(two.weight_a, *MISSED), predicted_misses(large, sizes)
    reversed_share = float(is_reversed.double().mean())
    reversed_missed = share(measure(large * queries[TWO_HEADS], drawn.where(is_reversed)).weight_a, *MISSED)
    all_missed = reversed_share * reversed_missed + (1 - reversed_share) * missed
    missed_because_reversed = reversed_share * reversed_missed / all_missed
    claims = (
        Claim(
            f"The output of two heads varies far less: at β = {large:g} its variance is {two.variance:.2f} of that of "
            f"a coin toss, compared with {one.variance:.2f} for one head; at every β it is at most "
            f"{variance_ratio:.0%} of that of one head",
            variance_ratio < 0.3,
        ),
        Claim(
            f"With two heads {average[TWO_HEADS, large]:.1%} of the samples come close to the average, with one head "
            f"{average[ONE_HEAD, large]:.1%}; v_b, whose key hardly varies, always has a weight of at least "
            f"{two.min_weight_b:.2f}",
            average[TWO_HEADS, large] > 0.9 and average[ONE_HEAD, large] < 0.1 and two.min_weight_b > 0.49,
        ),
        Claim(
            f"In {missed:.1%} of the samples k_a is so short that its own head misses it (predicted: {predicted:.1%})",
            abs(missed - predicted) < 0.01 and 0 < missed < 0.05,
        ),
        Claim(
            f"In addition, k_a is reversed in {reversed_share:.1%} of all samples, and its head always misses it: "
            f"that is {missed_because_reversed:.0%} of all misses",
            reversed_missed == 1 and 0.6 < missed_because_reversed < 0.95,
        ),
        Claim(
            f"A longer query now helps: from β = {small:g} to β = {large:g} the share of samples close to the average "
            f"rises with two heads ({average[TWO_HEADS, small]:.0%} → {average[TWO_HEADS, large]:.0%}) and falls with "
            f"one ({average[ONE_HEAD, small]:.0%} → {average[ONE_HEAD, large]:.0%})",
            average[TWO_HEADS, large] > average[TWO_HEADS, small] + 0.1
            and average[ONE_HEAD, large] < average[ONE_HEAD, small] - 0.03,
        ),
    )
    rows = tuple(
        (
            *(f"{beta:g}", heads, f"{measured.weight_a.mean():.3f} ± {measured.weight_a.std():.3f}"),
            *(f"{average[heads, beta]:.0%}", f"{measured.min_weight_b:.2f}", f"{measured.variance:.3f}"),
        )
        for (heads, beta), measured in measures.items()
    )
    columns = ("β", "heads", "weight of v_a", "v_a has 40 to 60%", "smallest weight of v_b", "variance of output")
    table = ResultTable(columns, rows, "The same samples with one head and with two; the variance of a coin toss is 1")
    note = "Here each of the two heads sees the full width; the heads of a Transformer see their own projections of it."
    return LabResult((table,), claims, lambda figure: draw(figure, measures, kept.lengths), (11.0, 3.6), (note,))


def measure(queries: Float[Tensor, "H D"], samples: KeySamples) -> HeadsAtBeta:
    """Measure the mean of the heads with these queries."""
    output, weights = attend(queries, samples)  # [N, D], [N, S]
    coin_toss = ((samples.values[0] - samples.values[1]) / 2).square().sum()
    variance = output.var(0).sum() / coin_toss
    return HeadsAtBeta(weights[:, 0], float(weights[:, 1].min()), float(variance))


def predicted_misses(beta: float, sizes: Sizes) -> float:
    """Return the probability that the other keys outweigh k_a in its own head, given that k_a is not reversed.

    The score of k_a is normal with mean β; it must be above 0 and below ln(S − 1).
    """
    score = NormalDist(beta, beta * math.sqrt(LENGTH_VARIANCE + sizes.alpha))
    return (score.cdf(math.log(sizes.keys - 1)) - score.cdf(0)) / (1 - score.cdf(0))


def draw(figure: Figure, measures: dict[tuple[str, float], HeadsAtBeta], lengths: Float[Tensor, " N"]) -> None:
    """Draw the distribution of the weight, its dependence on the length of k_a, and the variance against β."""
    betas = sorted({beta for _, beta in measures})
    left = panel(figure, 3, 1, f"weight of v_a, β = {betas[-1]:g}", "weight of v_a", "share of samples")
    middle = panel(figure, 3, 2, "weight of v_a by length of k_a", "length of k_a along μ_a", "weight of v_a")
    right = panel(figure, 3, 3, "variance of the output (coin toss: 1)", "β")
    for heads, colour in COLOUR.items():
        weight = measures[heads, betas[-1]].weight_a
        histogram(left, weight, colour)
        middle.plot(lengths[:400].tolist(), weight[:400].tolist(), "o", color=colour, markersize=3, label=heads)
        right.plot(betas, [measures[heads, beta].variance for beta in betas], "o-", color=colour, label=heads)
    middle.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    right.set_ylim(0, 1)
    legend(middle)
    legend(right)
