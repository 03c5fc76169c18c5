"""Which steps of self-attention are not linear?

A linear step f preserves sums: f(x + y) = f(x) + f(y). In particular, twice the input gives twice the output. The lab
applies each step to sums of random sequences, and then attention as a whole: with fixed weights (queries and keys come
from a constant sequence z, only values from x) and with free weights (queries, keys and values all come from x). The
deviation is the length of f(x + y) − f(x) − f(y), divided by the length of f(x) + f(y).
"""

# Dimensions: B sequences, T positions, C model width, H heads, D a head's width.

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.model.attention import MultiHeadAttention, attention, combine_heads, split_heads

AttentionStep = Callable[[Tensor], Tensor]

MAX_ROUNDING, MIN_NONLINEAR = 1e-10, 1e-2
"""Largest deviation that rounding in double precision explains, and smallest one that counts as clearly nonlinear."""
SCORES, SOFTMAX = "scores, q and k from x", "softmax"
BIASED, CENTRED = "project with a bias: x W + b", "the same minus f(0)"
FIXED, QUERIES, FREE = "x as values, weights fixed", "x as queries", "x as all three, weights free"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the attention and of the random sequences."""

    heads: int = 4
    """Number H of heads, compared with a single head."""
    width: int = 64
    """Width C of the model."""
    length: int = 16
    """Number T of positions in a sequence."""
    sequences: int = 32
    """Number B of sequences to average over."""
    scales: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    """Standard deviations of the components of x and y, in increasing order."""
    seed: int = 0
    """Seed of the random numbers."""


def run(sizes: Sizes) -> LabResult:
    """Measure each step, attention as a whole, and attention as a whole for small and large inputs."""
    torch.manual_seed(sizes.seed)
    x, y, z = torch.randn(3, sizes.sequences, sizes.length, sizes.width, dtype=torch.float64)  # each [B, T, C]
    one, many, biased = (
        MultiHeadAttention(sizes.width, heads, bias=bias).double().requires_grad_(False)
        for heads, bias in ((1, False), (sizes.heads, False), (sizes.heads, True))
    )
    scores = other_steps(many, biased)[SCORES]
    doubled = float(scores(2 * x).norm() / scores(x).norm())
    linear = {name: deviation(step, x, y) for name, step in linear_steps(many, z).items()}
    others = {name: deviation(step, x, y) for name, step in other_steps(many, biased).items()}
    by_heads = {
        mha.heads: {name: deviation(step, x, y) for name, step in whole_attention(mha, z).items()}
        for mha in (one, many)
    }
    by_scale = {
        name: [deviation(step, scale * x, scale * y) for scale in sizes.scales]
        for name, step in whole_attention(many, z).items()
    }
    growth = float(np.polyfit(np.log(sizes.scales[:2]), np.log(by_scale[FREE][:2]), 1)[0])
    largest, fixed = max(linear.values()), max(deviations[FIXED] for deviations in by_heads.values())
    free = min(deviations[FREE] for deviations in by_heads.values())
    claims = (
        Claim(
            f"Projecting, splitting into heads and averaging with given weights are linear: they deviate by "
            f"{largest:.0e} at most",
            largest < MAX_ROUNDING,
        ),
        Claim(
            f"Scores are not linear, because x is multiplied by itself: twice the input gives {doubled:.2f} times the "
            f"scores",
            others[SCORES] > MIN_NONLINEAR and abs(doubled - 4) < MAX_ROUNDING,
        ),
        Claim(f"Softmax is not linear: it deviates by {others[SOFTMAX]:.0%}", others[SOFTMAX] > MIN_NONLINEAR),
        Claim(
            f"So attention is linear if its weights are fixed (deviation {fixed:.0e}), and not if they depend on x "
            f"({free:.0%}), both with one head and with {sizes.heads}",
            fixed < MAX_ROUNDING and free > MIN_NONLINEAR,
        ),
        Claim(
            f"For small x it is nearly linear, a plain mean of values: the deviation grows as the scale of x to the "
            f"power {growth:.2f}",
            abs(growth - 2) < 0.1,
        ),
        Claim(
            f"A bias also breaks linearity ({others[BIASED]:.0%}), but only by a constant",
            others[BIASED] > MIN_NONLINEAR and others[CENTRED] < MAX_ROUNDING,
        ),
    )
    whole = {
        f"{name}; H = {heads}": value for heads, deviations in by_heads.items() for name, value in deviations.items()
    }
    tables = (table("step of attention", linear | others), table("attention as a whole", whole))
    bars = linear | others | whole
    return LabResult(tables, claims, lambda figure: draw(figure, bars, sizes.scales, by_scale), (11.0, 4.4))


def linear_steps(mha: MultiHeadAttention, z: Float[Tensor, "B T C"]) -> dict[str, AttentionStep]:
    """Return the steps that should be linear; fixed queries, keys and weights come from z."""
    q, k = (split_heads(project(z), mha.heads) for project in (mha.q, mha.k))  # [B, H, T, D]
    return {
        "project: x W": mha.q,
        "split into heads": lambda x: split_heads(x, mha.heads),
        "scores, k fixed": lambda x: split_heads(mha.q(x), mha.heads) @ k.mT,
        "weights · v, weights fixed": lambda x: attention(q, k, split_heads(mha.v(x), mha.heads))[0],
        "combine heads, project out": lambda x: mha.out(combine_heads(split_heads(x, mha.heads))),
    }


def other_steps(mha: MultiHeadAttention, biased: MultiHeadAttention) -> dict[str, AttentionStep]:
    """Return the steps that should not be linear, and a projection with a bias minus its constant."""
    return {
        SCORES: lambda x: split_heads(mha.q(x), mha.heads) @ split_heads(mha.k(x), mha.heads).mT,
        SOFTMAX: lambda x: x.softmax(-1),
        BIASED: biased.q,
        CENTRED: lambda x: biased.q(x) - biased.q(torch.zeros_like(x)),
    }


def whole_attention(mha: MultiHeadAttention, z: Float[Tensor, "B T C"]) -> dict[str, AttentionStep]:
    """Return attention with x for some of its inputs, and the constant z for the others."""
    return {FIXED: lambda x: mha(z, z, x), QUERIES: lambda x: mha(x, z, z), FREE: lambda x: mha(x, x, x)}


def deviation(step: AttentionStep, x: Float[Tensor, "B T C"], y: Float[Tensor, "B T C"]) -> float:
    """Return the distance of f(x + y) from f(x) + f(y), relative to the latter."""
    separate = step(x) + step(y)
    return float((step(x + y) - separate).norm() / separate.norm())


def table(subject: str, deviations: dict[str, float]) -> ResultTable:
    """Return a table of deviations, and whether each step is linear."""
    rows = [
        (name, f"{value:.2g}", "linear" if value < MAX_ROUNDING else "not linear") for name, value in deviations.items()
    ]
    return ResultTable((subject, "deviation", "verdict"), tuple(rows))


def draw(
    figure: Figure, deviations: dict[str, float], scales: tuple[float, ...], by_scale: dict[str, list[float]]
) -> None:
    """Draw the deviation of each step, and that of attention as a whole against the scale of its input."""
    left = panel(figure, 2, 1, "deviation: rounding (blue) or nonlinear (orange)", "|f(x + y) − f(x) − f(y)|, relative")
    colours = [BLUE if value < MAX_ROUNDING else ORANGE for value in deviations.values()]
    left.barh(list(deviations), list(deviations.values()), color=colours)
    left.set_xscale("log")
    left.set_xlim(1e-17, 10)
    left.invert_yaxis()
    right = panel(figure, 2, 2, "deviation of attention as a whole", "scale of x")
    for (name, values), colour in zip(by_scale.items(), (BLUE, GREY, ORANGE), strict=True):
        right.loglog(scales, values, "o-", color=colour, label=name)
    legend(right)
