"""Probes of positions: the frequencies, the sinusoids, embeddings with positions, rotations, rotary attention."""

import torch
from torch import Tensor

from regard.course.assignment import Names
from regard.course.fixed_weights import inputs, seeded_normal
from regard.course.probe_values import written_parts

POSITIONS = torch.tensor([3, 0, 11, 40])
"""Positions that are neither consecutive nor sorted."""


def _table(vocab: int, width: int) -> Tensor:
    return seeded_normal("table", vocab, width)


def example(names: Names) -> dict[str, Tensor]:
    """Each function on two sequences of four tokens."""
    tokens, x = torch.tensor([[1, 6, 2, 2], [0, 3, 6, 5]]), inputs(2, 5, 4, 6)
    return written_parts(
        {
            "frequencies": lambda: names["frequencies"](6),
            "sinusoids": lambda: names["sinusoids"](torch.arange(4), 6),
            "embedded": lambda: names["embed"](tokens, _table(7, 6)),
            "rotated": lambda: names["rotate"](x, torch.arange(4)),
            "attended": lambda: names["attend"](x[:, :, -1:].flip(-1), x, x.sin()),
        }
    )


def speeds(names: Names) -> dict[str, Tensor]:
    """The frequencies of several widths."""
    return {f"width {width}": names["frequencies"](width) for width in (2, 4, 10)}


def waves(names: Names) -> dict[str, Tensor]:
    """The sinusoids of positions that are not consecutive."""
    return {f"width {width}": names["sinusoids"](POSITIONS, width) for width in (2, 8)}


def embeddings(names: Names) -> dict[str, Tensor]:
    """Sequences of several lengths, and as many sequences as tokens."""
    table = _table(9, 4)
    tokens = torch.tensor([[4, 1, 8], [0, 1, 3], [7, 7, 2]])
    return {
        "three of three": names["embed"](tokens, table),
        "one of five": names["embed"](torch.tensor([[2, 2, 0, 5, 8]]), table),
    }


def rotations(names: Names) -> dict[str, Tensor]:
    """Vectors at positions that are not consecutive, and whether they were left unchanged."""
    x = inputs(2, 3, 4, 8)
    before = x.clone()
    return {
        "rotated": names["rotate"](x, POSITIONS),
        "x is unchanged": torch.tensor(torch.equal(x, before)),
    }


def square(names: Names) -> dict[str, Tensor]:
    """As many heads as tokens, so that swapped axes raise no error."""
    return {"rotated": names["rotate"](inputs(1, 4, 4, 4), POSITIONS)}


def attention(names: Names) -> dict[str, Tensor]:
    """All queries at once, and those of the last two tokens only."""
    q, k, v = inputs(3, 2, 2, 5, 4)
    return {"all queries": names["attend"](q, k, v), "two queries": names["attend"](q[:, :, -2:], k, v)}
