"""Why does the learning rate warm up, and what happens without it?

An encoder as deep as the paper's learns a simple cipher: each letter is replaced by the next one in the alphabet. The
learning rate follows the paper's schedule, with its warm-up and without: without, it starts at the value that it would
have after the warm-up. Layers normalise after each residual sum, as in the paper (post-norm), or before each sub-layer
(pre-norm). A model that ignores its input has a loss of log(letters).
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
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREEN, GREY, ORANGE, RED, SKY, legend, panel
from regard.labs.small_training import fit
from regard.model.transformer import build
from regard.threads import one_thread
from regard.training.recipe import TrainSection
from regard.training.schedule import learning_rate

REDUCED_RATE = 0.1
"""Share of the learning rate at which post-norm learns without a warm-up."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the encoder, and of the training."""

    layers: int = 6
    """Number of layers of the encoder."""
    width: int = 32
    """Width of the encoder; the maximum learning rate is the paper's, (width × warmup)^-0.5."""
    letters: int = 16
    """Number of letters in the alphabet."""
    warmup: int = 100
    """Number of steps over which the learning rate rises."""
    steps: int = 150
    """Training steps."""
    rows: int = 16
    """Number of sequences in a batch, of eight letters each."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class WarmupVariant:
    """A way to train the encoder."""

    name: str
    norm: Literal["post", "pre"]
    warmup: bool
    colour: str
    rate_share: float = 1.0
    """Factor on the paper's learning rate."""

    def rate(self, step: int, sizes: Sizes) -> float:
        """Return the learning rate at a step; without a warm-up, it is constant until the warm-up would have ended."""
        step = step if self.warmup else max(step, sizes.warmup)
        return self.rate_share * learning_rate(step, TrainSection(steps=sizes.steps, warmup=sizes.warmup), sizes.width)


class CipherResult(NamedTuple):
    """The results of one training run."""

    losses: list[float]
    final_loss: float
    """Mean loss of the last ten steps."""
    accuracy: float
    """Share of correct letters in new sequences."""


def run(sizes: Sizes) -> LabResult:
    """Train post-norm and pre-norm with and without a warm-up, then post-norm without one at a lower rate."""
    warm, cold, pre_warm, pre_cold, slow = variants = (
        WarmupVariant("post-norm, warm-up", "post", True, BLUE),
        WarmupVariant("post-norm, no warm-up", "post", False, RED),
        WarmupVariant("pre-norm, warm-up", "pre", True, SKY),
        WarmupVariant("pre-norm, no warm-up", "pre", False, ORANGE),
        WarmupVariant(f"post-norm, no warm-up, rate × {REDUCED_RATE:g}", "post", False, GREEN, REDUCED_RATE),
    )
    with one_thread():
        results = {variant: train_cipher(variant, sizes) for variant in variants}
    ignorant = math.log(sizes.letters)
    claims = (
        Claim(
            f"With the warm-up post-norm learns: its loss is {results[warm].final_loss:.3f}, and "
            f"{results[warm].accuracy:.0%} of letters are correct",
            results[warm].final_loss < 0.2 * ignorant and results[warm].accuracy > 0.9,
        ),
        Claim(
            f"Without it, post-norm learns nothing: its loss is {results[cold].final_loss:.2f}, where a model that "
            f"ignores its input has {ignorant:.2f}; {results[cold].accuracy:.0%} are correct",
            results[cold].final_loss > 0.7 * ignorant and results[cold].accuracy < 0.5,
        ),
        Claim(
            f"Pre-norm learns with a warm-up and without: its loss is {results[pre_warm].final_loss:.3f} and "
            f"{results[pre_cold].final_loss:.3f}",
            max(results[pre_warm].final_loss, results[pre_cold].final_loss) < 0.2 * ignorant,
        ),
        Claim(
            f"The cause is a high learning rate at the start: at {REDUCED_RATE:g} times the rate, post-norm learns "
            f"without a warm-up, to a loss of {results[slow].final_loss:.3f}",
            results[slow].final_loss < 0.4 * ignorant,
        ),
    )
    rows = [
        (
            *(variant.name, *(f"{variant.rate(step, sizes):.4f}" for step in (1, sizes.warmup))),
            *(f"{result.final_loss:.3f}", f"{result.accuracy:.0%}"),
        )
        for variant, result in results.items()
    ]
    columns = ("training", "rate at step 1", f"rate at step {sizes.warmup}", "final loss", "correct")
    table = ResultTable(columns, tuple(rows))
    return LabResult((table,), claims, lambda figure: draw(figure, results, sizes), (10.0, 3.6))


def train_cipher(variant: WarmupVariant, sizes: Sizes) -> CipherResult:
    """Train one encoder and test it."""
    torch.manual_seed(sizes.seed)  # the same weights and letters for all
    shape = {"vocab_size": sizes.letters + 1, "d_model": sizes.width, "d_ff": 2 * sizes.width, "layers": sizes.layers}
    model = build(preset("tiny", kind="encoder", norm=variant.norm, dropout=0.0, **shape))

    def loss() -> Float[Tensor, ""]:
        text = torch.randint(sizes.letters, (sizes.rows, 8))
        return F.cross_entropy(model(text).flatten(0, 1), (text.flatten() + 1) % sizes.letters)

    losses = fit(model, loss, sizes.steps, lambda step: variant.rate(step, sizes))
    with torch.no_grad():
        text = torch.randint(sizes.letters, (256, 8))
        accuracy = (model(text).argmax(-1) == (text + 1) % sizes.letters).double().mean()
    return CipherResult(losses, sum(losses[-10:]) / 10, float(accuracy))


def draw(figure: Figure, results: dict[WarmupVariant, CipherResult], sizes: Sizes) -> None:
    """Draw the learning rates and the losses."""
    rates = panel(figure, 2, 1, "learning rate", "step")
    losses = panel(figure, 2, 2, "loss", "step")
    steps = range(1, sizes.steps + 1)
    for variant, result in results.items():
        losses.plot(steps, result.losses, color=variant.colour, label=variant.name, linewidth=1.4)
        if variant.norm == "post":
            label = variant.name.removeprefix("post-norm, ")
            rates.plot(steps, [variant.rate(step, sizes) for step in steps], color=variant.colour, label=label)
    losses.axhline(math.log(sizes.letters), color=GREY, linestyle=":", linewidth=1, label="input ignored")
    legend(rates)
    legend(losses)
