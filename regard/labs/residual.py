"""What do residual connections and normalisation do for the gradient?

Encoders of increasing depth with fresh weights get random tokens and labels, in five forms: sub-layers alone, with a
norm after each, with a residual connection around each, and with both, as in the paper (post-norm) and as in later
models (pre-norm). For each form, the lab measures the gradient in the first layer and in the last, and how much the
tokens of a sentence still differ from one another after the last layer: if they do not differ, the gradient carries no
information.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.config import ModelConfig, preset
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import COLOURS, legend, panel
from regard.labs.lab_statistics import fitted_power
from regard.model.layers import Layer
from regard.model.transformer import Encoder, initialise


class PartialLayer(Layer):
    """A layer without its residual connections, its norms, or both."""

    def __init__(self, config: ModelConfig, adds: bool, norms: bool) -> None:
        super().__init__(config)
        self.adds, self.norms = adds, norms

    def residual(self, x: Tensor, normalise: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute normalise(x + sublayer(x)), without the missing parts."""
        y = x + sublayer(x) if self.adds else sublayer(x)
        return normalise(y) if self.norms else y


FORMS: dict[str, Callable[[ModelConfig], Layer]] = {
    "neither": partial(PartialLayer, adds=False, norms=False),
    "norm only": partial(PartialLayer, adds=False, norms=True),
    "residual only": partial(PartialLayer, adds=True, norms=False),
    "both, post-norm": Layer,
    "both, pre-norm": Layer,
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the encoders."""

    depths: tuple[int, ...] = (2, 4, 8, 16, 32)
    """Numbers of layers."""
    draws: int = 4
    """Number of fresh weights, over which the geometric mean is taken."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class DepthMeasures:
    """Measurements of one form at one depth."""

    first: float
    """Norm of the gradient in the first layer."""
    last: float
    """Norm of the gradient in the last layer."""
    variation: float
    """Deviation of a sentence's tokens from their mean after the last layer, relative to their length."""


def run(sizes: Sizes) -> LabResult:
    """Measure each form at each depth."""
    measures = {form: [mean_of_draws(form, depth, sizes) for depth in sizes.depths] for form in FORMS}
    bare, norm, residual, post, pre = measures.values()
    middle, shallow, deep = len(sizes.depths) // 2, sizes.depths[0], sizes.depths[-1]
    variation = [form[middle].variation for form in (norm, post, pre)]
    factor = (bare[-1].first / bare[0].first) ** (1 / (deep - shallow))
    ratios = [max(at.first for at in form) / min(at.first for at in form) for form in (post, pre)]
    powers = [fitted_power(sizes.depths, [at.last for at in form]) for form in (post, pre)]
    claims = (
        Claim(
            f"With neither, the gradient vanishes: each further layer multiplies it by {factor:.2f}, and from "
            f"{shallow} layers to {deep} it falls from {bare[0].first:.1f} to {bare[-1].first:.0e}",
            factor < 0.8,
        ),
        Claim(
            f"With residuals only, the gradient gets through, but activations grow and it grows with them: to "
            f"{residual[-1].first:.0e}",
            residual[-1].first > 100 * residual[0].first,
        ),
        Claim(
            f"With norms only, the gradient keeps its size but loses its information: after {sizes.depths[middle]} "
            f"layers tokens differ by {variation[0]:.0e}; with residuals by {variation[1]:.2f} (post-norm) and "
            f"{variation[2]:.2f} (pre-norm)",
            variation[0] < 0.01 * min(variation[1:]),
        ),
        Claim(
            f"With both, it reaches the first layer: from {shallow} to {deep} layers the gradient there varies by a "
            f"factor of {ratios[0]:.1f} (post-norm) and {ratios[1]:.1f} (pre-norm)",
            max(ratios) < 10,
        ),
        Claim(
            f"In the last layer the gradient of post-norm does not depend on the depth (depth to the power "
            f"{powers[0]:.2f}); that of pre-norm decreases (depth to the power {powers[1]:.2f})",
            abs(powers[0]) < 0.3 and powers[1] < -0.3,
        ),
    )
    rows = [
        (form, str(depth), *(f"{getattr(at, field.name):.1e}" for field in fields(DepthMeasures)))
        for form, by_depth in measures.items()
        for depth, at in zip(sizes.depths, by_depth, strict=True)
    ]
    columns = ("form", "layers", "gradient in the first layer", "gradient in the last layer", "tokens differ by")
    note = (
        "These are fresh weights, before any training. The lab schedule shows what the last conclusion means for the "
        "first steps of training."
    )
    table = ResultTable(columns, tuple(rows))
    return LabResult((table,), claims, lambda figure: draw(figure, sizes.depths, measures), (11.0, 3.6), (note,))


def mean_of_draws(form: str, depth: int, sizes: Sizes) -> DepthMeasures:
    """Return the geometric mean of the measurements over several draws of weights."""
    draws = [measure(form, depth, seed) for seed in range(sizes.seed, sizes.seed + sizes.draws)]
    means = (sum(math.log(getattr(at, field.name)) for at in draws) / len(draws) for field in fields(DepthMeasures))
    return DepthMeasures(*map(math.exp, means))


def measure(form: str, depth: int, seed: int) -> DepthMeasures:
    """Measure a fresh encoder on random tokens, in float64 because activations get large without norms."""
    torch.manual_seed(seed)
    norm = "pre" if form == "both, pre-norm" else "post"
    model = Encoder(preset("tiny", kind="encoder", vocab_size=64, pad=None, layers=depth, norm=norm, dropout=0.0))
    model.encoder.layers = nn.ModuleList(FORMS[form](model.config) for _ in range(depth))  # type: ignore[assignment]
    initialise(model)
    tokens, labels = torch.randint(64, (2, 8, 16))
    hidden = model.double().hidden(tokens)  # [8, 16, 64]
    F.cross_entropy(model.head(hidden).flatten(0, 1), labels.flatten()).backward()  # type: ignore[no-untyped-call]
    gradients = [[p.grad for p in layer.parameters() if p.grad is not None] for layer in model.encoder.layers]
    first, last = (float(torch.nn.utils.get_total_norm(gradients[at])) for at in (0, -1))
    variation = (hidden - hidden.mean(1, keepdim=True)).norm() / hidden.norm()
    return DepthMeasures(first, last, float(variation.detach()) + 1e-300)  # never 0, which has no logarithm


def draw(figure: Figure, depths: tuple[int, ...], measures: dict[str, list[DepthMeasures]]) -> None:
    """Draw the three measures against the depth."""
    titles = ("gradient in the first layer", "gradient in the last layer", "tokens differ by")
    for number, (field, title) in enumerate(zip(fields(DepthMeasures), titles, strict=True), start=1):
        axes = panel(figure, 3, number, title, "layers")
        for (form, by_depth), colour in zip(measures.items(), COLOURS, strict=False):
            values = [getattr(at, field.name) for at in by_depth]
            axes.semilogy(depths, values, "o-", color=colour, label=form)
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, [str(depth) for depth in depths])
    legend(axes)
