"""Why are scores divided by √h before the softmax?

Queries and keys are drawn from N(0, 1), so a score q·k is a sum of h products and has variance h. Regard's attention
always divides scores by √h; to undo the division, queries are multiplied by √h beforehand. For each width h, the lab
measures the variance of the scores, the entropy of the attention weights (as a share of its maximum), and how much of
the gradient with respect to the weights reaches the scores.
"""

import math
from dataclasses import astuple, dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, ORANGE, legend, panel
from regard.labs.lab_statistics import fitted_power
from regard.model.attention import attention, split_heads


@dataclass(frozen=True)
class Sizes:
    """Sizes of the random queries and keys."""

    widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024)
    """Widths h of queries and keys."""
    length: int = 64
    """Number s of queries and keys in a sequence."""
    sequences: int = 16
    """Number of sequences to average over."""
    heads: int = 8
    """Number of heads that the greatest width is split into, to show what several heads change."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class WidthMeasures:
    """Measurements at one width."""

    variance: float
    entropy: float
    gradient: float


def run(sizes: Sizes) -> LabResult:
    """Measure each width, with and without the division."""
    torch.manual_seed(sizes.seed)
    drawn = {h: torch.randn(2, sizes.sequences, sizes.length, h) for h in sizes.widths}
    divided = {h: measure(q, k) for h, (q, k) in drawn.items()}
    undivided = {h: measure(q * math.sqrt(h), k) for h, (q, k) in drawn.items()}
    widest, narrowest = max(sizes.widths), min(sizes.widths)
    sharp, flat = undivided[widest], undivided[narrowest]
    q, k = (split_heads(tensor, sizes.heads) for tensor in drawn[widest])  # [sequences, heads, length, h / heads]
    in_heads, in_heads_divided = measure(q * math.sqrt(widest / sizes.heads), k), measure(q, k)
    rows = [
        table_row(f"{h}, {how}", measures[h])
        for h in sizes.widths
        for how, measures in (("undivided", undivided), ("divided by √h", divided))
    ]
    rows.append(table_row(f"{widest} in {sizes.heads} heads, undivided", in_heads))
    rows.append(table_row(f"{widest} in {sizes.heads} heads, divided by √(h/{sizes.heads})", in_heads_divided))
    ends = (divided[narrowest], divided[widest])
    growth = fitted_power(sizes.widths, [undivided[h].variance for h in sizes.widths])
    claims = (
        Claim(
            f"Doubling h doubles the variance of the scores: it grows as h to the power {growth:.2f}",
            0.9 < growth < 1.1,
        ),
        Claim(
            f"So the softmax selects fewer and fewer keys: its entropy is {flat.entropy:.0%} of the maximum at "
            f"h = {narrowest}, and {sharp.entropy:.0%} at h = {widest}",
            sharp.entropy < 0.5 * flat.entropy,
        ),
        Claim(
            f"Gradients shrink as well: {flat.gradient:.3f} reaches the scores at h = {narrowest}, and "
            f"{sharp.gradient:.3f} at h = {widest}",
            sharp.gradient < 0.5 * flat.gradient,
        ),
        Claim(
            f"With the division by √h none of this depends on the width: at h = {narrowest} and h = {widest} the "
            f"variance is {ends[0].variance:.1f} and {ends[1].variance:.1f}, the entropy {ends[0].entropy:.0%} and "
            f"{ends[1].entropy:.0%}, and the gradient {ends[0].gradient:.3f} and {ends[1].gradient:.3f}",
            all(math.isclose(*pair, rel_tol=0.2) for pair in zip(*map(astuple, ends), strict=True)),
        ),
        Claim(
            f"{sizes.heads} heads divide the variance by {sizes.heads} ({in_heads.variance:.0f} instead of "
            f"{sharp.variance:.0f}); the division by √h has to do the rest",
            math.isclose(in_heads.variance * sizes.heads, sharp.variance, rel_tol=0.2),
        ),
    )
    table = ResultTable(("h", "variance of scores", "entropy of weights", "gradient at the scores"), tuple(rows))
    narrow = [h for h in sizes.widths if undivided[h].gradient > divided[h].gradient]
    note = (
        f"Up to h = {max(narrow, default=0)} the gradient is larger without the division: nearly uniform weights also "
        "pass on little of it, since none of them is large. The division prevents the gradient from shrinking as the "
        "width grows."
    )
    notes = (note,) if narrow else ()
    return LabResult((table,), claims, lambda figure: draw(figure, undivided, divided), (10.0, 3.4), notes)


def measure(q: Float[Tensor, "... s h"], k: Float[Tensor, "... s h"]) -> WidthMeasures:
    """Measure attention with these queries and keys."""
    scores = q @ k.mT / math.sqrt(q.size(-1))  # the scores that attention computes
    _, weights = attention(q, k, k)
    entropy = torch.special.entr(weights).sum(-1).mean() / math.log(k.size(-2))
    log_weights = weights.clamp(min=1e-30).log().requires_grad_()  # equal to the scores up to a constant in each row
    output_gradient = torch.randn_like(log_weights)
    (gradient,) = torch.autograd.grad((log_weights.softmax(-1) * output_gradient).sum(), log_weights)
    return WidthMeasures(float(scores.var()), float(entropy), float(gradient.norm(dim=-1).mean()))


def table_row(name: str, measures: WidthMeasures) -> tuple[str, ...]:
    """Format the measurements at one width as a row of the table."""
    return name, f"{measures.variance:.1f}", f"{measures.entropy:.0%}", f"{measures.gradient:.3f}"


def draw(figure: Figure, undivided: dict[int, WidthMeasures], divided: dict[int, WidthMeasures]) -> None:
    """Draw the three measures against the width."""
    for number, (field, title) in enumerate(
        (("variance", "variance of scores"), ("entropy", "entropy of weights"), ("gradient", "gradient at the scores")),
        start=1,
    ):
        axes = panel(figure, 3, number, title, "width h")
        axes.set_xscale("log", base=2)
        if field == "variance":
            axes.set_yscale("log", base=2)
        for by_width, colour, name in ((undivided, ORANGE, "undivided"), (divided, BLUE, "divided by √h")):
            values = [getattr(measures, field) for measures in by_width.values()]
            axes.plot(list(by_width), values, "o-", color=colour, label=name)
        legend(axes)
