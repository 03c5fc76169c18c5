"""Can one query return the average of two values, ½(v_a + v_b)?

The query is β(k_a + k_b). If the keys are orthonormal, its scores are β for k_a and k_b and 0 for all other keys.
Regard's attention divides scores by √D, where D is the width, so the query is multiplied by √D beforehand. Two other
kinds of keys show what the average depends on: keys of length 1 in random directions, and orthogonal keys of which k_a
is slightly longer.
"""

# Dimensions: N draws, S keys, D width.

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import RegardError
from regard.labs.copy import format_error, relative_distance
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREEN, GREY, ORANGE, legend, panel
from regard.model.attention import attention

ORTHONORMAL, RANDOM, LONGER = "orthonormal", "length 1, random directions", "orthogonal, k_a longer"
COLOUR = {ORTHONORMAL: BLUE, RANDOM: GREEN, LONGER: ORANGE}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the random keys and values."""

    betas: tuple[float, ...] = tuple(float(beta) for beta in range(0, 17, 2))
    """Values of β, the factor of the query, in increasing order."""
    keys: int = 16
    """Number S of keys, two of which the query asks for."""
    width: int = 64
    """Width D of keys and values, at least S."""
    longer: float = 0.1
    """Amount by which k_a is longer than the other keys, as a share of their length."""
    draws: int = 200
    """Number of draws to average over."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class MixtureAtBeta:
    """The output and the weights for one value of β."""

    error: float
    """Distance of the output from ½(v_a + v_b), relative to the length of ½(v_a + v_b)."""
    weight_a: float
    weight_b: float


def run(sizes: Sizes) -> LabResult:
    """Measure each β with each kind of keys."""
    torch.manual_seed(sizes.seed)
    kinds = keys_by_kind(sizes)
    values = torch.randn_like(kinds[ORTHONORMAL])  # [N, S, D]
    mixtures = {kind: [measure(keys, values, beta) for beta in sizes.betas] for kind, keys in kinds.items()}
    orthonormal, longer = mixtures[ORTHONORMAL], mixtures[LONGER]
    imbalance = max(abs(mix.weight_a - mix.weight_b) for kind in (ORTHONORMAL, RANDOM) for mix in mixtures[kind])
    factor = (orthonormal[-2].error / orthonormal[-1].error) ** (1 / (sizes.betas[-1] - sizes.betas[-2]))
    best = min(longer, key=lambda mix: mix.error)
    claims = (
        Claim(
            f"Yes: with orthonormal keys and β = {sizes.betas[-1]:g} the output is ½(v_a + v_b) with an error of "
            f"{orthonormal[-1].error:.1e}; with β = {sizes.betas[0]:g} the error is {orthonormal[0].error:.0%}",
            orthonormal[-1].error < 1e-3 < 0.5 < orthonormal[0].error,
        ),
        Claim(f"Increasing β by 1 divides the error by {factor:.2f}, which is e", abs(factor - math.e) < 0.05),
        Claim(
            f"Keys need to have the same length, but not to be exactly orthogonal: in random directions, too, v_a and "
            f"v_b have equal weights (up to {imbalance:.0e}), and the error falls to {mixtures[RANDOM][-1].error:.1e}",
            imbalance < 1e-9 and mixtures[RANDOM][-1].error < 0.05,
        ),
        Claim(
            f"If k_a is {sizes.longer:.0%} longer, no β works: the smallest error is {best.error:.0%}, and at "
            f"β = {sizes.betas[-1]:g} v_a has {longer[-1].weight_a:.0%} of the weight",
            best.error > 0.1 and longer[-1].weight_a > 0.9,
        ),
    )
    tables = (
        by_beta(
            sizes, mixtures, lambda mix: format_error(mix.error), f"Error against ½(v_a + v_b) with {sizes.keys} keys"
        ),
        by_beta(sizes, mixtures, lambda mix: f"{mix.weight_a:.1%}, {mix.weight_b:.1%}", "Weights of v_a and v_b"),
    )
    return LabResult(tables, claims, lambda figure: draw(figure, sizes.betas, mixtures), (10.0, 3.8))


def keys_by_kind(sizes: Sizes) -> dict[str, Float[Tensor, "N S D"]]:
    """Draw keys of each kind; the first key is k_a, the second k_b."""
    if sizes.keys > sizes.width:
        raise RegardError(f"keys={sizes.keys} cannot be orthogonal in width={sizes.width}: increase the width")
    drawn = torch.randn(sizes.draws, sizes.width, sizes.keys, dtype=torch.float64)  # [N, D, S]
    orthonormal = torch.linalg.qr(drawn).Q.mT  # [N, S, D]
    longer = orthonormal.clone()
    longer[:, 0] *= 1 + sizes.longer
    return {ORTHONORMAL: orthonormal, RANDOM: torch.nn.functional.normalize(drawn, dim=1).mT, LONGER: longer}


def measure(keys: Float[Tensor, "N S D"], values: Float[Tensor, "N S D"], beta: float) -> MixtureAtBeta:
    """Attend with the query β(k_a + k_b)."""
    query = math.sqrt(keys.size(-1)) * beta * keys[:, :2].sum(1, keepdim=True)  # [N, 1, D]
    output, weights = attention(query, keys, values)  # [N, 1, D], [N, 1, S]
    weight_a, weight_b = weights[:, 0, :2].mean(0).tolist()
    return MixtureAtBeta(relative_distance(output[:, 0], values[:, :2].mean(1)), weight_a, weight_b)


def by_beta(
    sizes: Sizes, mixtures: dict[str, list[MixtureAtBeta]], cell: Callable[[MixtureAtBeta], str], title: str
) -> ResultTable:
    """Return a table with a row for each β and a column for each kind of keys."""
    rows = [(f"{beta:g}", *(cell(mixes[at]) for mixes in mixtures.values())) for at, beta in enumerate(sizes.betas)]
    return ResultTable(("β", *mixtures), tuple(rows), title)


def draw(figure: Figure, betas: tuple[float, ...], mixtures: dict[str, list[MixtureAtBeta]]) -> None:
    """Draw the error and the weights of v_a and v_b against β."""
    left = panel(figure, 2, 1, "error of the output against ½(v_a + v_b)", "β")
    left.set_yscale("log")
    right = panel(figure, 2, 2, "weight of v_a (solid) and of v_b (dashed)", "β")
    right.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    for kind, mixes in mixtures.items():
        left.plot(betas, [mix.error for mix in mixes], "o-", color=COLOUR[kind], label=kind, markersize=4)
        right.plot(betas, [mix.weight_a for mix in mixes], "-", color=COLOUR[kind], label=kind)
        right.plot(betas, [mix.weight_b for mix in mixes], "--", color=COLOUR[kind])
    right.set_ylim(0, 1)
    legend(left)
    legend(right)
