"""What does a Transformer have over an LSTM when something far back must be remembered?

An LSTM and a Transformer of equal size learn to copy: two letters, then blanks, as many as the distance, then twice the
sign to say them. Both get the same steps and rate. To a Transformer the letters are one look away, at any distance; an
LSTM must carry them through every blank, and its gradients back. Then what a step of training costs by length: its
time, and the longest chain of products that wait for one another on the way forward.
"""

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import nn

from regard.labs.cost_meters import cpu_seconds, curves, products
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREY, ORANGE, legend, panel
from regard.labs.memory_task import LETTERS, learned, loss, parameters, recurrent, sequences, transformer
from regard.labs.scaling import fitted_power
from regard.threads import one_thread

LSTM, TRANSFORMER = KINDS = ("LSTM", "Transformer")
NOTES = (
    "An LSTM can do it: with a forget gate that is open from the start (a bias of 3) and five times as many steps, it "
    "copied over 32 blanks.",
    "Times are of one thread, which does one thing after another; the chain is what no number of cores shortens.",
)


@dataclass(frozen=True)
class Sizes:
    """What is trained."""

    distances: tuple[int, ...] = (2, 8, 32, 64)
    """blanks between the letters and where they are to be said"""
    steps: int = 200
    """of training, for each model and distance"""
    width: int = 32
    """of the Transformer; the LSTM's is chosen so that it has as many parameters"""
    rows: int = 16
    """sequences of a batch"""
    lengths: tuple[int, ...] = (32, 64, 128, 256)
    """for which a step is timed"""
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """What a step of training takes."""

    chain: int
    seconds: float


def run(sizes: Sizes) -> Result:
    """Both models: what they learn by distance, what a step costs by length."""
    with one_thread():
        right = {
            d: {kind: learned(fresh(kind, sizes), sizes.rows, d, sizes.steps) for kind in KINDS}
            for d in sizes.distances
        }
        costs = {n: {kind: step_cost(fresh(kind, sizes), sizes.rows, n) for kind in KINDS} for n in sizes.lengths}
    tables = (
        Table(
            ("distance", *(f"{kind} of {parameters(fresh(kind, sizes)):,} parameters" for kind in KINDS)),
            tuple((str(d), *(f"{share:.0%}" for share in each.values())) for d, each in right.items()),
            f"Letters copied rightly after {sizes.steps} steps (chance: {1 / LETTERS:.1%})",
        ),
        Table(
            ("length", *(f"{kind}: chain" for kind in KINDS), *(f"{kind}: ms" for kind in KINDS)),
            tuple(
                (
                    str(n),
                    *(str(each[kind].chain) for kind in KINDS),
                    *(f"{each[kind].seconds * 1e3:.1f}" for kind in KINDS),
                )
                for n, each in costs.items()
            ),
            f"A step of training on {sizes.rows} sequences",
        ),
    )
    return Result(tables, claims_of(right, costs), lambda figure: draw(figure, right, costs), (11.0, 3.4), NOTES)


def fresh(kind: str, sizes: Sizes) -> nn.Module:
    """A new model."""
    torch.manual_seed(sizes.seed)
    model = transformer(sizes.width)
    return model if kind == TRANSFORMER else recurrent(like=model)


def step_cost(model: nn.Module, rows: int, length: int) -> Step:
    """A step on sequences of this length."""
    tokens, _ = sequences(rows=1, distance=length - 4)
    with torch.no_grad():
        chain = products(
            lambda: model.double()(tokens)
        ).chain  # float32 is one kernel in an LSTM, which hides its steps
    model.float()
    seconds = cpu_seconds(lambda: torch.autograd.backward(loss(model, rows, length - 4)))
    return Step(chain, seconds)


def claims_of(right: dict[int, dict[str, float]], costs: dict[int, dict[str, Step]]) -> tuple[Claim, ...]:
    """What follows."""
    near, far, chance = right[min(right)], right[max(right)], 1 / LETTERS
    lstm, other = ([each[kind].chain for each in costs.values()] for kind in KINDS)
    powers = [fitted_power(tuple(costs), [each[kind].seconds for each in costs.values()]) for kind in KINDS]
    return (
        Claim(
            f"Near, both copy: at distance {min(right)} {near[LSTM]:.0%} (LSTM) and {near[TRANSFORMER]:.0%}",
            min(near.values()) > 0.6,
        ),
        Claim(
            f"Far, the Transformer alone: at distance {max(right)} {far[LSTM]:.0%} (LSTM) and {far[TRANSFORMER]:.0%}",
            far[TRANSFORMER] > 0.8 and far[LSTM] < 3 * chance,
        ),
        Claim(
            f"A Transformer takes a text at once: its longest chain is {other[0]} products at any length, the LSTM's "
            f"{lstm[-1]} for {max(costs)} tokens",
            len(set(other)) == 1 and lstm == [n + 1 for n in costs],  # a product a token, and the output layer
        ),
        Claim(
            f"On one thread the time of a step grows as its length to the {powers[0]:.2f} (LSTM) and {powers[1]:.2f}",
            0.3 < powers[0] < 1.7 and 0.3 < powers[1] < 2.3,
        ),
    )


def draw(figure: Figure, right: dict[int, dict[str, float]], costs: dict[int, dict[str, Step]]) -> None:
    """What is copied by distance; chain and time by length."""
    axes = panel(figure, 3, 1, "letters copied rightly", "distance")
    for kind, colour in zip(KINDS, (ORANGE, BLUE), strict=True):
        axes.plot(list(right), [each[kind] for each in right.values()], "o-", color=colour, label=kind, markersize=4)
    axes.axhline(1 / LETTERS, color=GREY, linestyle=":", linewidth=1, label="chance")
    axes.set_ylim(0, 1.05)
    legend(axes)
    for number, (field, title) in enumerate(
        (("chain", "longest chain of products"), ("seconds", "a step, seconds")), 2
    ):
        lines = {kind: [getattr(each[kind], field) for each in costs.values()] for kind in KINDS}
        curves(panel(figure, 3, number, title, "length"), list(costs), lines, (ORANGE, BLUE))
