"""What do residual connections and normalisation do for the gradient?

Encoders of ever more layers, with fresh weights and a random task, in five forms: the sub-layers bare, with a norm
behind each, with a residual around each, and with both, as the paper has them (post-norm) and as later models do
(pre-norm). Of each, the gradient in its first layer and in its last, and how far the tokens of a sentence still differ
from one another at the end: where they do not, a gradient has nothing to teach.
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
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import COLOURS, legend, panel
from regard.labs.scaling import fitted_power
from regard.model.layers import Layer
from regard.model.transformer import Encoder, initialise


class Part(Layer):
    """A layer without its residuals, its norms, or both."""

    def __init__(self, config: ModelConfig, adds: bool, norms: bool) -> None:
        super().__init__(config)
        self.adds, self.norms = adds, norms

    def residual(self, x: Tensor, normalise: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """What is left of normalise(x + sublayer(x))."""
        y = x + sublayer(x) if self.adds else sublayer(x)
        return normalise(y) if self.norms else y


FORMS: dict[str, Callable[[ModelConfig], Layer]] = {
    "neither": partial(Part, adds=False, norms=False),
    "norm alone": partial(Part, adds=False, norms=True),
    "residual alone": partial(Part, adds=True, norms=False),
    "both, post-norm": Layer,
    "both, pre-norm": Layer,
}


@dataclass(frozen=True)
class Sizes:
    """What is built."""

    depths: tuple[int, ...] = (2, 4, 8, 16, 32)
    """numbers of layers"""
    draws: int = 4
    """of fresh weights, of which the figures are the geometric mean"""
    seed: int = 0


@dataclass(frozen=True)
class Seen:
    """What one form gives at one depth."""

    first: float
    last: float
    """norms of the gradient, in the first layer and in the last"""
    differ: float
    """a sentence's tokens from their mean, behind the last layer, as a part of their length"""


def run(sizes: Sizes) -> Result:
    """Each form at each depth."""
    seen = {form: [mean_of_draws(form, depth, sizes) for depth in sizes.depths] for form in FORMS}
    bare, norm, residual, post, pre = seen.values()
    middle, least, most = len(sizes.depths) // 2, sizes.depths[0], sizes.depths[-1]
    differ = [form[middle].differ for form in (norm, post, pre)]
    factor = (bare[-1].first / bare[0].first) ** (1 / (most - least))
    steady = [max(each.first for each in form) / min(each.first for each in form) for form in (post, pre)]
    powers = [fitted_power(sizes.depths, [each.last for each in form]) for form in (post, pre)]
    claims = (
        Claim(
            f"Bare layers lose the gradient: each one more leaves {factor:.2f} of it, and from {least} layers to "
            f"{most} it goes from {bare[0].first:.1f} to {bare[-1].first:.0e}",
            factor < 0.8,
        ),
        Claim(
            f"Residuals alone let it through, but sums grow, and it with them: to {residual[-1].first:.0e}",
            residual[-1].first > 100 * residual[0].first,
        ),
        Claim(
            f"Norms alone keep the gradient's size and not its sense: behind {sizes.depths[middle]} layers tokens"
            f" differ by {differ[0]:.0e}; with residuals {differ[1]:.2f} (post-norm), {differ[2]:.2f} (pre-norm)",
            differ[0] < 0.01 * min(differ[1:]),
        ),
        Claim(
            f"With both it arrives: from {least} to {most} layers the first one's gradient varies by a factor of "
            f"{steady[0]:.1f} (post-norm) and {steady[1]:.1f} (pre-norm)",
            max(steady) < 10,
        ),
        Claim(
            f"In the last layer post-norm's is as large however deep (depth to the {powers[0]:.2f}), pre-norm's falls "
            f"(depth to the {powers[1]:.2f})",
            abs(powers[0]) < 0.3 and powers[1] < -0.3,
        ),
    )
    rows = [
        (form, str(depth), *(f"{getattr(each, field.name):.1e}" for field in fields(Seen)))
        for form, row in seen.items()
        for depth, each in zip(sizes.depths, row, strict=True)
    ]
    table = Table(("form", "layers", "gradient in the first", "in the last", "tokens differ by"), tuple(rows))
    note = "Fresh weights, before any training: what the last claim means for the first steps, the lab schedule shows."
    return Result((table,), claims, lambda figure: draw(figure, sizes.depths, seen), (11.0, 3.6), (note,))


def mean_of_draws(form: str, depth: int, sizes: Sizes) -> Seen:
    """The geometric mean of several draws."""
    draws = [measure(form, depth, seed) for seed in range(sizes.seed, sizes.seed + sizes.draws)]
    means = (sum(math.log(getattr(each, field.name)) for each in draws) / len(draws) for field in fields(Seen))
    return Seen(*map(math.exp, means))


def measure(form: str, depth: int, seed: int) -> Seen:
    """A fresh encoder's gradients on random tokens, in float64: without norms its numbers get large."""
    torch.manual_seed(seed)
    norm = "pre" if form == "both, pre-norm" else "post"
    model = Encoder(preset("tiny", kind="encoder", vocab_size=64, pad=None, layers=depth, norm=norm, dropout=0.0))
    model.encoder.layers = nn.ModuleList(FORMS[form](model.config) for _ in range(depth))  # type: ignore[assignment]
    initialise(model)
    tokens, wanted = torch.randint(64, (2, 8, 16))
    hidden = model.double().hidden(tokens)  # [8, 16, 64]
    F.cross_entropy(model.head(hidden).flatten(0, 1), wanted.flatten()).backward()  # type: ignore[no-untyped-call]
    layers = [[p.grad for p in layer.parameters() if p.grad is not None] for layer in model.encoder.layers]
    first, last = (float(torch.nn.utils.get_total_norm(layers[at])) for at in (0, -1))
    apart = (hidden - hidden.mean(1, keepdim=True)).norm() / hidden.norm()
    return Seen(first, last, float(apart.detach()) + 1e-300)  # never 0: it has a logarithm


def draw(figure: Figure, depths: tuple[int, ...], seen: dict[str, list[Seen]]) -> None:
    """The three measures over the depth."""
    titles = ("gradient in the first layer", "gradient in the last layer", "tokens differ by")
    for number, (field, title) in enumerate(zip(fields(Seen), titles, strict=True), start=1):
        axes = panel(figure, 3, number, title, "layers")
        for (form, row), colour in zip(seen.items(), COLOURS, strict=False):
            axes.semilogy(depths, [getattr(each, field.name) for each in row], "o-", color=colour, label=form)
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, [str(depth) for depth in depths])
    legend(axes)
