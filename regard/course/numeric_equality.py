"""When two solutions show the same: equal but for rounding."""

import torch
from torch import Tensor

from regard.course.observe import Observed

TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""how far two right ways to compute may lie apart, of numbers about 1"""
LARGEST = 1e4
"""of the numbers by which a tensor's tolerance grows: a mask's -1e9 says nothing of its neighbours"""


def same_probe(seen: Observed, other: Observed, name: str) -> bool:
    """Whether a probe saw the same of two solutions: the same values, or errors of the same class."""
    if name in seen.failures and name in other.failures:
        return seen.failures[name].kind == other.failures[name].kind
    if name not in seen.values or name not in other.values:
        return False
    mine, theirs = seen.values[name], other.values[name]
    return mine.keys() == theirs.keys() and all(same(mine[key], theirs[key]) for key in mine)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal but for rounding: in shape, in their kind of numbers, and where they are NaN."""
    floats = one.is_floating_point() or other.is_floating_point()
    if one.shape != other.shape or (floats and one.dtype != other.dtype) or one.is_meta != other.is_meta:
        return False
    return one.is_meta or close(one, other)


def close(one: Tensor, other: Tensor) -> bool:
    """Whether numbers of one shape are equal but for rounding."""
    least = max(TOLERANCES.get(each.dtype, 0.0) for each in (one, other))
    one, other = one.detach().cpu().double(), other.detach().cpu().double()
    usual = other[other.abs() < LARGEST].abs()
    scale = max(1.0, usual.max().item() if usual.numel() else 0.0)
    return torch.allclose(one, other, rtol=10 * least, atol=least * scale, equal_nan=True)


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, wherever they stand: laid out otherwise, they are the same still."""
    if one.numel() != other.numel() or one.is_meta or other.is_meta or one.is_complex() or other.is_complex():
        return False
    return close(
        one.flatten().double().sort().values.to(one.dtype), other.flatten().double().sort().values.to(other.dtype)
    )
