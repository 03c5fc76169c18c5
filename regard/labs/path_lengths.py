"""How far apart two positions are in a network: the rounds of computation until one depends on the other.

In each round every position is computed at once, from the inputs and from the states of the round before. Whether a
state depends on an input is read from its gradient. The paper calls this the maximum path length (Table 1).

Dimensions: N positions, C width.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import RegardError
from regard.labs.lab import Claim, Table
from regard.model.attention import MultiHeadAttention

States = Float[Tensor, "N C"]
Round = Callable[[States, States], States]
"""takes the states and the inputs, and returns the next states"""


@torch.enable_grad()
def path_length(step: Round, n: int, width: int) -> int:
    """The number of rounds, from states of zeros, until the last of `n` states depends on the first input."""
    inputs = torch.randn(n, width, dtype=torch.float64, requires_grad=True)
    states = torch.zeros_like(inputs)
    for rounds in range(1, n + 1):
        states = step(states, inputs)
        (gradient,) = torch.autograd.grad(states[-1].sum(), inputs, retain_graph=True)
        if bool(gradient[0].any()):
            return rounds
    raise RegardError(f"after {n} rounds the last of {n} states does not depend on the first input")


def recurrent(width: int) -> Round:
    """A recurrent network: each state comes from its input and from the state to its left."""
    cell = nn.RNNCell(width, width, dtype=torch.float64)

    def step(states: States, inputs: States) -> States:
        left = F.pad(states, (0, 0, 1, 0))[:-1]  # [N, C]
        next_states: Tensor = cell(inputs, left)
        return next_states

    return step


def attending(width: int, reach: int | None = None) -> Round:
    """Self-attention: each state comes from all positions, or from those at most `reach` away."""
    attention = MultiHeadAttention(width, heads=1).double()

    def step(states: States, inputs: States) -> States:
        x = (inputs + states)[None]  # [1, N, C]
        places = torch.arange(x.size(1))
        near = None if reach is None else (places[:, None] - places).abs() <= reach  # [N, N]
        output: Tensor = attention(x, x, x, near)
        return output[0]

    return step


def measured_paths(lengths: Sequence[int], reach: int, width: int = 8) -> tuple[Table, Claim]:
    """The path lengths of attention, of attention restricted to `reach` positions, and of an RNN."""
    steps = attending(width), attending(width, reach), recurrent(width)
    paths = {n: [path_length(step, n, width) for step in steps] for n in lengths}
    rows = tuple((str(n), *map(str, each)) for n, each in paths.items())
    table = Table(("N", "attention", f"attention within {reach}", "RNN"), rows, "Path length, in rounds")
    longest = max(paths)
    everywhere, nearby, one_by_one = paths[longest]
    claim = Claim(
        f"From any position to any other, attention takes {everywhere} round at every length; attention that sees "
        f"{reach} positions each way takes N / {reach} ({nearby} at N = {longest}), an RNN N ({one_by_one})",
        all(each == [1, math.ceil((n - 1) / reach), n] for n, each in paths.items()),
    )
    return table, claim
