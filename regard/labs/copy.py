"""When does attention copy a value?

There is one query and S keys. One key has a score that exceeds the mean score of the other keys by a given lead. The
other keys all have the same score, or scores drawn from N(0, 1). Values are drawn from N(0, 1). The error is the
distance between the output and the value of the leading key, divided by the length of that value. An error of 1%
counts as a copy.
"""

# Dimensions: N draws, S keys, D width.

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import RegardError
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import COLOURS, GREY, legend, panel
from regard.model.attention import attention

COPY_ERROR = 0.01
"""Maximum error at which the output counts as a copy of the value."""

ErrorCurve = list[float]
"""The error at each lead."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the random keys and values."""

    keys: tuple[int, ...] = (8, 64, 512)
    """Numbers S of keys."""
    leads: tuple[float, ...] = tuple(float(lead) for lead in range(0, 21, 2))
    """Leads of one key's score over the mean of the others, in increasing order."""
    width: int = 64
    """Width D of keys and values."""
    draws: int = 100
    """Number of draws to average over."""
    seed: int = 0
    """Seed of the random numbers."""


def run(sizes: Sizes) -> LabResult:
    """Measure the error for each lead and each number of keys."""
    if min(sizes.keys) < 2:
        raise RegardError(f"keys={min(sizes.keys)}: a key can lead only if there are at least 2 keys")
    torch.manual_seed(sizes.seed)
    equal = {s: errors(sizes, s, score_std=0.0) for s in sizes.keys}
    random = {s: errors(sizes, s, score_std=1.0) for s in sizes.keys}
    needed = {s: lead_for_a_copy(sizes, equal[s]) for s in sizes.keys}
    extra = {s: lead_for_a_copy(sizes, random[s]) - needed[s] for s in sizes.keys}
    few, many = min(sizes.keys), max(sizes.keys)
    factor = (equal[many][-2] / equal[many][-1]) ** (1 / (sizes.leads[-1] - sizes.leads[-2]))
    claims = (
        Claim(
            f"With {many} keys and a lead of {sizes.leads[0]:g} the output is the mean of all values, and resembles "
            f"none of them: the error is {equal[many][0]:.0%}",
            equal[many][0] > 0.8,
        ),
        Claim(
            f"The output is a copy, with an error of {COPY_ERROR:.0%}, at a lead of {needed[few]:.1f} with {few} keys "
            f"and {needed[many]:.1f} with {many}: the lead grows only with the logarithm of the number of keys",
            all(abs(needed[s] - predicted_lead(s)) < 0.25 for s in sizes.keys),
        ),
        Claim(
            f"From there on, increasing the lead by 1 divides the error by {factor:.2f}, which is e: the error never "
            f"reaches 0",
            abs(factor - math.e) < 0.05 and equal[many][-1] > 0,
        ),
        Claim(
            f"If the other scores are random, the highest of them dominate: {many} keys need a lead that is "
            f"{extra[many]:.1f} greater",
            0.2 < extra[many] < 0.8,
        ),
    )
    return LabResult(
        tables(sizes, equal, random), claims, lambda figure: draw(figure, sizes.leads, equal, random), (10.0, 3.8)
    )


def errors(sizes: Sizes, keys: int, score_std: float) -> ErrorCurve:
    """Return the error at each lead, averaged over all draws."""
    q = torch.zeros(sizes.draws, 1, sizes.width, dtype=torch.float64)  # [N, 1, D]
    q[..., 0] = math.sqrt(sizes.width)  # makes the first component of a key its score
    k = torch.randn(sizes.draws, keys, sizes.width, dtype=torch.float64)  # [N, S, D]
    v = torch.randn_like(k)
    k[..., 0] *= score_std
    curve = []
    for lead in sizes.leads:
        k[:, 0, 0] = lead
        output, _ = attention(q, k, v)  # [N, 1, D]
        curve.append(relative_distance(output[:, 0], v[:, 0]))
    return curve


def relative_distance(output: Float[Tensor, "N D"], target: Float[Tensor, "N D"]) -> float:
    """Return the mean distance between outputs and targets, relative to the length of the targets."""
    return float(((output - target).norm(dim=-1) / target.norm(dim=-1)).mean())


def format_error(error: float) -> str:
    """Format an error for a table: as a percentage, or in scientific notation if it is small."""
    return f"{error:.1%}" if error >= 1e-3 else f"{error:.0e}"


def lead_for_a_copy(sizes: Sizes, curve: ErrorCurve) -> float:
    """Return the lead at which the error falls to that of a copy, interpolated between the leads that were tried."""
    return float(np.interp(-math.log(COPY_ERROR), -np.log(curve), sizes.leads))


def predicted_lead(keys: int) -> float:
    """Return the lead at which the other S − 1 keys together get a weight of COPY_ERROR."""
    return math.log((1 / COPY_ERROR - 1) * (keys - 1))


def tables(sizes: Sizes, equal: dict[int, ErrorCurve], random: dict[int, ErrorCurve]) -> tuple[ResultTable, ...]:
    """Return the errors by lead, and the leads that a copy needs."""
    rows = tuple(
        (f"{lead:g}", *(format_error(curves[s][at]) for curves in (equal, random) for s in sizes.keys))
        for at, lead in enumerate(sizes.leads)
    )
    columns = ("lead", *(f"S = {s}{suffix}" for suffix in ("", ", random") for s in sizes.keys))
    copies = tuple(
        (
            f"{s}",
            f"{lead_for_a_copy(sizes, equal[s]):.2f}",
            f"{predicted_lead(s):.2f}",
            f"{lead_for_a_copy(sizes, random[s]):.2f}",
        )
        for s in sizes.keys
    )
    return (
        ResultTable(columns, rows, "Error of the output by lead, for S keys with equal or random other scores"),
        ResultTable(("S", "others equal", "ln(99 (S − 1))", "others random"), copies, "Lead needed for a copy"),
    )


def draw(figure: Figure, leads: tuple[float, ...], equal: dict[int, ErrorCurve], random: dict[int, ErrorCurve]) -> None:
    """Draw the error against the lead, and against the lead minus ln(S − 1)."""
    left = panel(figure, 2, 1, "error of the output", "lead of the score")
    right = panel(figure, 2, 2, "the same, shifted by ln(S − 1)", "lead − ln(S − 1)")
    for (s, curve), colour in zip(equal.items(), COLOURS, strict=False):
        left.plot(leads, curve, "o-", color=colour, label=f"{s} keys", markersize=4)
        left.plot(leads, random[s], ":", color=colour)
        right.plot([lead - math.log(s - 1) for lead in leads], curve, "o", color=colour, markersize=4)
    left.plot([], [], ":", color=GREY, label="other scores random")
    x = np.linspace(*right.get_xlim(), 100)
    right.plot(x, 1 / (1 + np.exp(x)), color=GREY, linewidth=1, zorder=0, label="weight of the others, 1 / (1 + eˣ)")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.axhline(COPY_ERROR, color=GREY, linewidth=0.8, linestyle="--", label="a copy: error 1%")
        legend(axes)
