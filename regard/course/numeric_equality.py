"""When the values of two solutions count as equal: they may differ by rounding only."""

import torch
from torch import Tensor

from regard.course.observe import SolutionRun

TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Maximum difference between two correct ways to compute values of about 1, by dtype."""
MAX_SCALED_VALUE = 1e4
"""Larger values do not widen a tensor's tolerance: a mask's -1e9 says nothing about the other values."""


def same_probe(one: SolutionRun, other: SolutionRun, probe: str) -> bool:
    """Whether a probe gave the same for two solutions: equal values, or errors of the same class."""
    if probe in one.failures and probe in other.failures:
        return one.failures[probe].kind == other.failures[probe].kind
    if probe not in one.values or probe not in other.values:
        return False
    values, other_values = one.values[probe], other.values[probe]
    return values.keys() == other_values.keys() and all(same(values[key], other_values[key]) for key in values)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape, floating dtype and NaNs, and are equal up to rounding."""
    floats = one.is_floating_point() or other.is_floating_point()
    if one.shape != other.shape or (floats and one.dtype != other.dtype) or one.is_meta != other.is_meta:
        return False
    return one.is_meta or close(one, other)


def close(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of the same shape are equal up to rounding."""
    if one.dtype == other.dtype and torch.equal(one, other):  # the usual case, and much faster than the general one
        return True
    tolerance = max(TOLERANCES.get(tensor.dtype, 0.0) for tensor in (one, other))
    one, other = one.detach().cpu().double(), other.detach().cpu().double()
    ordinary = other[other.abs() < MAX_SCALED_VALUE].abs()
    scale = max(1.0, ordinary.max().item() if ordinary.numel() else 0.0)
    return torch.allclose(one, other, rtol=10 * tolerance, atol=tolerance * scale, equal_nan=True)


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors contain the same numbers, in any shape and order."""
    if one.numel() != other.numel() or one.is_meta or other.is_meta or one.is_complex() or other.is_complex():
        return False
    return close(_sorted(one), _sorted(other))


def _sorted(tensor: Tensor) -> Tensor:
    return tensor.flatten().double().sort().values.to(tensor.dtype)
