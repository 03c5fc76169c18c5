"""Which steps of self-attention are not linear?

A linear step f keeps sums: f(x + y) = f(x) + f(y), so that twice the input is twice the output. Each step is given
sums of random sequences, then attention as a whole: with its weights fixed (queries and keys from a sequence z that
stays, only values from x) and free (all from x). The miss is the length of f(x + y) − f(x) − f(y), as a share of that
of f(x) + f(y).

Dimensions: B sequences, T positions, C model width, H heads, D a head's width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.model.attention import MultiHeadAttention, attention, combine_heads, split_heads

Step = Callable[[Tensor], Tensor]

ROUNDING, CLEAR = 1e-10, 1e-2
"""a miss below the first is rounding in double precision, one above the second is no rounding at all"""
SCORES, SOFTMAX = "scores, q and k from x", "softmax"
BIASED, CENTRED = "project with a bias: x W + b", "the same less f(0)"
FIXED, QUERIES, FREE = "x as values, weights fixed", "x as queries", "x as all three, weights free"


@dataclass(frozen=True)
class Sizes:
    """What is drawn."""

    heads: int = 4
    """H, beside a single head"""
    width: int = 64
    """C, of the model"""
    length: int = 16
    """T, positions of a sequence"""
    sequences: int = 32
    """B, that the figures are the mean of"""
    scales: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    """how large the numbers in x and y are, from small to large"""
    seed: int = 0


def run(sizes: Sizes) -> Result:
    """Each step, the whole, and the whole for small and large inputs."""
    torch.manual_seed(sizes.seed)
    x, y, z = torch.randn(3, sizes.sequences, sizes.length, sizes.width, dtype=torch.float64)  # each [B, T, C]
    one, many, biased = (
        MultiHeadAttention(sizes.width, heads, bias=bias).double().requires_grad_(False)
        for heads, bias in ((1, False), (sizes.heads, False), (sizes.heads, True))
    )
    scores = other_steps(many, biased)[SCORES]
    doubled = float(scores(2 * x).norm() / scores(x).norm())
    linear = {name: miss(step, x, y) for name, step in linear_steps(many, z).items()}
    others = {name: miss(step, x, y) for name, step in other_steps(many, biased).items()}
    by_heads = {mha.heads: {name: miss(step, x, y) for name, step in whole(mha, z).items()} for mha in (one, many)}
    by_scale = {name: [miss(step, c * x, c * y) for c in sizes.scales] for name, step in whole(many, z).items()}
    growth = float(np.polyfit(np.log(sizes.scales[:2]), np.log(by_scale[FREE][:2]), 1)[0])
    worst, fixed = max(linear.values()), max(found[FIXED] for found in by_heads.values())
    free = min(found[FREE] for found in by_heads.values())
    claims = (
        Claim(
            f"Projecting, cutting into heads and mixing by given weights are linear: they miss by {worst:.0e} at most",
            worst < ROUNDING,
        ),
        Claim(
            f"Scores are not, for x meets itself: twice the input gives {doubled:.2f} times the scores",
            others[SCORES] > CLEAR and abs(doubled - 4) < ROUNDING,
        ),
        Claim(f"Nor is softmax: it misses by {others[SOFTMAX]:.0%}", others[SOFTMAX] > CLEAR),
        Claim(
            f"So attention is linear while its weights are fixed (miss {fixed:.0e}), and not when x makes them "
            f"({free:.0%}), with one head as with {sizes.heads}",
            fixed < ROUNDING and free > CLEAR,
        ),
        Claim(
            f"Yet nearly so for small x, a plain mean of values: the miss grows as the size of x to the {growth:.2f}",
            abs(growth - 2) < 0.1,
        ),
        Claim(
            f"A bias alone breaks sums too ({others[BIASED]:.0%}), but by no more than a constant",
            others[BIASED] > CLEAR and others[CENTRED] < ROUNDING,
        ),
    )
    told = {f"{name}; H = {heads}": each for heads, found in by_heads.items() for name, each in found.items()}
    tables = (table("A step of attention", linear | others), table("Attention as a whole, given", told))
    seen = linear | others | told
    return Result(tables, claims, lambda figure: draw(figure, seen, sizes.scales, by_scale), (11.0, 4.4))


def linear_steps(mha: MultiHeadAttention, z: Float[Tensor, "B T C"]) -> dict[str, Step]:
    """Steps that should be linear; q, k and weights that are fixed come from z."""
    q, k = (split_heads(project(z), mha.heads) for project in (mha.q, mha.k))  # [B, H, T, D]
    return {
        "project: x W": mha.q,
        "cut into heads": lambda x: split_heads(x, mha.heads),
        "scores, k fixed": lambda x: split_heads(mha.q(x), mha.heads) @ k.mT,
        "weights · v, weights fixed": lambda x: attention(q, k, split_heads(mha.v(x), mha.heads))[0],
        "heads together, project out": lambda x: mha.out(combine_heads(split_heads(x, mha.heads))),
    }


def other_steps(mha: MultiHeadAttention, biased: MultiHeadAttention) -> dict[str, Step]:
    """Steps that should not be, and what is left of a bias without its constant."""
    return {
        SCORES: lambda x: split_heads(mha.q(x), mha.heads) @ split_heads(mha.k(x), mha.heads).mT,
        SOFTMAX: lambda x: x.softmax(-1),
        BIASED: biased.q,
        CENTRED: lambda x: biased.q(x) - biased.q(torch.zeros_like(x)),
    }


def whole(mha: MultiHeadAttention, z: Float[Tensor, "B T C"]) -> dict[str, Step]:
    """Attention with x for some of its inputs, and z, which stays, for the others."""
    return {FIXED: lambda x: mha(z, z, x), QUERIES: lambda x: mha(x, z, z), FREE: lambda x: mha(x, x, x)}


def miss(step: Step, x: Float[Tensor, "B T C"], y: Float[Tensor, "B T C"]) -> float:
    """How far f(x + y) is from f(x) + f(y), as a share of the latter."""
    apart = step(x) + step(y)
    return float((step(x + y) - apart).norm() / apart.norm())


def table(what: str, misses: dict[str, float]) -> Table:
    """Each miss and what follows from it."""
    rows = [(name, f"{each:.2g}", "linear" if each < ROUNDING else "not linear") for name, each in misses.items()]
    return Table((what, "miss", "so it is"), tuple(rows))


def draw(figure: Figure, seen: dict[str, float], scales: tuple[float, ...], by_scale: dict[str, list[float]]) -> None:
    """The miss of each step, and that of the whole over the size of its input."""
    left = panel(
        figure, 2, 1, "miss of each step: rounding (blue) or not (orange)", "|f(x + y) − f(x) − f(y)|, relative"
    )
    colours = [BLUE if each < ROUNDING else ORANGE for each in seen.values()]
    left.barh(list(seen), list(seen.values()), color=colours)
    left.set_xscale("log")
    left.set_xlim(1e-17, 10)
    left.invert_yaxis()
    right = panel(figure, 2, 2, "miss of the whole", "size of x")
    for (name, misses), colour in zip(by_scale.items(), (BLUE, GREY, ORANGE), strict=True):
        right.loglog(scales, misses, "o-", color=colour, label=name)
    legend(right)
