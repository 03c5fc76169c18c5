"""When does attention copy: when is its output one of the values?

One query, S keys. All but one key have the same score, or scores drawn from N(0, 1); the score of the one stands above
their mean by a lead. Values are drawn from N(0, 1). The error is the distance of the output from that key's value, in
lengths of the value: 1 % is a copy to the eye.

Dimensions: N draws, S keys, D width.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import RegardError
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import COLOURS, GREY, legend, panel
from regard.model.attention import attention

COPIED = 0.01
"""the error from which on the output counts as a copy"""

Curve = list[float]
"""the error at each lead"""


@dataclass(frozen=True)
class Sizes:
    """What is drawn."""

    keys: tuple[int, ...] = (8, 64, 512)
    """S, how many keys there are to choose from"""
    leads: tuple[float, ...] = tuple(float(lead) for lead in range(0, 21, 2))
    """how far one score stands above the rest, from small to large"""
    width: int = 64
    """D, of keys and values"""
    draws: int = 100
    """that the figures are the mean of"""
    seed: int = 0


def run(sizes: Sizes) -> Result:
    """Each lead among each number of keys."""
    if min(sizes.keys) < 2:
        raise RegardError(f"keys={min(sizes.keys)}: a key can only lead among two or more")
    torch.manual_seed(sizes.seed)
    alike = {s: errors(sizes, s, scatter=0.0) for s in sizes.keys}
    scattered = {s: errors(sizes, s, scatter=1.0) for s in sizes.keys}
    needed = {s: lead_for_a_copy(sizes, alike[s]) for s in sizes.keys}
    needed_more = {s: lead_for_a_copy(sizes, scattered[s]) - needed[s] for s in sizes.keys}
    few, many = min(sizes.keys), max(sizes.keys)
    further = sizes.leads[-1] - sizes.leads[-2]
    factor = (alike[many][-2] / alike[many][-1]) ** (1 / further)
    claims = (
        Claim(
            f"With a lead of {sizes.leads[0]:g} among {many} keys the output is a mean of all values, nothing like one "
            f"of them: error {alike[many][0]:.0%}",
            alike[many][0] > 0.8,
        ),
        Claim(
            f"With a lead of {needed[few]:.1f} among {few} keys, of {needed[many]:.1f} among {many}, it is that value "
            f"but for {COPIED:.0%}: the lead grows with the logarithm of the number of keys alone",
            all(abs(needed[s] - predicted(s)) < 0.25 for s in sizes.keys),
        ),
        Claim(
            f"From there each further 1 of lead divides the error by {factor:.2f}: by e, never to nothing",
            abs(factor - math.e) < 0.05 and alike[many][-1] > 0,
        ),
        Claim(
            f"Where the rest are scattered, the highest of them count most: {many} keys need a lead of "
            f"{needed_more[many]:.1f} more",
            0.2 < needed_more[many] < 0.8,
        ),
    )
    rows = tuple(
        (f"{lead:g}", *(share(curves[s][at]) for curves in (alike, scattered) for s in sizes.keys))
        for at, lead in enumerate(sizes.leads)
    )
    columns = ("lead", *(f"S = {s}{how}" for how in ("", ", scattered") for s in sizes.keys))
    copies = tuple(
        (f"{s}", f"{needed[s]:.2f}", f"{predicted(s):.2f}", f"{needed[s] + needed_more[s]:.2f}") for s in sizes.keys
    )
    tables = (
        Table(columns, rows, "Error of the output against one value, by the lead of its key among S"),
        Table(("S", "the rest alike", "ln(99 (S − 1))", "the rest scattered"), copies, "Lead that a copy needs"),
    )
    return Result(tables, claims, lambda figure: draw(figure, sizes.leads, alike, scattered), (10.0, 3.8))


def errors(sizes: Sizes, keys: int, scatter: float) -> Curve:
    """How far the output is from the value of the key that leads, in the mean over all draws, by lead."""
    q = torch.zeros(sizes.draws, 1, sizes.width, dtype=torch.float64)  # [N, 1, D]
    q[..., 0] = math.sqrt(sizes.width)  # so that a key's first number is its score
    k = torch.randn(sizes.draws, keys, sizes.width, dtype=torch.float64)  # [N, S, D]
    v = torch.randn_like(k)
    k[..., 0] *= scatter
    found = []
    for lead in sizes.leads:
        k[:, 0, 0] = lead
        output, _ = attention(q, k, v)  # [N, 1, D]
        found.append(distance(output[:, 0], v[:, 0]))
    return found


def distance(output: Float[Tensor, "N D"], value: Float[Tensor, "N D"]) -> float:
    """Between what came out and what should have, in lengths of the latter."""
    return float(((output - value).norm(dim=-1) / value.norm(dim=-1)).mean())


def share(error: float) -> str:
    """An error for the table: in percent while that can be read."""
    return f"{error:.1%}" if error >= 1e-3 else f"{error:.0e}"


def lead_for_a_copy(sizes: Sizes, found: Curve) -> float:
    """Where the error comes down to that of a copy, between the leads that were tried."""
    return float(np.interp(-math.log(COPIED), -np.log(found), sizes.leads))


def predicted(keys: int) -> float:
    """The lead at which S − 1 other keys together keep the weight that a copy may miss."""
    return math.log((1 / COPIED - 1) * (keys - 1))


def draw(figure: Figure, leads: tuple[float, ...], alike: dict[int, Curve], scattered: dict[int, Curve]) -> None:
    """The error over the lead, and over the lead less what the number of keys asks for."""
    left = panel(figure, 2, 1, "error of the output against one value", "lead of its key's score")
    right = panel(figure, 2, 2, "the same, all keys on one curve", "lead − ln(S − 1)")
    for (s, found), colour in zip(alike.items(), COLOURS, strict=False):
        left.plot(leads, found, "o-", color=colour, label=f"{s} keys", markersize=4)
        left.plot(leads, scattered[s], ":", color=colour)
        right.plot([lead - math.log(s - 1) for lead in leads], found, "o", color=colour, markersize=4)
    left.plot([], [], ":", color=GREY, label="the rest scattered")
    x = np.linspace(*right.get_xlim(), 100)
    right.plot(x, 1 / (1 + np.exp(x)), color=GREY, linewidth=1, zorder=0, label="weight of the rest, 1 / (1 + eˣ)")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.axhline(COPIED, color=GREY, linewidth=0.8, linestyle="--", label="a copy but for 1 %")
        legend(axes)
