"""Why are scores divided by √h before the softmax?

Queries and keys are drawn from N(0, 1), so that a score q·k is a sum of h products and has variance h. Attention in
Regard always divides by √h; to see what it would be without, queries are made √h times longer beforehand. For each
width: the variance of the scores, how the weights are spread (their entropy, as a share of the largest possible), and
how much of a gradient gets from the weights to the scores.
"""

import math
from dataclasses import astuple, dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, ORANGE, legend, panel
from regard.model.attention import attention, split_heads


@dataclass(frozen=True)
class Sizes:
    """What is drawn."""

    widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024)
    """h, the width of queries and keys"""
    length: int = 64
    """s, queries and keys in a sequence"""
    sequences: int = 16
    """that the figures are the mean of"""
    heads: int = 8
    """parts that the widest is cut into, to see what many heads change"""
    seed: int = 0


@dataclass(frozen=True)
class Seen:
    """What one width gives."""

    variance: float
    entropy: float
    gradient: float


def run(sizes: Sizes) -> Result:
    """Each width, as it is and without the division."""
    torch.manual_seed(sizes.seed)
    drawn = {h: torch.randn(2, sizes.sequences, sizes.length, h) for h in sizes.widths}
    divided = {h: measure(q, k) for h, (q, k) in drawn.items()}
    plain = {h: measure(q * math.sqrt(h), k) for h, (q, k) in drawn.items()}
    widest, narrowest = max(sizes.widths), min(sizes.widths)
    sharp, flat = plain[widest], plain[narrowest]
    q, k = (split_heads(each, sizes.heads) for each in drawn[widest])  # [sequences, heads, length, h / heads]
    in_heads, in_heads_divided = measure(q * math.sqrt(widest / sizes.heads), k), measure(q, k)
    rows = [
        row(f"{h}, {how}", seen[h])
        for h in sizes.widths
        for how, seen in (("as it is", plain), ("divided by √h", divided))
    ]
    rows.append(row(f"{widest} in {sizes.heads} heads, as it is", in_heads))
    rows.append(row(f"{widest} in {sizes.heads} heads, divided by √(h/{sizes.heads})", in_heads_divided))
    told = (divided[narrowest], divided[widest])
    growth = fitted_power(sizes.widths, [plain[h].variance for h in sizes.widths])
    claims = (
        Claim(f"Doubling h doubles the variance of the scores: it grows as h to the {growth:.2f}", 0.9 < growth < 1.1),
        Claim(
            f"So softmax picks ever fewer keys: at h = {widest} its entropy is {sharp.entropy:.0%} of the largest, "
            f"at h = {narrowest} {flat.entropy:.0%}",
            sharp.entropy < 0.5 * flat.entropy,
        ),
        Claim(
            f"and gradients fade: at h = {widest} {sharp.gradient:.3f} reaches the scores, at h = {narrowest} "
            f"{flat.gradient:.3f}",
            sharp.gradient < 0.5 * flat.gradient,
        ),
        Claim(
            f"Divided by √h nothing of this depends on the width: at either, variance {told[0].variance:.1f} and "
            f"{told[1].variance:.1f}, entropy {told[0].entropy:.0%} and {told[1].entropy:.0%}, gradient "
            f"{told[0].gradient:.3f} and {told[1].gradient:.3f}",
            all(math.isclose(*pair, rel_tol=0.2) for pair in zip(*map(astuple, told), strict=True)),
        ),
        Claim(
            f"{sizes.heads} heads cut the variance by their number ({in_heads.variance:.0f} instead of "
            f"{sharp.variance:.0f}), and leave the rest to the division",
            math.isclose(in_heads.variance * sizes.heads, sharp.variance, rel_tol=0.2),
        ),
    )
    table = Table(("h", "variance of scores", "entropy of weights", "gradient at the scores"), tuple(rows))
    narrow = [h for h in sizes.widths if plain[h].gradient > divided[h].gradient]
    note = (
        f"Up to h = {max(narrow, default=0)} more of the gradient gets through as it is: weights that are nearly even "
        "pass little of it on, too, since none is large. What the division prevents is that it fades with the width."
    )
    notes = (note,) if narrow else ()
    return Result((table,), claims, lambda figure: draw(figure, plain, divided), (10.0, 3.4), notes)


def measure(q: Float[Tensor, "... s h"], k: Float[Tensor, "... s h"]) -> Seen:
    """What attention does with these queries and keys."""
    scores = q @ k.mT / math.sqrt(q.size(-1))  # as attention has them
    _, weights = attention(q, k, k)
    entropy = torch.special.entr(weights).sum(-1).mean() / math.log(k.size(-2))
    free = weights.clamp(min=1e-30).log().requires_grad_()  # scores, but for a constant of each row
    towards = torch.randn_like(free)
    (gradient,) = torch.autograd.grad((free.softmax(-1) * towards).sum(), free)
    return Seen(float(scores.var()), float(entropy), float(gradient.norm(dim=-1).mean()))


def fitted_power(x: tuple[int, ...], y: list[float]) -> float:
    """The exponent e of y = c·xᵉ, by least squares of the logarithms."""
    logs = torch.tensor([x, y], dtype=torch.float64).log()
    centred = logs - logs.mean(1, keepdim=True)
    return float((centred[0] * centred[1]).sum() / (centred[0] ** 2).sum())


def row(name: str, seen: Seen) -> tuple[str, ...]:
    """A line of the table."""
    return name, f"{seen.variance:.1f}", f"{seen.entropy:.0%}", f"{seen.gradient:.3f}"


def draw(figure: Figure, plain: dict[int, Seen], divided: dict[int, Seen]) -> None:
    """The three measures over the width."""
    for number, (field, title) in enumerate(
        (("variance", "variance of scores"), ("entropy", "entropy of weights"), ("gradient", "gradient at the scores")),
        start=1,
    ):
        axes = panel(figure, 3, number, title, "width h")
        axes.set_xscale("log", base=2)
        if field == "variance":
            axes.set_yscale("log", base=2)
        for seen, colour, name in ((plain, ORANGE, "as it is"), (divided, BLUE, "divided by √h")):
            axes.plot(list(seen), [getattr(each, field) for each in seen.values()], "o-", color=colour, label=name)
        legend(axes)
