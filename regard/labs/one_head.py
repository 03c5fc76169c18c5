"""Can one head still average two values when keys vary?

Keys are random: k_i is drawn from N(μ_i, Σ_i) with orthonormal means μ_i. The query β(μ_a + μ_b) is meant to return
½(v_a + v_b). In the first case all Σ = αI with a small α, so every key is close to its mean. In the second case Σ_a =
αI + ½ μ_a μ_aᵀ: the key k_a still points along μ_a, but its length varies, and in one sample out of thirteen it is
reversed (μ_a·k_a < 0). The question is about keys that keep their direction, so samples with a reversed k_a are counted
separately. The mixing weight is the attention weight of v_a in a sample. Regard's attention divides scores by √D, where
D is the width, so queries are multiplied by √D beforehand.
"""

# Dimensions: N samples, H heads, S keys, D width.

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import RegardError
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.model.attention import attention

FIXED_LENGTH, VARYING_LENGTH = "Σ = αI", "Σ_a = αI + ½ μ_a μ_aᵀ"
LENGTH_VARIANCE = 0.5
"""Variance of the length of k_a, where it varies."""
ONLY_B, AVERAGE, ONLY_A = (0.0, 0.1), (0.4, 0.6), (0.9, 1.0)
"""Ranges of the weight of v_a in which the output is almost only v_b, close to the average, or almost only v_a."""
COLOUR = {FIXED_LENGTH: BLUE, VARYING_LENGTH: ORANGE}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the random keys and values."""

    betas: tuple[float, ...] = (5.0, 10.0, 20.0)
    """Values of β, the factor of the query, in increasing order."""
    alpha: float = 1e-6
    """Variance α of every component of a key."""
    keys: int = 8
    """Number S of keys; the query asks for the first two."""
    width: int = 32
    """Width D of keys and values, at least S."""
    samples: int = 4000
    """Number N of samples."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class KeySamples:
    """Random keys, their means, and their values."""

    means: Float[Tensor, "S D"]
    keys: Float[Tensor, "N S D"]
    values: Float[Tensor, "S D"]

    @property
    def lengths(self) -> Float[Tensor, " N"]:
        """The length of k_a along μ_a in each sample; negative if the key is reversed."""
        return self.keys[:, 0] @ self.means[0]

    def where(self, chosen: Bool[Tensor, " N"]) -> "KeySamples":
        """Return only the chosen samples."""
        return KeySamples(self.means, self.keys[chosen], self.values)


def draw_samples(sizes: Sizes, length_variance: float) -> KeySamples:
    """Draw keys with covariance αI, plus `length_variance` · μ_a μ_aᵀ for the first. The seed determines them all."""
    if sizes.keys > sizes.width:
        raise RegardError(f"keys={sizes.keys} cannot be orthogonal in width={sizes.width}: increase the width")
    generator = torch.Generator().manual_seed(sizes.seed)
    shape = (sizes.keys, sizes.width)
    means = torch.linalg.qr(torch.randn(*shape, generator=generator, dtype=torch.float64).mT).Q.mT  # [S, D]
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(sizes.samples, *shape, generator=generator, dtype=torch.float64)
    keys = means + math.sqrt(sizes.alpha) * noise  # [N, S, D]
    along = torch.randn(sizes.samples, 1, generator=generator, dtype=torch.float64)
    keys[:, 0] += math.sqrt(length_variance) * along * means[0]
    return KeySamples(means, keys, values)


def attend(queries: Float[Tensor, "H D"], samples: KeySamples) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N S"]]:
    """Return the output and the weights in each sample, averaged over one head per query."""
    n, s, d = samples.keys.shape
    q = (math.sqrt(d) * queries)[None, :, None].expand(n, -1, -1, -1)  # [N, H, 1, D]
    k, v = samples.keys[:, None], samples.values.expand(n, 1, s, d)
    output, weights = attention(q, k, v)  # [N, H, 1, D], [N, H, 1, S]
    return output.mean((1, 2)), weights.mean((1, 2))


def run(sizes: Sizes) -> LabResult:
    """Measure each β with keys of fixed and of varying length; count reversed keys separately."""
    drawn = {FIXED_LENGTH: draw_samples(sizes, 0.0), VARYING_LENGTH: draw_samples(sizes, LENGTH_VARIANCE)}
    small, large = sizes.betas[0], sizes.betas[-1]
    is_reversed = drawn[VARYING_LENGTH].lengths < 0  # [N]
    kept = {kind: samples.where(samples.lengths >= 0) for kind, samples in drawn.items()}
    mixing = {(kind, beta): mixing_weight(beta, samples) for beta in sizes.betas for kind, samples in kept.items()}
    reversed_weight = mixing_weight(large, drawn[VARYING_LENGTH].where(is_reversed))
    shares = {
        case: [*(share(weight, *limits) for limits in (ONLY_B, AVERAGE, ONLY_A)), predicted_single(*case, sizes)]
        for case, weight in mixing.items()
    }
    deviation = max(abs(only_a + only_b - predicted) for only_b, _, only_a, predicted in shares.values())
    fixed, varying = mixing[FIXED_LENGTH, large], mixing[VARYING_LENGTH, large]
    std_small, std_large = float(mixing[VARYING_LENGTH, small].std()), float(varying.std())
    only_b, average, only_a, _ = shares[VARYING_LENGTH, large]
    reversed_share, expected = float(is_reversed.double().mean()), predicted_reversed(sizes)
    claims = (
        Claim(
            f"Yes, while keys stay close to their means: v_a has a weight of {fixed.mean():.3f} ± {fixed.std():.3f}",
            bool((fixed - 0.5).abs().max() < 0.1),
        ),
        Claim(
            f"If the length of k_a varies, k_a is reversed in {reversed_share:.1%} of the samples (predicted: "
            f"{expected:.1%}), and the output is only v_b. All other figures leave these samples out",
            abs(reversed_share - expected) < 0.025 and share(reversed_weight, *ONLY_B) == 1,
        ),
        Claim(
            f"No, if the length of k_a varies and its direction does not: {only_a:.0%} of the samples give almost only "
            f"v_a, {only_b:.0%} almost only v_b, and {average:.0%} something close to the average",
            min(only_a, only_b) > 0.3 and average < 0.1,
        ),
        Claim(
            f"A longer query makes it worse: the weight of v_a has a standard deviation of {std_small:.2f} at "
            f"β = {small:g} and of {std_large:.2f} at β = {large:g}",
            std_large > std_small + 0.03,
        ),
        Claim(
            f"The normal distribution predicts how often the output is a single value, within {deviation:.1%}",
            deviation < 0.05,
        ),
    )
    rows = tuple(
        (f"{beta:g}", kind, f"{weight.mean():.3f} ± {weight.std():.3f}", *map("{:.0%}".format, shares[kind, beta]))
        for (kind, beta), weight in mixing.items()
    )
    columns = ("β", "keys", "weight of v_a", "only v_b", "average", "only v_a", "a single value, predicted")
    title = "Only v_a or v_b: 90% of the weight or more; average: v_a has 40 to 60%"
    shown = {kind: (samples.lengths, mixing[kind, large]) for kind, samples in kept.items()}
    table = ResultTable(columns, rows, title)
    return LabResult((table,), claims, lambda figure: draw(figure, shown, large), (11.0, 3.6))


def mixing_weight(beta: float, samples: KeySamples) -> Float[Tensor, " N"]:
    """Return the weight that one head with the query β(μ_a + μ_b) gives to v_a in each sample."""
    _, weights = attend(beta * (samples.means[0] + samples.means[1])[None], samples)
    return weights[:, 0]


def share(weight: Float[Tensor, " N"], low: float, high: float) -> float:
    """Return the share of samples whose weight is between the limits."""
    return float(((weight >= low) & (weight <= high)).double().mean())


def predicted_reversed(sizes: Sizes) -> float:
    """Return the probability that k_a is reversed: its length along μ_a is normal with mean 1."""
    return NormalDist(1, math.sqrt(LENGTH_VARIANCE + sizes.alpha)).cdf(0)


def predicted_single(kind: str, beta: float, sizes: Sizes) -> float:
    """Return the probability that v_a or v_b has 90% of the weight, given that k_a is not reversed.

    The two scores differ by a normal number, and 90% of the weight means a difference of at least ln 9. If the length
    of k_a varies, differences below -β do not count: there k_a is reversed.
    """
    length_variance = LENGTH_VARIANCE if kind == VARYING_LENGTH else 0.0
    difference = NormalDist(0, beta * math.sqrt(4 * sizes.alpha + length_variance))
    if kind == FIXED_LENGTH:
        return 2 * difference.cdf(-math.log(9))
    below = difference.cdf(-math.log(9)) - difference.cdf(-beta)
    return (max(0.0, below) + difference.cdf(-math.log(9))) / difference.cdf(beta)


def histogram(axes: Axes, weight: Float[Tensor, " N"], colour: str) -> None:
    """Draw a histogram of the weights, as shares of all samples."""
    bins = torch.linspace(0, 1, 42).tolist()
    shares = torch.full_like(weight, 1 / len(weight)).tolist()
    axes.hist(weight.tolist(), bins, weights=shares, color=colour, alpha=0.75)


def draw(figure: Figure, shown: dict[str, tuple[Tensor, Tensor]], beta: float) -> None:
    """Draw the distribution of the weight, its values in the first samples, and its dependence on the length of k_a."""
    left = panel(figure, 3, 1, f"weight of v_a, β = {beta:g}", "weight of v_a", "share of samples")
    middle = panel(figure, 3, 2, "variation between samples", "sample", "weight of v_a")
    right = panel(figure, 3, 3, "the longer key gets all the weight", "length of k_a along μ_a", "weight of v_a")
    for kind, (length, weight) in shown.items():
        histogram(left, weight, COLOUR[kind])
        middle.plot(weight[:40].tolist(), "o-", color=COLOUR[kind], linewidth=0.8, markersize=4)
        right.plot(length[:400].tolist(), weight[:400].tolist(), "o", color=COLOUR[kind], markersize=3, label=kind)
    right.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    legend(right)
