"""What are many narrow heads good for, when one wide head costs the same?

The cost first: parameters, operations and time of self-attention of one width, cut into ever more heads.

Then a task that needs two look-ups at once. In a row of boxes each holds a thing; asked is what two of them hold, by a
query that names both boxes, the first and the second. There is one attention from the query to the boxes, and one
linear layer that reads both answers from its output: nothing else could look again, or take a mixture apart.
"""

import time
from dataclasses import dataclass
from statistics import median

import torch
from matplotlib.figure import Figure
from torch.utils.flop_counter import FlopCounterMode

from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import COLOURS, legend, panel, tiles
from regard.labs.toy_tasks import Found, look_up
from regard.model.attention import MultiHeadAttention


@dataclass(frozen=True)
class Sizes:
    """What is measured and trained."""

    heads: tuple[int, ...] = (1, 2, 4, 8)
    """numbers of heads, the first and the second of them drawn"""
    width: int = 256
    """of the attention whose cost is measured"""
    length: int = 128
    """of the sequences there, four at once"""
    d_model: int = 64
    """of the one that looks into boxes"""
    steps: int = 250
    """of training"""
    seed: int = 0


@dataclass(frozen=True)
class Cost:
    """What one pass takes."""

    parameters: int
    operations: int
    milliseconds: float
    """of all processors together, which other work on the machine hardly changes"""


def run(sizes: Sizes) -> Result:
    """The cost of each number of heads, then what it finds."""
    costs = measure(sizes)
    found = {heads: look_up(sizes.d_model, heads, sizes.steps, sizes.seed) for heads in sizes.heads}
    one, many = costs[sizes.heads[0]], [costs[heads] for heads in sizes.heads[1:]]
    times = [each.milliseconds / one.milliseconds for each in many]
    alone, others = found[sizes.heads[0]], [found[heads].both for heads in sizes.heads[1:]]
    claims = (
        Claim(
            f"Heads are cut from one width: whatever their number, {one.parameters:,} parameters and "
            f"{one.operations / 1e6:,.0f} million operations",
            all((each.parameters, each.operations) == (one.parameters, one.operations) for each in many),
        ),
        Claim(
            f"and about the same time: {min(times):.2f} to {max(times):.2f} of that of one head",
            min(times) > 0.4 and max(times) < 2.5,
        ),
        Claim(
            f"Of two things at once, one head finds both in {alone.both:.0%} of cases: one softmax can look at one "
            f"place, or blur two",
            alone.both < 0.6,
        ),
        Claim(f"Two heads and more, of the same width in all, find both in {min(others):.0%}", min(others) > 0.95),
    )
    spent = [
        (f"{n} × {sizes.width // n}", f"{each.parameters:,}", f"{each.operations:,}", f"{each.milliseconds:.1f}")
        for n, each in costs.items()
    ]
    got = [
        (f"{n} × {sizes.d_model // n}", *(f"{share:.0%}" for share in (*each.right, each.both)))
        for n, each in found.items()
    ]
    tables = (
        Table(("heads × width", "parameters", "operations", "ms of processor"), tuple(spent), "What heads cost"),
        Table(("heads × width", "first right", "second right", "both right"), tuple(got), "Two look-ups at once"),
    )
    note = "More layers would help one head, too: they can look again. Heads look at the same time."
    return Result(tables, claims, lambda figure: draw(figure, costs, found), (11.0, 3.2), (note,))


def measure(sizes: Sizes) -> dict[int, Cost]:
    """One pass of self-attention by each number of heads, the numbers in turn, the median of eleven."""
    x = torch.randn(4, sizes.length, sizes.width)
    attentions = {heads: MultiHeadAttention(sizes.width, heads) for heads in sizes.heads}
    times: dict[int, list[float]] = {heads: [] for heads in sizes.heads}
    operations = {}
    with torch.no_grad():
        for heads, attention in attentions.items():
            with FlopCounterMode(display=False) as counter:
                attention(x, x, x, return_weights=True)  # the readable path: the counter knows every step of it
            operations[heads] = counter.get_total_flops()
        for _ in range(11):
            for heads, attention in attentions.items():
                start = time.process_time()
                attention(x, x, x)
                times[heads].append(1000 * (time.process_time() - start))
    parameters = {heads: sum(p.numel() for p in each.parameters()) for heads, each in attentions.items()}
    return {heads: Cost(parameters[heads], operations[heads], median(times[heads])) for heads in sizes.heads}


def draw(figure: Figure, costs: dict[int, Cost], found: dict[int, Found]) -> None:
    """Cost by heads; how each number learns; where one head looks, and where two."""
    axes = panel(figure, 4, 1, "cost relative to one head", "heads")
    one = next(iter(costs.values()))
    axes.plot(
        list(costs),
        [each.operations / one.operations for each in costs.values()],
        "s-",
        color=COLOURS[0],
        label="operations",
    )
    times = [each.milliseconds / one.milliseconds for each in costs.values()]
    axes.plot(list(costs), times, "o-", color=COLOURS[1], label="time")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(costs), [str(heads) for heads in costs])
    axes.set_ylim(0, max(2, 1.1 * max(times)))
    legend(axes)
    axes = panel(figure, 4, 2, "loss in training", "step")
    for (heads, each), colour in zip(found.items(), COLOURS, strict=False):
        axes.plot(each.losses, color=colour, label=f"{heads} head{'s' * (heads > 1)}")
    legend(axes)
    for number, each in zip((3, 4), found.values(), strict=False):
        heads = len(each.weights)
        axes = panel(figure, 4, number, f"boxes 3 and 6, {heads} head{'s' * (heads > 1)}", "box")
        tiles(axes, each.weights, digits=1)
        axes.set_xticks(range(8), [str(box) for box in range(1, 9)])
        axes.set_yticks(range(heads), [f"head {head}" for head in range(1, heads + 1)])
