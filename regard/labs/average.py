"""Can one query take the average of two values, ½(v_a + v_b)?

The query is β(k_a + k_b). Where keys are orthonormal, its score is β with k_a and with k_b, and 0 with the rest.
Attention in Regard divides scores by √D, so the query is made √D times longer beforehand. Beside it, to see what the
average rests on: keys of length 1 in random directions, and orthogonal keys of which k_a is a little longer.

Dimensions: N draws, S keys, D width.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import RegardError
from regard.labs.copy import distance, share
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREEN, GREY, ORANGE, legend, panel
from regard.model.attention import attention

ORTHONORMAL, RANDOM, LONGER = "orthonormal", "length 1, random directions", "orthogonal, k_a longer"
COLOUR = {ORTHONORMAL: BLUE, RANDOM: GREEN, LONGER: ORANGE}


@dataclass(frozen=True)
class Sizes:
    """What is drawn."""

    betas: tuple[float, ...] = tuple(float(beta) for beta in range(0, 17, 2))
    """β, the length of the query's two parts, from small to large"""
    keys: int = 16
    """S, of which two are meant"""
    width: int = 64
    """D, of keys and values, not less than S"""
    longer: float = 0.1
    """by how much k_a is longer where keys are not of one length"""
    draws: int = 200
    """that the figures are the mean of"""
    seed: int = 0


@dataclass(frozen=True)
class Seen:
    """What one β gives."""

    error: float
    """distance of the output from ½(v_a + v_b), in lengths of the latter"""
    to_a: float
    """the weight of v_a"""
    to_b: float


def run(sizes: Sizes) -> Result:
    """Each β with each kind of keys."""
    torch.manual_seed(sizes.seed)
    kinds = keys_of_each_kind(sizes)
    values = torch.randn_like(kinds[ORTHONORMAL])  # [N, S, D]
    seen = {kind: [measure(keys, values, beta) for beta in sizes.betas] for kind, keys in kinds.items()}
    straight, longer = seen[ORTHONORMAL], seen[LONGER]
    apart = max(abs(each.to_a - each.to_b) for kind in (ORTHONORMAL, RANDOM) for each in seen[kind])
    factor = (straight[-2].error / straight[-1].error) ** (1 / (sizes.betas[-1] - sizes.betas[-2]))
    best = min(longer, key=lambda each: each.error)
    claims = (
        Claim(
            f"Yes: with orthonormal keys and β = {sizes.betas[-1]:g} the output is ½(v_a + v_b) but for "
            f"{straight[-1].error:.1e}; with β = {sizes.betas[0]:g} it is off by {straight[0].error:.0%}",
            straight[-1].error < 1e-3 < 0.5 < straight[0].error,
        ),
        Claim(f"Each further 1 of β divides the error by {factor:.2f}: by e", abs(factor - math.e) < 0.05),
        Claim(
            f"Keys need not be quite orthogonal, but of one length: in random directions too v_a and v_b have "
            f"equal weights (but for {apart:.0e}), and the error falls to {seen[RANDOM][-1].error:.1e}",
            apart < 1e-9 and seen[RANDOM][-1].error < 0.05,
        ),
        Claim(
            f"With k_a {sizes.longer:.0%} longer there is no good β: the error is {best.error:.0%} at best, and at "
            f"β = {sizes.betas[-1]:g} v_a alone has {longer[-1].to_a:.0%} of the weight",
            best.error > 0.1 and longer[-1].to_a > 0.9,
        ),
    )
    errors = [(f"{beta:g}", *(share(seen[kind][at].error) for kind in seen)) for at, beta in enumerate(sizes.betas)]
    halves = [(f"{beta:g}", *(weights(seen[kind][at]) for kind in seen)) for at, beta in enumerate(sizes.betas)]
    tables = (
        Table(("β", *seen), tuple(errors), f"Error against ½(v_a + v_b), of {sizes.keys} keys"),
        Table(("β", *seen), tuple(halves), "Weights of v_a and v_b"),
    )
    return Result(tables, claims, lambda figure: draw(figure, sizes.betas, seen), (10.0, 3.8))


def keys_of_each_kind(sizes: Sizes) -> dict[str, Float[Tensor, "N S D"]]:
    """Keys to try, of which the first is k_a, the second k_b."""
    if sizes.keys > sizes.width:
        raise RegardError(f"keys={sizes.keys} cannot be orthogonal in width={sizes.width}: make the width larger")
    drawn = torch.randn(sizes.draws, sizes.width, sizes.keys, dtype=torch.float64)  # [N, D, S]
    orthonormal = torch.linalg.qr(drawn).Q.mT  # [N, S, D]
    longer = orthonormal.clone()
    longer[:, 0] *= 1 + sizes.longer
    return {ORTHONORMAL: orthonormal, RANDOM: torch.nn.functional.normalize(drawn, dim=1).mT, LONGER: longer}


def measure(keys: Float[Tensor, "N S D"], values: Float[Tensor, "N S D"], beta: float) -> Seen:
    """Attention of β(k_a + k_b)."""
    query = math.sqrt(keys.size(-1)) * beta * keys[:, :2].sum(1, keepdim=True)  # [N, 1, D]
    output, weights = attention(query, keys, values)  # [N, 1, D], [N, 1, S]
    to_a, to_b = weights[:, 0, :2].mean(0).tolist()
    return Seen(distance(output[:, 0], values[:, :2].mean(1)), to_a, to_b)


def weights(seen: Seen) -> str:
    """Both weights for the table."""
    return f"{seen.to_a:.1%}, {seen.to_b:.1%}"


def draw(figure: Figure, betas: tuple[float, ...], seen: dict[str, list[Seen]]) -> None:
    """The error and the weight of v_a over β."""
    left = panel(figure, 2, 1, "error of the output against ½(v_a + v_b)", "β")
    left.set_yscale("log")
    right = panel(figure, 2, 2, "weight of v_a (solid) and of v_b (dashed)", "β")
    right.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    for kind, found in seen.items():
        left.plot(betas, [each.error for each in found], "o-", color=COLOUR[kind], label=kind, markersize=4)
        right.plot(betas, [each.to_a for each in found], "-", color=COLOUR[kind], label=kind)
        right.plot(betas, [each.to_b for each in found], "--", color=COLOUR[kind])
    right.set_ylim(0, 1)
    legend(left)
    legend(right)
