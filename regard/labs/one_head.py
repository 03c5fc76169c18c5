"""Does one head's average of two values hold when keys vary?

Keys are drawn: k_i from N(μ_i, Σ_i), the μ_i orthonormal. The query is β(μ_a + μ_b), made to give ½(v_a + v_b). First
all Σ = αI with a small α: every key is close to its mean. Then Σ_a = αI + ½ μ_a μ_aᵀ: the key k_a still lies along μ_a,
but its length varies, and in one sample out of thirteen it is reversed: μ_a·k_a < 0. The question is about keys that
keep their direction, so samples with a reversed k_a are counted apart. The mixing weight is what attention gives to
v_a, in each sample. Attention in Regard divides scores by √D, so queries are made √D times longer beforehand.

Dimensions: N samples, H heads, S keys, D width.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import RegardError
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.model.attention import attention

STEADY, SWINGING = "Σ = αI", "Σ_a = αI + ½ μ_a μ_aᵀ"
SPREAD = 0.5
"""the variance of k_a's length where it varies"""
LIMITS = ((0.0, 0.1), (0.4, 0.6), (0.9, 1.0))
"""of the weight of v_a: v_b nearly alone, something like the average, v_a nearly alone"""
COLOUR = {STEADY: BLUE, SWINGING: ORANGE}


@dataclass(frozen=True)
class Sizes:
    """What is drawn."""

    betas: tuple[float, ...] = (5.0, 10.0, 20.0)
    """β, the length of the query's parts, from small to large"""
    alpha: float = 1e-6
    """α, how much every key varies"""
    keys: int = 8
    """S, of which the first two are meant"""
    width: int = 32
    """D, of keys and values, not less than S"""
    samples: int = 4000
    """N, of all keys"""
    seed: int = 0


@dataclass(frozen=True)
class Samples:
    """Keys as they were drawn around their means, and the values that belong to them."""

    means: Float[Tensor, "S D"]
    keys: Float[Tensor, "N S D"]
    values: Float[Tensor, "S D"]

    @property
    def lengths(self) -> Float[Tensor, " N"]:
        """The length of k_a along μ_a in each sample; below 0 the key is reversed."""
        return self.keys[:, 0] @ self.means[0]

    def where(self, chosen: Bool[Tensor, " N"]) -> "Samples":
        """The chosen samples only."""
        return Samples(self.means, self.keys[chosen], self.values)


def sample(sizes: Sizes, stretch: float) -> Samples:
    """Keys of covariance αI, the first with `stretch` · μ_a μ_aᵀ more. One seed gives one set of samples."""
    if sizes.keys > sizes.width:
        raise RegardError(f"keys={sizes.keys} cannot be orthogonal in width={sizes.width}: make the width larger")
    random = torch.Generator().manual_seed(sizes.seed)
    shape = (sizes.keys, sizes.width)
    means = torch.linalg.qr(torch.randn(*shape, generator=random, dtype=torch.float64).mT).Q.mT  # [S, D]
    values = torch.randn(*shape, generator=random, dtype=torch.float64)
    noise = torch.randn(sizes.samples, *shape, generator=random, dtype=torch.float64)
    keys = means + math.sqrt(sizes.alpha) * noise  # [N, S, D]
    along = torch.randn(sizes.samples, 1, generator=random, dtype=torch.float64)
    keys[:, 0] += math.sqrt(stretch) * along * means[0]
    return Samples(means, keys, values)


def attend(queries: Float[Tensor, "H D"], seen: Samples) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N S"]]:
    """Output and weights in each sample, the mean of as many heads as there are queries."""
    n, s, d = seen.keys.shape
    q = (math.sqrt(d) * queries)[None, :, None].expand(n, -1, -1, -1)  # [N, H, 1, D]
    output, weights = attention(q, seen.keys[:, None], seen.values.expand(n, 1, s, d))  # [N, H, 1, D], [N, H, 1, S]
    return output.mean((1, 2)), weights.mean((1, 2))


def run(sizes: Sizes) -> Result:
    """Each β, with keys that vary little, and with k_a of varying length; reversed keys apart."""
    drawn = {STEADY: sample(sizes, 0.0), SWINGING: sample(sizes, SPREAD)}
    small, large = sizes.betas[0], sizes.betas[-1]
    turned = drawn[SWINGING].lengths < 0  # [N]
    kept = {kind: seen.where(seen.lengths >= 0) for kind, seen in drawn.items()}
    mixing = {(kind, beta): mixing_weight(beta, seen) for beta in sizes.betas for kind, seen in kept.items()}
    without_a = mixing_weight(large, drawn[SWINGING].where(turned))
    shares = {at: [*(share(weight, *limits) for limits in LIMITS), alone(*at, sizes)] for at, weight in mixing.items()}
    off = max(abs(to_a + to_b - predicted) for to_b, _, to_a, predicted in shares.values())
    steady, swinging = mixing[STEADY, large], mixing[SWINGING, large]
    narrow, wide = float(mixing[SWINGING, small].std()), float(swinging.std())
    to_b, middle, to_a, _ = shares[SWINGING, large]
    reversed_share, expected = float(turned.double().mean()), reversals(sizes)
    claims = (
        Claim(
            f"While keys stay close to their means, it holds: v_a has weight {steady.mean():.3f} ± {steady.std():.3f}",
            bool((steady - 0.5).abs().max() < 0.1),
        ),
        Claim(
            f"When the length of k_a varies, it is reversed in {reversed_share:.1%} of the samples (predicted: "
            f"{expected:.1%}); there v_b is alone. All other figures leave these samples out",
            abs(reversed_share - expected) < 0.025 and share(without_a, *LIMITS[0]) == 1,
        ),
        Claim(
            f"Where k_a keeps its direction, the output swings: {to_a:.0%} of the samples give v_a nearly alone, "
            f"{to_b:.0%} v_b, and only {middle:.0%} something like the average",
            min(to_a, to_b) > 0.3 and middle < 0.1,
        ),
        Claim(
            f"A longer query makes it worse: at β = {small:g} the weight has ± {narrow:.2f}, at {large:g} ± {wide:.2f}",
            wide > narrow + 0.03,
        ),
        Claim(f"The normal distribution predicts how often v_a or v_b is alone, within {off:.1%}", off < 0.05),
    )
    rows = tuple(
        (f"{beta:g}", kind, f"{weight.mean():.3f} ± {weight.std():.3f}", *map("{:.0%}".format, shares[kind, beta]))
        for (kind, beta), weight in mixing.items()
    )
    columns = ("β", "keys", "weight of v_a", "v_b alone", "in the middle", "v_a alone", "either alone, predicted")
    table = Table(columns, rows, "Alone: 90 % of the weight or more; in the middle: v_a has 40 to 60 %")
    shown = {kind: (seen.lengths, mixing[kind, large]) for kind, seen in kept.items()}
    return Result((table,), claims, lambda figure: draw(figure, shown, large), (11.0, 3.6))


def mixing_weight(beta: float, seen: Samples) -> Float[Tensor, " N"]:
    """What one head that asks for both gives to v_a, in each sample."""
    _, weights = attend(beta * (seen.means[0] + seen.means[1])[None], seen)
    return weights[:, 0]


def share(weight: Float[Tensor, " N"], low: float, high: float) -> float:
    """The share of samples whose weight is between these."""
    return float(((weight >= low) & (weight <= high)).double().mean())


def reversals(sizes: Sizes) -> float:
    """How often k_a is reversed by theory: its length along μ_a is normal around 1."""
    return NormalDist(1, math.sqrt(SPREAD + sizes.alpha)).cdf(0)


def alone(kind: str, beta: float, sizes: Sizes) -> float:
    """How often v_a or v_b is alone by theory: the two scores differ by a normal number, alone is ln 9 or more. With
    keys whose length varies, only differences above -β count: below, k_a is reversed."""
    scores = NormalDist(0, beta * math.sqrt(4 * sizes.alpha + (SPREAD if kind == SWINGING else 0.0)))
    if kind == STEADY:
        return 2 * scores.cdf(-math.log(9))
    below = scores.cdf(-math.log(9)) - scores.cdf(-beta)
    return (max(0.0, below) + scores.cdf(-math.log(9))) / scores.cdf(beta)


def histogram(axes: Axes, weight: Float[Tensor, " N"], colour: str) -> None:
    """How often each weight comes up, as shares of all samples."""
    bins = torch.linspace(0, 1, 42).tolist()
    each = torch.full_like(weight, 1 / len(weight)).tolist()
    axes.hist(weight.tolist(), bins, weights=each, color=colour, alpha=0.75)


def draw(figure: Figure, shown: dict[str, tuple[Tensor, Tensor]], beta: float) -> None:
    """How the weight is distributed, the first samples one by one, and what it depends on."""
    left = panel(figure, 3, 1, f"weight of v_a, β = {beta:g}", "weight of v_a", "share of samples")
    middle = panel(figure, 3, 2, "from sample to sample", "sample", "weight of v_a")
    right = panel(figure, 3, 3, "the longer key takes all", "length of k_a along μ_a", "weight of v_a")
    for kind, (length, weight) in shown.items():
        histogram(left, weight, COLOUR[kind])
        middle.plot(weight[:40].tolist(), "o-", color=COLOUR[kind], linewidth=0.8, markersize=4)
        right.plot(length[:400].tolist(), weight[:400].tolist(), "o", color=COLOUR[kind], markersize=3, label=kind)
    right.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    legend(right)
