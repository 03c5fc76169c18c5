"""Why use several narrow heads, when one wide head costs the same?

The first part measures the cost: parameters, operations and time of self-attention of one width, split into more and
more heads.

The second part is a task that needs two look-ups at once. Each of eight boxes contains a thing. A query names two
boxes, a first and a second, and the model must answer what they contain. The model has one attention layer from the
query to the boxes and one linear layer that reads both answers from its output. So it can neither look twice nor take a
mixture apart.
"""

# Dimensions: B rows, H heads, C width.

import time
from dataclasses import dataclass
from statistics import median

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import COLOURS, heatmap, legend, panel
from regard.labs.small_training import fit
from regard.model.attention import MultiHeadAttention


@dataclass(frozen=True)
class Sizes:
    """Sizes of the attention layers, and of the training."""

    heads: tuple[int, ...] = (1, 2, 4, 8)
    """Numbers of heads; the weights of the first two are drawn."""
    width: int = 256
    """Width of the attention whose cost is measured."""
    length: int = 128
    """Length of the four sequences for which the cost is measured."""
    d_model: int = 64
    """Width of the model that looks into boxes."""
    steps: int = 250
    """Training steps."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class HeadCost:
    """The cost of one pass of self-attention."""

    parameters: int
    operations: int
    milliseconds: float
    """CPU time of this process, which other work on the machine hardly affects."""


class BoxLookup(nn.Module):
    """A model that says what two of eight boxes contain, with one attention layer from the query to the boxes."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.box, self.thing = nn.Embedding(8, d_model), nn.Embedding(8, d_model)
        self.first, self.second = nn.Embedding(8, d_model), nn.Embedding(8, d_model)
        self.attention = MultiHeadAttention(d_model, heads)
        self.answers = nn.Linear(d_model, 16)

    def forward(
        self, things: Int[Tensor, "B 8"], asked: Int[Tensor, "B 2"]
    ) -> tuple[Float[Tensor, "B 8 2"], Float[Tensor, "B H 8"]]:
        """Return the logits of the things in the two boxes, and the attention weights of each head."""
        boxes = self.thing(things) + self.box.weight  # [B, 8, C]
        query = self.first(asked[:, :1]) + self.second(asked[:, 1:])  # [B, 1, C]
        output, weights = self.attention(query, boxes, boxes, return_weights=True)  # [B, 1, C], [B, H, 1, 8]
        return self.answers(output[:, 0]).unflatten(-1, (8, 2)), weights[:, :, 0]


@dataclass(frozen=True)
class LookupResult:
    """The results of the look-up task for one number of heads."""

    losses: list[float]
    correct: tuple[float, float]
    """Share of correct first answers, and of correct second answers."""
    both: float
    """Share of queries for which both answers are correct."""
    weights: Float[Tensor, "H 8"]
    """Mean weights of each head when asked for boxes 3 and 6."""


def run(sizes: Sizes) -> LabResult:
    """Measure the cost of each number of heads, then train it on the look-up task."""
    costs = measure_costs(sizes)
    lookups = {heads: train_lookup(sizes.d_model, heads, sizes.steps, sizes.seed) for heads in sizes.heads}
    one, many = costs[sizes.heads[0]], [costs[heads] for heads in sizes.heads[1:]]
    times = [cost.milliseconds / one.milliseconds for cost in many]
    single, others = lookups[sizes.heads[0]], [lookups[heads].both for heads in sizes.heads[1:]]
    claims = (
        Claim(
            f"Heads split one width: any number of them has {one.parameters:,} parameters and takes "
            f"{one.operations / 1e6:,.0f} million operations",
            all((cost.parameters, cost.operations) == (one.parameters, one.operations) for cost in many),
        ),
        Claim(
            f"The time is about the same, too: {min(times):.2f} to {max(times):.2f} times that of one head",
            min(times) > 0.4 and max(times) < 2.5,
        ),
        Claim(
            f"One head finds both things in {single.both:.0%} of cases: a softmax can select one box, or mix two",
            single.both < 0.6,
        ),
        Claim(f"Two or more heads of the same total width find both in {min(others):.0%}", min(others) > 0.95),
    )
    cost_rows = [
        (f"{n} × {sizes.width // n}", f"{cost.parameters:,}", f"{cost.operations:,}", f"{cost.milliseconds:.1f}")
        for n, cost in costs.items()
    ]
    lookup_rows = [
        (f"{n} × {sizes.d_model // n}", *(f"{share:.0%}" for share in (*lookup.correct, lookup.both)))
        for n, lookup in lookups.items()
    ]
    lookup_columns = ("heads × width", "first correct", "second correct", "both correct")
    tables = (
        ResultTable(("heads × width", "parameters", "operations", "CPU ms"), tuple(cost_rows), "Cost of heads"),
        ResultTable(lookup_columns, tuple(lookup_rows), "Two look-ups at once"),
    )
    note = "More layers would also help a single head, because they can look again. Several heads look at once."
    return LabResult(tables, claims, lambda figure: draw(figure, costs, lookups), (11.0, 3.2), (note,))


def measure_costs(sizes: Sizes) -> dict[int, HeadCost]:
    """Measure one pass of self-attention for each number of heads: the median of eleven alternating runs."""
    x = torch.randn(4, sizes.length, sizes.width)
    attentions = {heads: MultiHeadAttention(sizes.width, heads) for heads in sizes.heads}
    times: dict[int, list[float]] = {heads: [] for heads in sizes.heads}
    operations = {}
    with torch.no_grad():
        for heads, attention in attentions.items():
            with FlopCounterMode(display=False) as counter:
                attention(x, x, x, return_weights=True)  # the readable path, whose every step the counter knows
            operations[heads] = counter.get_total_flops()
        for _ in range(11):
            for heads, attention in attentions.items():
                start = time.process_time()
                attention(x, x, x)
                times[heads].append(1000 * (time.process_time() - start))
    parameters = {
        heads: sum(weights.numel() for weights in attention.parameters()) for heads, attention in attentions.items()
    }
    return {heads: HeadCost(parameters[heads], operations[heads], median(times[heads])) for heads in sizes.heads}


def train_lookup(d_model: int, heads: int, steps: int, seed: int) -> LookupResult:
    """Train a model with this number of heads to say what two boxes contain, and test it."""
    torch.manual_seed(seed)
    model = BoxLookup(d_model, heads)

    def draw_batch(rows: int) -> tuple[Int[Tensor, "B 8"], Int[Tensor, "B 2"]]:
        return torch.randint(8, (rows, 8)), torch.randint(8, (rows, 2))

    def loss() -> Float[Tensor, ""]:
        things, asked = draw_batch(128)
        return F.cross_entropy(model(things, asked)[0], things.gather(1, asked))

    losses = fit(model, loss, steps, lr=3e-3)
    with torch.no_grad():
        things, asked = draw_batch(2000)
        correct = (model(things, asked)[0].argmax(1) == things.gather(1, asked)).double()  # [B, 2]
        _, weights = model(things[:64], torch.tensor([[2, 5]]).expand(64, 2))
    first, second = correct.mean(0).tolist()
    return LookupResult(losses, (first, second), float(correct.prod(1).mean()), weights.mean(0))


def count_heads(n: int) -> str:
    """Return "1 head" or "N heads"."""
    return "1 head" if n == 1 else f"{n} heads"


def draw(figure: Figure, costs: dict[int, HeadCost], lookups: dict[int, LookupResult]) -> None:
    """Draw the cost and the loss for each number of heads, and the weights of one head and of two."""
    axes = panel(figure, 4, 1, "cost relative to one head", "heads")
    one = next(iter(costs.values()))
    operations = [cost.operations / one.operations for cost in costs.values()]
    times = [cost.milliseconds / one.milliseconds for cost in costs.values()]
    axes.plot(list(costs), operations, "s-", color=COLOURS[0], label="operations")
    axes.plot(list(costs), times, "o-", color=COLOURS[1], label="time")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(costs), [str(heads) for heads in costs])
    axes.set_ylim(0, max(2, 1.1 * max(times)))
    legend(axes)
    axes = panel(figure, 4, 2, "loss in training", "step")
    for (heads, lookup), colour in zip(lookups.items(), COLOURS, strict=False):
        axes.plot(lookup.losses, color=colour, label=count_heads(heads))
    legend(axes)
    for number, lookup in zip((3, 4), lookups.values(), strict=False):
        heads = len(lookup.weights)
        axes = panel(figure, 4, number, f"boxes 3 and 6, {count_heads(heads)}", "box")
        heatmap(axes, lookup.weights, digits=1)
        axes.set_xticks(range(8), [str(box) for box in range(1, 9)])
        axes.set_yticks(range(heads), [f"head {head}" for head in range(1, heads + 1)])
