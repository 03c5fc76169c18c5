"""Positional encodings: sinusoids (section 3.5 of the paper) and rotations, as functions of the positions.

They are computed for the positions at hand, in at least float32: there is no maximum length, and no table that loses
precision when a model is cast to bfloat16. Learned positions are a table in the embedding.

Dimensions: T positions, D width. Frequencies fall along the width from 1 to nearly 1 ÷ base.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError

Rotary = tuple[Tensor, Tensor]
"""The cosines and sines of each position's angles."""


def angles(positions: Int[Tensor, "*B T"], width: int, base: float, dtype: torch.dtype) -> Float[Tensor, "*B T half"]:
    """Position × frequency, for the width ÷ 2 frequencies base^(-2i / width)."""
    if width % 2:
        raise RegardError(f"sinusoidal and rotary positions need an even width, not {width}")
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=dtype) / width
    return positions[..., None].to(dtype) * base**-exponents


def sinusoids(
    positions: Int[Tensor, "*B T"], width: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*B T width"]:
    """The paper's positional encoding: sin(p / 10000^(2i/width)) in dimension 2i, the cosine in 2i + 1.

    >>> sinusoids(torch.tensor([0]), 4)
    tensor([[0., 1., 0., 1.]])
    """
    angle = angles(positions, width, 10_000.0, _wide(dtype))  # [*B, T, width / 2]
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(dtype)  # [*B, T, width]


def rotary(
    positions: Int[Tensor, "*B T"], width: int, base: float = 10_000.0, dtype: torch.dtype = torch.float32
) -> Rotary:
    """Cosines and sines for `rotate`, [T, width / 2]; if positions differ by row, [B, 1, T, width / 2], where 1 stands
    for the heads."""
    angle = angles(positions, width, base, _wide(dtype))  # [*B, T, width / 2]
    if positions.dim() == 2:
        angle = angle[:, None]  # [B, 1, T, width / 2]
    return angle.cos(), angle.sin()


def rotate(x: Float[Tensor, "*B T D"], by: Rotary) -> Float[Tensor, "*B T D"]:
    """Rotate each pair of dimensions (i, i + D/2) by its position's angle. The inner product of two rotated vectors
    then depends on the distance between their positions only."""
    cos, sin = by
    a, b = x.chunk(2, dim=-1)  # [*B, T, D / 2] each
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)  # [*B, T, D]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
