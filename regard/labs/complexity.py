"""What does attention cost as sequences grow, and what would a recurrent network cost?

Attention over N tokens of width d is computed both ways that Regard has: readable, with the weights, and fast, by a
fused kernel. It is compared with the recurrence of an RNN of width d. Neither has projections here, as in the paper's
Table 1. Then both are measured as complete layers: attention with its four projections, the RNN with its input
projection. Measured are the most memory in use at one time, the time, the operations in matrix products, and the
longest chain of products that wait for one another; then the path length: the rounds of computation until the last
position depends on the first. Last, an encoder–decoder reads N tokens and writes M, and its operations are fitted.
"""

from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.config import preset
from regard.labs.cost_meters import cpu_seconds, curves, most_bytes, products
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, legend, panel
from regard.labs.path_lengths import measured_paths
from regard.labs.scaling import fitted_power
from regard.model.attention import MultiHeadAttention, attention, fast_attention
from regard.model.transformer import build

READABLE, FAST, RECURRENCE = "attention, readable", "attention, fast", "recurrence"
LAYER, RNN = "attention layer", "RNN layer"
WAYS = (READABLE, FAST, RECURRENCE, LAYER, RNN)
COLOUR = dict(zip(WAYS, (BLUE, ORANGE, PURPLE, RED, GREEN), strict=True))


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    lengths: tuple[int, ...] = (32, 64, 128, 512, 1024, 2048)
    """N, tokens of a sequence; exponents are fitted to the longest three"""
    width: int = 128
    """d, of queries, keys and values, and of the RNN"""
    paths: tuple[int, ...] = (8, 16, 32)
    """N for which the path length is measured"""
    reach: int = 4
    """how many positions away restricted attention sees, in either direction"""
    pairs: tuple[int, ...] = (16, 32, 64, 128)
    """N and M of the encoder–decoder, each with each"""
    seed: int = 0


class Cost(NamedTuple):
    """What one pass takes, or the exponents of N therein."""

    bytes: int | float
    seconds: float
    operations: int | float
    chain: int | float


Costs = dict[int, dict[str, Cost]]


@torch.no_grad()
def run(sizes: Sizes) -> Result:
    """Each length in every way; path lengths; each pair of lengths."""
    torch.manual_seed(sizes.seed)
    costs = {n: costs_of(n, sizes.width) for n in sorted(sizes.lengths)}
    top = tuple(costs)[-3:]
    powers = {way: Cost(*(fitted_power(top, [float(costs[n][way][i]) for n in top]) for i in range(4))) for way in WAYS}
    parts = fitted_parts({(n, m): counted_operations(n, m) for n in sizes.pairs for m in sizes.pairs})
    rows = [row(f"{n:,}", way, cost, (2**-20, 1e3, 1e-6, 1)) for n, each in costs.items() for way, cost in each.items()]
    rows += [row("exponent of N", way, powers[way], (1, 1, 1, 1)) for way in WAYS]
    fitted = tuple(f"{part:,.0f}" for part in parts)
    paths, shortest = measured_paths(sizes.paths, sizes.reach)
    tables = (
        Table(("N", "by", "MiB", "ms (one thread)", "million operations", "longest chain"), tuple(rows)),
        paths,
        Table(("N²", "M²", "N·M", "N", "M"), (fitted,), "Operations of an encoder–decoder: so many for each, fitted"),
    )
    note = "Of a fused kernel, memory is what it gives back; within, it holds a tile for each thread, of bounded size."
    claims = (*claims_of(costs, powers, parts, sizes.width), shortest)
    return Result(tables, claims, lambda figure: draw(figure, costs, sizes.width), (9.5, 6.0), (note,))


def costs_of(n: int, d: int) -> dict[str, Cost]:
    """One length, in every way; the memory of recurrent networks is not measured."""
    q, k, v = torch.randn(3, 1, 1, n, d)  # each [1, 1, N, d]
    x, layer, rnn = q[0], MultiHeadAttention(d, heads=1), nn.RNN(d, d, batch_first=True)
    works = (
        lambda: attention(q, k, v),
        lambda: fast_attention(q, k, v),
        lambda: recurrence(x[0], rnn.get_parameter("weight_hh_l0")),
        lambda: layer(x, x, x),
        lambda: rnn(x),
    )
    memory = (most_bytes(works[0]), most_bytes(works[1]), nan, most_bytes(works[3]), nan)
    costs = [Cost(size, cpu_seconds(work), *products(work)) for work, size in zip(works, memory, strict=True)]
    return dict(zip(WAYS, costs, strict=True))


def recurrence(inputs: Tensor, weight: Tensor) -> Tensor:
    """The last state of an RNN, from inputs [N, d] that are projected already and its matrix [d, d]."""
    state = torch.zeros_like(inputs[:1])
    for each in inputs:
        state = torch.tanh(each + state @ weight.T)
    return state


def counted_operations(n: int, m: int) -> int:
    """Of an encoder–decoder that reads n tokens and writes m."""
    model = build(preset("tiny", vocab_size=33)).eval()
    tokens = torch.zeros(1, max(n, m), dtype=torch.long)
    return products(lambda: model(tokens[:, :n], tokens[:, :m])).operations


def row(n: str, way: str, cost: Cost, units: tuple[int | float, ...]) -> tuple[str, ...]:
    """A line of the table."""
    values = (each * unit for each, unit in zip(cost, units, strict=True))
    return n, way, *("–" if isnan(each) else f"{each:,.2f}".removesuffix(".00") for each in values)


def fitted_parts(counted: dict[tuple[int, int], int]) -> list[float]:
    """How many operations there are for each N², M², N·M, N and M, by least squares."""
    n, m = torch.tensor(list(counted), dtype=torch.float64).unbind(1)
    terms = torch.stack([n * n, m * m, n * m, n, m], 1)  # [pairs, 5]
    wanted = torch.tensor([*counted.values()], dtype=torch.float64)[:, None]
    return [float(each) for each in torch.linalg.lstsq(terms, wanted).solution[:, 0]]


def claims_of(costs: Costs, powers: dict[str, Cost], parts: list[float], d: int) -> tuple[Claim, ...]:
    """What follows."""
    shortest, longest, last, (readable, fast, _, _, rnn) = min(costs), max(costs), costs[max(costs)], powers.values()
    counts = {n: [cost.operations for cost in each.values()] for n, each in costs.items()}
    chains = {n: [cost.chain for cost in each.values()] for n, each in costs.items()}
    layer, recurrent = costs[shortest][LAYER].operations, costs[shortest][RNN].operations
    return (
        Claim(
            f"Memory grows as N to the {readable.bytes:.2f} where the weights are formed, to the {fast.bytes:.2f} in a "
            f"fused kernel: at N = {longest:,} it is {last[READABLE].bytes / last[FAST].bytes:.0f} times less",
            1.6 < readable.bytes < 2.1 and 0.9 < fast.bytes < 1.1,
        ),
        Claim(
            f"Time grows by either way as about N² (to the {readable.seconds:.2f} and {fast.seconds:.2f}), an RNN's as "
            f"about N (to the {rnn.seconds:.2f})",
            all(1.3 < each.seconds < 2.7 for each in (readable, fast)) and 0.3 < rnn.seconds < 1.7,
        ),
        Claim(
            f"Without projections, attention is 4·N²·d operations and a recurrence 2·N·d²: attention is less work "
            f"while N < d / 2 = {d / 2:g}",
            all(c[:3] == [4 * n * n * d, 4 * n * n * d, 2 * n * d * d] for n, c in counts.items()),
        ),
        Claim(
            "As complete layers, attention is 8·N·d² + 4·N²·d operations and an RNN 4·N·d²: attention is more work at "
            f"every length, 2 + N / d times as much; at N = {shortest} it is {layer / 1e6:.1f} M against "
            f"{recurrent / 1e6:.1f} M",
            all(c[3:] == [8 * n * d * d + 4 * n * n * d, 4 * n * d * d] for n, c in counts.items()),
        ),
        Claim(
            f"But the RNN's products wait for one another, {last[RNN].chain:,} of them at N = {longest:,}; the longest "
            f"chain of attention is {last[FAST].chain} at any length, with its projections {last[LAYER].chain}",
            all(chain == [2, 2, n, 4, n] for n, chain in chains.items()),
        ),
        Claim(
            f"An encoder–decoder's attention costs as N² + M² + N·M: fitted, {parts[0]:.1f}, {parts[1]:.1f} and "
            f"{parts[2]:.1f} operations for each",
            min(parts[:3]) > 0.99 * max(parts[:3]) > 0,
        ),
    )


def draw(figure: Figure, costs: Costs, width: int) -> None:
    """Each measure over N."""
    both = {"attention": FAST, RECURRENCE: RECURRENCE, LAYER: LAYER, RNN: RNN}  # attention's two ways count the same
    shown = ({READABLE: READABLE, FAST: FAST, LAYER: LAYER}, {way: way for way in WAYS}, both, both)
    titles = ("memory, bytes", "time of one thread, seconds", "operations", "longest chain of products")
    for i, (title, ways) in enumerate(zip(titles, shown, strict=True)):
        axes = panel(figure, 2, i + 1, title, "length N", rows=2)
        lines = {name: [each[way][i] for each in costs.values()] for name, way in ways.items()}
        curves(axes, list(costs), lines, [COLOUR[way] for way in ways.values()])
        if title == "operations":
            axes.axvline(width / 2, color=GREY, linestyle=":", linewidth=1, label="N = d / 2")
            legend(axes)
