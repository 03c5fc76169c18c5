"""How does the cost of attention grow with the sequence length, compared with a recurrent network?

Attention over N tokens of width d is computed in both ways that Regard has: readable, which returns the weights, and
fast, with a fused kernel. It is compared with the recurrence of an RNN of width d. As in the paper's Table 1, neither
includes projections. Then both are measured as complete layers: attention with its four projections, and the RNN with
its input projection. The lab measures peak memory, time, the operations in matrix products, and the longest chain of
products that depend on one another. It also measures the path length: the number of rounds of computation until the
last position depends on the first. Finally, the operations of an encoder–decoder that reads N tokens and generates M
are fitted.
"""

# Dimensions: N positions, C or d width.

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.config import preset
from regard.errors import RegardError
from regard.labs.cost_meters import count_products, cpu_seconds, log_log_curves, peak_bytes
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, legend, panel
from regard.labs.lab_statistics import fitted_power
from regard.model.attention import MultiHeadAttention, attention, fast_attention
from regard.model.transformer import build

READABLE, FAST, RECURRENCE = "attention, readable", "attention, fast", "recurrence"
ATTENTION_LAYER, RNN_LAYER = "attention layer", "RNN layer"
METHODS = (READABLE, FAST, RECURRENCE, ATTENTION_LAYER, RNN_LAYER)
COLOUR = dict(zip(METHODS, (BLUE, ORANGE, PURPLE, RED, GREEN), strict=True))

States = Float[Tensor, "N C"]
Round = Callable[[States, States], States]
"""A round of computation: takes the states and the inputs, and returns the next states."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the sequences and layers."""

    lengths: tuple[int, ...] = (32, 64, 128, 512, 1024, 2048)
    """Numbers N of tokens in a sequence; exponents are fitted to the three greatest."""
    width: int = 128
    """Width d of queries, keys and values, and of the RNN."""
    paths: tuple[int, ...] = (8, 16, 32)
    """Values of N for which the path length is measured."""
    reach: int = 4
    """Distance up to which restricted attention sees other positions, in both directions."""
    pairs: tuple[int, ...] = (16, 32, 64, 128)
    """Values of N and of M for the encoder–decoder; all combinations are measured."""
    seed: int = 0
    """Seed of the random numbers."""


class MethodCost(NamedTuple):
    """The cost of one pass, or the exponents of N in it."""

    bytes: int | float
    seconds: float
    operations: int | float
    chain: int | float


CostsByLength = dict[int, dict[str, MethodCost]]


@torch.no_grad()
def run(sizes: Sizes) -> LabResult:
    """Measure every method at each length, then path lengths, then the encoder–decoder."""
    torch.manual_seed(sizes.seed)
    costs = {n: method_costs(n, sizes.width) for n in sorted(sizes.lengths)}
    longest = tuple(costs)[-3:]
    exponents = {
        method: MethodCost(*(fitted_power(longest, [float(costs[n][method][i]) for n in longest]) for i in range(4)))
        for method in METHODS
    }
    terms = fitted_terms({(n, m): counted_operations(n, m) for n in sizes.pairs for m in sizes.pairs})
    rows = [
        table_row(f"{n:,}", method, cost, (2**-20, 1e3, 1e-6, 1))
        for n, by_method in costs.items()
        for method, cost in by_method.items()
    ]
    rows += [table_row("exponent of N", method, exponents[method], (1, 1, 1, 1)) for method in METHODS]
    path_table, path_claim = path_lengths(sizes.paths, sizes.reach)
    tables = (
        ResultTable(("N", "method", "MiB", "ms (one thread)", "million operations", "longest chain"), tuple(rows)),
        path_table,
        ResultTable(
            ("N²", "M²", "N·M", "N", "M"),
            (tuple(f"{term:,.0f}" for term in terms),),
            "Operations of an encoder–decoder: fitted coefficient of each term",
        ),
    )
    note = (
        "The memory of a fused kernel is that of its output; its workspace, a tile of bounded size for each thread, "
        "is not counted."
    )
    claims = (*cost_claims(costs, exponents, terms, sizes.width), path_claim)
    return LabResult(tables, claims, lambda figure: draw(figure, costs, sizes.width), (9.5, 6.0), (note,))


def method_costs(n: int, d: int) -> dict[str, MethodCost]:
    """Measure every method at one length; the memory of recurrent networks is not measured."""
    q, k, v = torch.randn(3, 1, 1, n, d)  # each [1, 1, N, d]
    x, layer, rnn = q[0], MultiHeadAttention(d, heads=1), nn.RNN(d, d, batch_first=True)
    computations = (
        lambda: attention(q, k, v),
        lambda: fast_attention(q, k, v),
        lambda: recurrence(x[0], rnn.get_parameter("weight_hh_l0")),
        lambda: layer(x, x, x),
        lambda: rnn(x),
    )
    memory = (peak_bytes(computations[0]), peak_bytes(computations[1]), nan, peak_bytes(computations[3]), nan)
    costs = [
        MethodCost(size, cpu_seconds(computation), *count_products(computation))
        for computation, size in zip(computations, memory, strict=True)
    ]
    return dict(zip(METHODS, costs, strict=True))


def recurrence(inputs: Tensor, weight: Tensor) -> Tensor:
    """Return the last state of an RNN, given projected inputs [N, d] and the recurrent matrix [d, d]."""
    state = torch.zeros_like(inputs[:1])
    for position in inputs:
        state = torch.tanh(position + state @ weight.T)
    return state


def counted_operations(n: int, m: int) -> int:
    """Count the operations of an encoder–decoder that reads n tokens and generates m."""
    model = build(preset("tiny", vocab_size=33)).eval()
    tokens = torch.zeros(1, max(n, m), dtype=torch.long)
    return count_products(lambda: model(tokens[:, :n], tokens[:, :m])).operations


def table_row(n: str, method: str, cost: MethodCost, units: tuple[int | float, ...]) -> tuple[str, ...]:
    """Format a cost as a row of the table."""
    values = (value * unit for value, unit in zip(cost, units, strict=True))
    return n, method, *("–" if isnan(value) else f"{value:,.2f}".removesuffix(".00") for value in values)


def fitted_terms(counted: dict[tuple[int, int], int]) -> list[float]:
    """Return the coefficients of N², M², N·M, N and M in the number of operations, by least squares."""
    n, m = torch.tensor(list(counted), dtype=torch.float64).unbind(1)
    terms = torch.stack([n * n, m * m, n * m, n, m], 1)  # [pairs, 5]
    operations = torch.tensor([*counted.values()], dtype=torch.float64)[:, None]
    return [float(coefficient) for coefficient in torch.linalg.lstsq(terms, operations).solution[:, 0]]


def cost_claims(
    costs: CostsByLength, exponents: dict[str, MethodCost], terms: list[float], d: int
) -> tuple[Claim, ...]:
    """Return the claims on memory, time and operations."""
    shortest, longest, last = min(costs), max(costs), costs[max(costs)]
    readable, fast, _, _, rnn = exponents.values()
    counts = {n: [cost.operations for cost in by_method.values()] for n, by_method in costs.items()}
    chains = {n: [cost.chain for cost in by_method.values()] for n, by_method in costs.items()}
    layer, recurrent = costs[shortest][ATTENTION_LAYER].operations, costs[shortest][RNN_LAYER].operations
    return (
        Claim(
            f"Memory grows as N to the power {readable.bytes:.2f} if the weights are stored, and to the power "
            f"{fast.bytes:.2f} in a fused kernel, which needs {last[READABLE].bytes / last[FAST].bytes:.0f} times less "
            f"at N = {longest:,}",
            1.6 < readable.bytes < 2.1 and 0.9 < fast.bytes < 1.1,
        ),
        Claim(
            f"Time grows about as N² in both cases (to the power {readable.seconds:.2f} and {fast.seconds:.2f}), and "
            f"that of an RNN about as N (to the power {rnn.seconds:.2f})",
            all(1.3 < exponent.seconds < 2.7 for exponent in (readable, fast)) and 0.3 < rnn.seconds < 1.7,
        ),
        Claim(
            f"Without projections, attention takes 4·N²·d operations and a recurrence 2·N·d²: attention takes fewer "
            f"while N < d / 2 = {d / 2:g}",
            all(c[:3] == [4 * n * n * d, 4 * n * n * d, 2 * n * d * d] for n, c in counts.items()),
        ),
        Claim(
            f"As complete layers, attention takes 8·N·d² + 4·N²·d operations and an RNN 4·N·d²: attention takes "
            f"2 + N / d times as many at every length; at N = {shortest}, {layer / 1e6:.1f} million compared with "
            f"{recurrent / 1e6:.1f} million",
            all(c[3:] == [8 * n * d * d + 4 * n * n * d, 4 * n * d * d] for n, c in counts.items()),
        ),
        Claim(
            f"But the products of the RNN depend on one another, in a chain of {last[RNN_LAYER].chain:,} at "
            f"N = {longest:,}; the longest chain of attention is {last[FAST].chain} at every length, and "
            f"{last[ATTENTION_LAYER].chain} with its projections",
            all(chain == [2, 2, n, 4, n] for n, chain in chains.items()),
        ),
        Claim(
            f"The attention of an encoder–decoder costs N² + M² + N·M: the fitted coefficients are {terms[0]:.1f}, "
            f"{terms[1]:.1f} and {terms[2]:.1f} operations",
            min(terms[:3]) > 0.99 * max(terms[:3]) > 0,
        ),
    )


def path_lengths(lengths: Sequence[int], reach: int, width: int = 8) -> tuple[ResultTable, Claim]:
    """Measure the path lengths of attention, of attention restricted to `reach` positions, and of an RNN."""
    rounds = attention_round(width), attention_round(width, reach), rnn_round(width)
    paths = {n: [path_length(step, n, width) for step in rounds] for n in lengths}
    rows = tuple((str(n), *map(str, counts)) for n, counts in paths.items())
    table = ResultTable(("N", "attention", f"attention within {reach}", "RNN"), rows, "Path length, in rounds")
    longest = max(paths)
    unrestricted, restricted, recurrent = paths[longest]
    claim = Claim(
        f"The path between any two positions is {unrestricted} round of attention at every length; for attention "
        f"restricted to {reach} positions in each direction it is N / {reach} ({restricted} at N = {longest}), and for "
        f"an RNN N ({recurrent})",
        all(counts == [1, math.ceil((n - 1) / reach), n] for n, counts in paths.items()),
    )
    return table, claim


@torch.enable_grad()
def path_length(step: Round, n: int, width: int) -> int:
    """Return the number of rounds, from states of zeros, until the last of `n` states depends on the first input.

    In each round, all positions are computed at once, from the inputs and the states of the previous round. Whether a
    state depends on an input is read from its gradient. The paper calls this the maximum path length (Table 1).
    """
    inputs = torch.randn(n, width, dtype=torch.float64, requires_grad=True)
    states = torch.zeros_like(inputs)
    for rounds in range(1, n + 1):
        states = step(states, inputs)
        (gradient,) = torch.autograd.grad(states[-1].sum(), inputs, retain_graph=True)
        if bool(gradient[0].any()):
            return rounds
    raise RegardError(f"after {n} rounds the last of {n} states does not depend on the first input")


def rnn_round(width: int) -> Round:
    """Return a round of an RNN: each state depends on its input and on the state to its left."""
    cell = nn.RNNCell(width, width, dtype=torch.float64)

    def step(states: States, inputs: States) -> States:
        left = F.pad(states, (0, 0, 1, 0))[:-1]  # [N, C]
        next_states: Tensor = cell(inputs, left)
        return next_states

    return step


def attention_round(width: int, reach: int | None = None) -> Round:
    """Return a round of self-attention: each state depends on all positions, or on those at most `reach` away."""
    layer = MultiHeadAttention(width, heads=1).double()

    def step(states: States, inputs: States) -> States:
        x = (inputs + states)[None]  # [1, N, C]
        positions = torch.arange(x.size(1))
        mask = None if reach is None else (positions[:, None] - positions).abs() <= reach  # [N, N]
        output: Tensor = layer(x, x, x, mask)
        return output[0]

    return step


def draw(figure: Figure, costs: CostsByLength, width: int) -> None:
    """Draw each measure against N."""
    # The two ways to compute attention have the same counts, so they are one line there.
    counted = {"attention": FAST, RECURRENCE: RECURRENCE, ATTENTION_LAYER: ATTENTION_LAYER, RNN_LAYER: RNN_LAYER}
    in_memory = {method: method for method in (READABLE, FAST, ATTENTION_LAYER)}
    panels = {
        "peak memory, bytes": in_memory,
        "time on one thread, seconds": {method: method for method in METHODS},
        "operations": counted,
        "longest chain of products": counted,
    }
    for i, (title, methods) in enumerate(panels.items()):
        axes = panel(figure, 2, i + 1, title, "length N", rows=2)
        lines = {name: [by_method[method][i] for by_method in costs.values()] for name, method in methods.items()}
        log_log_curves(axes, list(costs), lines, [COLOUR[method] for method in methods.values()])
        if title == "operations":
            axes.axvline(width / 2, color=GREY, linestyle=":", linewidth=1, label="N = d / 2")
            legend(axes)
