"""Positional encodings: sinusoids (section 3.5 of the paper) and rotations, as functions of the positions.

They are computed for the positions at hand, in at least float32: there is no maximum length, and no table that loses
precision when a model is cast to bfloat16. Learned positions are a table in the embedding.

Dimensions: T positions, D width. Frequencies fall along the width from 1 to nearly 1 ÷ base.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import RotaryScaling
from regard.errors import RegardError
from regard.model.rotary_scaling import magnitude, scale_frequencies


class Rotary(NamedTuple):
    """The cosines and sines of each position's angles, and the dimensions that are rotated together."""

    cos: Tensor
    sin: Tensor
    adjacent: bool = False
    """Whether pairs are (2i, 2i + 1) instead of (i, i + D/2)."""


FAIRSEQ_FIRST_POSITION = 2
"""The number that fairseq gives to the first position; smaller ones belong to <pad>."""


def frequencies(
    width: int, base: float, dtype: torch.dtype, device: torch.device, inclusive: bool = False
) -> Float[Tensor, " half"]:
    """The width ÷ 2 frequencies base^(-2i / width); if `inclusive`, spaced so that the last is exactly 1 ÷ base."""
    if width % 2:
        raise RegardError(f"sinusoidal and rotary positions need an even width, not {width}")
    exponents = torch.arange(0, width, 2, device=device, dtype=dtype) / (width - 2 if inclusive else width)
    return base**-exponents


def sinusoids(
    positions: Int[Tensor, "*B T"], width: int, dtype: torch.dtype = torch.float32, fairseq: bool = False
) -> Float[Tensor, "*B T width"]:
    """The paper's positional encoding: sin(p / 10000^(2i/width)) in dimension 2i, the cosine in 2i + 1.

    With `fairseq`, its frequencies 10000^(-2i/(width-2)), of positions counted from 2.

    >>> sinusoids(torch.tensor([0]), 4)
    tensor([[0., 1., 0., 1.]])
    """
    numbers = positions + FAIRSEQ_FIRST_POSITION if fairseq else positions
    rates = frequencies(width, 10_000.0, wide(dtype), positions.device, inclusive=fairseq)  # [width / 2]
    angle = numbers[..., None].to(rates.dtype) * rates  # [*B, T, width / 2]
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(dtype)  # [*B, T, width]


def rotary(
    positions: Int[Tensor, "*B T"],
    width: int,
    base: float = 10_000.0,
    dtype: torch.dtype = torch.float32,
    scaling: RotaryScaling | None = None,
    adjacent: bool = False,
) -> Rotary:
    """Cosines and sines for `rotate`, [T, width / 2]; if positions differ by row, [B, 1, T, width / 2], where 1 stands
    for the heads."""
    rates = frequencies(width, base, wide(dtype), positions.device)  # [width / 2]
    if scaling is not None:
        rates = scale_frequencies(rates, scaling, base)
    angle = positions[..., None].to(rates.dtype) * rates  # [*B, T, width / 2]
    if positions.dim() == 2:
        angle = angle[:, None]  # [B, 1, T, width / 2]
    cos, sin, size = angle.cos(), angle.sin(), magnitude(scaling)
    return Rotary(cos, sin, adjacent) if size == 1 else Rotary(cos * size, sin * size, adjacent)


def rotate(x: Float[Tensor, "*B T D"], by: Rotary) -> Float[Tensor, "*B T D"]:
    """Rotate each pair of dimensions, (i, i + D/2) or (2i, 2i + 1), by its position's angle. The inner product of two
    rotated vectors then depends on the distance between their positions only."""
    cos, sin, adjacent = by
    a, b = (x[..., 0::2], x[..., 1::2]) if adjacent else x.chunk(2, dim=-1)  # [*B, T, D / 2] each
    pairs = (a * cos - b * sin, b * cos + a * sin)
    rotated = torch.stack(pairs, -1).flatten(-2) if adjacent else torch.cat(pairs, -1)  # [*B, T, D]
    return rotated.to(x.dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type in which positions are computed for a model of this type: at least float32."""
    return torch.promote_types(dtype, torch.float32)
