"""Why does the learning rate warm up, and what happens without it?

An encoder as deep as the paper's learns the easiest of translations, a cipher: each letter becomes the one behind it
in the alphabet. The rate is the paper's, with its warm-up and without: from the first step it is what it would have
been after the warm-up. Layers normalise after each sum, as in the paper (post-norm), or before each sub-layer
(pre-norm). Who does not look at the letters has a loss of log(letters).
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.config import preset
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREEN, GREY, ORANGE, RED, SKY, legend, panel
from regard.labs.small_training import fit
from regard.model.transformer import build
from regard.threads import one_thread
from regard.training.recipe import Train
from regard.training.schedule import learning_rate

LOWER = 0.1
"""the share of the rate at which post-norm does without a warm-up"""


@dataclass(frozen=True)
class Sizes:
    """What is trained."""

    layers: int = 6
    """of the encoder"""
    width: int = 32
    """of its vectors; the highest rate is the paper's, (width × warmup)^-0.5"""
    letters: int = 16
    """of the alphabet"""
    warmup: int = 100
    """steps over which the rate rises"""
    steps: int = 150
    """of training"""
    rows: int = 16
    """sequences of a batch, of eight letters each"""
    seed: int = 0


@dataclass(frozen=True)
class Way:
    """A way to train."""

    name: str
    norm: Literal["post", "pre"]
    warm: bool
    colour: str
    share: float = 1.0
    """of the paper's rate"""

    def rate(self, step: int, sizes: Sizes) -> float:
        """The paper's; without its warm-up, the highest until that would have been over."""
        step = step if self.warm else max(step, sizes.warmup)
        return self.share * learning_rate(step, Train(steps=sizes.steps, warmup=sizes.warmup), sizes.width)


class Learned(NamedTuple):
    """What came of it."""

    losses: list[float]
    loss: float  # the mean of the last ten
    right: float  # of letters, in new sequences


def run(sizes: Sizes) -> Result:
    """Post- and pre-norm, with and without; then post-norm without, more slowly."""
    warm, cold, pre_warm, pre_cold, slow = ways = (
        Way("post-norm, warm-up", "post", True, BLUE),
        Way("post-norm, none", "post", False, RED),
        Way("pre-norm, warm-up", "pre", True, SKY),
        Way("pre-norm, none", "pre", False, ORANGE),
        Way(f"post-norm, none, rate × {LOWER:g}", "post", False, GREEN, LOWER),
    )
    with one_thread():
        found = {way: learn(way, sizes) for way in ways}
    blind = math.log(sizes.letters)
    rows = [
        (way.name, *(f"{way.rate(at, sizes):.4f}" for at in (1, sizes.warmup)), f"{each.loss:.3f}", f"{each.right:.0%}")
        for way, each in found.items()
    ]
    claims = (
        Claim(
            f"Post-norm learns with the warm-up: loss {found[warm].loss:.3f}, {found[warm].right:.0%} of letters right",
            found[warm].loss < 0.2 * blind and found[warm].right > 0.9,
        ),
        Claim(
            f"and without it nothing: loss {found[cold].loss:.2f}, where not to look at the letters costs {blind:.2f}; "
            f"{found[cold].right:.0%} right",
            found[cold].loss > 0.7 * blind and found[cold].right < 0.5,
        ),
        Claim(
            f"Pre-norm learns with it and without: loss {found[pre_warm].loss:.3f} and {found[pre_cold].loss:.3f}",
            max(found[pre_warm].loss, found[pre_cold].loss) < 0.2 * blind,
        ),
        Claim(
            f"The harm is done by a high rate at the start: at {LOWER:g} of it, post-norm learns without a warm-up: "
            f"loss {found[slow].loss:.3f}",
            found[slow].loss < 0.4 * blind,
        ),
    )
    table = Table(
        ("layers, warm-up", "rate at first", f"at step {sizes.warmup}", "loss at the end", "right"), tuple(rows)
    )
    return Result((table,), claims, lambda figure: draw(figure, found, sizes), (10.0, 3.6))


def learn(way: Way, sizes: Sizes) -> Learned:
    """Train one encoder."""
    torch.manual_seed(sizes.seed)  # the same weights and letters for all
    shape = {"vocab_size": sizes.letters + 1, "d_model": sizes.width, "d_ff": 2 * sizes.width, "layers": sizes.layers}
    model = build(preset("tiny", kind="encoder", norm=way.norm, dropout=0.0, **shape))

    def loss() -> Float[Tensor, ""]:
        text = torch.randint(sizes.letters, (sizes.rows, 8))
        return F.cross_entropy(model(text).flatten(0, 1), (text.flatten() + 1) % sizes.letters)

    losses = fit(model, loss, sizes.steps, lambda step: way.rate(step, sizes))
    with torch.no_grad():
        text = torch.randint(sizes.letters, (256, 8))
        right = (model(text).argmax(-1) == (text + 1) % sizes.letters).double().mean()
    return Learned(losses, sum(losses[-10:]) / 10, float(right))


def draw(figure: Figure, found: dict[Way, Learned], sizes: Sizes) -> None:
    """The rates, and the losses on the way."""
    rates = panel(figure, 2, 1, "learning rate", "step")
    losses = panel(figure, 2, 2, "loss", "step")
    steps = range(1, sizes.steps + 1)
    for way, each in found.items():
        losses.plot(steps, each.losses, color=way.colour, label=way.name, linewidth=1.4)
        if way.norm == "post":
            name = way.name.removeprefix("post-norm, ").replace("none", "no warm-up", 1)
            rates.plot(steps, [way.rate(step, sizes) for step in steps], color=way.colour, label=name)
    losses.axhline(math.log(sizes.letters), color=GREY, linestyle=":", linewidth=1, label="who does not look")
    legend(rates)
    legend(losses)
