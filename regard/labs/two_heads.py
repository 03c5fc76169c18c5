"""What can two heads do that one cannot?

The very samples of the lab one-head, in which the length of k_a varies; those in which k_a is reversed are counted
apart. One head asks for both values at once, q = β(μ_a + μ_b). Two heads ask for one each, q₁ = βμ_a and q₂ = βμ_b, and
their outputs are averaged. Measured is how much the output varies from sample to sample; 1 is a coin that falls on v_a
or on v_b.

Dimensions: N samples, H heads, S keys, D width.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.labs.one_head import LIMITS, SPREAD, Samples, Sizes, attend, histogram, sample, share

ONE, TWO = "one head", "two heads"
MISSED = (0.0, 0.25)
"""the mean weight of v_a where its own head gives it less than half"""
COLOUR = {ONE: ORANGE, TWO: BLUE}


@dataclass(frozen=True)
class Seen:
    """What one β gives in all samples."""

    weight: Float[Tensor, " N"]
    """of v_a, the mean of the heads"""
    least: float
    """weight that v_b has in any sample"""
    variance: float
    """of the output, as a share of a coin's"""


def run(sizes: Sizes) -> Result:
    """Each β, with one head and with two."""
    drawn = sample(sizes, SPREAD)
    turned = drawn.lengths < 0  # [N]
    seen = drawn.where(~turned)
    a, b = seen.means[0], seen.means[1]
    asked = {ONE: (a + b)[None], TWO: torch.stack((a, b))}  # [H, D]
    found = {(how, beta): measure(beta * queries, seen) for beta in sizes.betas for how, queries in asked.items()}
    middle = {at: share(each.weight, *LIMITS[1]) for at, each in found.items()}
    small, large = sizes.betas[0], sizes.betas[-1]
    one, two = found[ONE, large], found[TWO, large]
    calmer = max(found[TWO, beta].variance / found[ONE, beta].variance for beta in sizes.betas)
    missed, predicted = share(two.weight, *MISSED), misses(large, sizes)
    reversed_share, without_a = float(turned.double().mean()), measure(large * asked[TWO], drawn.where(turned))
    all_missed = reversed_share * share(without_a.weight, *MISSED) + (1 - reversed_share) * missed
    because_reversed = reversed_share * share(without_a.weight, *MISSED) / all_missed
    claims = (
        Claim(
            f"Two heads are steady where one swings: at β = {large:g} the output varies by {two.variance:.2f} of a "
            f"coin's variance, not {one.variance:.2f}; at any β by {calmer:.0%} of one head's or less",
            calmer < 0.3,
        ),
        Claim(
            f"{middle[TWO, large]:.1%} of the samples come close to the average, not {middle[ONE, large]:.1%}; "
            f"v_b, whose key hardly varies, never has less than {two.least:.2f}",
            middle[TWO, large] > 0.9 and middle[ONE, large] < 0.1 and two.least > 0.49,
        ),
        Claim(
            f"What is left: in {missed:.1%} k_a is so short that its own head misses it (predicted: {predicted:.1%})",
            abs(missed - predicted) < 0.01 and 0 < missed < 0.05,
        ),
        Claim(
            f"Apart from these, k_a is reversed in {reversed_share:.1%} of all samples, and its head always misses it: "
            f"that is {because_reversed:.0%} of all misses",
            share(without_a.weight, *MISSED) == 1 and 0.6 < because_reversed < 0.95,
        ),
        Claim(
            f"A longer query now helps: from β = {small:g} to {large:g} samples close to the average become more with "
            f"two heads ({middle[TWO, small]:.0%} → {middle[TWO, large]:.0%}), fewer with one "
            f"({middle[ONE, small]:.0%} → {middle[ONE, large]:.0%})",
            middle[TWO, large] > middle[TWO, small] + 0.1 and middle[ONE, large] < middle[ONE, small] - 0.03,
        ),
    )
    rows = tuple(
        (
            *(f"{beta:g}", how, f"{each.weight.mean():.3f} ± {each.weight.std():.3f}"),
            *(f"{middle[how, beta]:.0%}", f"{each.least:.2f}", f"{each.variance:.3f}"),
        )
        for (how, beta), each in found.items()
    )
    columns = ("β", "asked by", "weight of v_a", "v_a has 40 to 60 %", "least weight of v_b", "variance of output")
    table = Table(columns, rows, "The same samples, with one head and with two; a coin's variance is 1")
    note = "Each of the two heads sees the whole width here; heads of a Transformer see their own projections of it."
    return Result((table,), claims, lambda figure: draw(figure, found, seen.lengths), (11.0, 3.6), (note,))


def measure(queries: Float[Tensor, "H D"], seen: Samples) -> Seen:
    """The mean of these heads in each sample."""
    output, weights = attend(queries, seen)  # [N, D], [N, S]
    coin = ((seen.values[0] - seen.values[1]) / 2).square().sum()
    variance = output.var(0).sum() / coin
    return Seen(weights[:, 0], float(weights[:, 1].min()), float(variance))


def misses(beta: float, sizes: Sizes) -> float:
    """How often the rest together outweigh v_a in its own head, where k_a is not reversed: its score, normal around β,
    is above 0 and below ln(S − 1)."""
    score = NormalDist(beta, beta * math.sqrt(SPREAD + sizes.alpha))
    return (score.cdf(math.log(sizes.keys - 1)) - score.cdf(0)) / (1 - score.cdf(0))


def draw(figure: Figure, found: dict[tuple[str, float], Seen], lengths: Float[Tensor, " N"]) -> None:
    """How the weight is distributed, what it depends on, and how the output varies with β."""
    betas = sorted({beta for _, beta in found})
    left = panel(figure, 3, 1, f"weight of v_a, β = {betas[-1]:g}", "weight of v_a", "share of samples")
    middle = panel(figure, 3, 2, "a longer k_a no longer takes all", "length of k_a along μ_a", "weight of v_a")
    right = panel(figure, 3, 3, "variance of the output (a coin: 1)", "β")
    for how, colour in COLOUR.items():
        weight = found[how, betas[-1]].weight
        histogram(left, weight, colour)
        middle.plot(lengths[:400].tolist(), weight[:400].tolist(), "o", color=colour, markersize=3, label=how)
        right.plot(betas, [found[how, beta].variance for beta in betas], "o-", color=colour, label=how)
    middle.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    right.set_ylim(0, 1)
    legend(middle)
    legend(right)
