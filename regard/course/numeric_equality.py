"""When the values of two solutions count as equal: they may differ by rounding only."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.course.observe import SolutionRun

TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Maximum difference between two correct ways to compute values of about 1, by dtype.

A solution may compute a part in float32 although its results are in float64.
"""
HUGE_VALUE = 1e30
"""Numbers of this size come from a mask's infinity or largest number, not from a computation."""
FULL_PRECISION = (torch.float32, torch.float64)
"""Dtypes that count as equal: which of them a probe runs in depends on what the solution supports."""
EXTREME = "extreme"
"""How the names of values begin that show whether huge inputs are handled. Wrong ones depend on how code is written."""
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


class Mismatch(NamedTuple):
    """How far a variant does not explain a run that does not contradict it either."""

    values: int = 0
    """The number of values that one of them gives wrong and the other not at all, or where both overflow."""
    errors: int = 0
    """The number of probes where they give errors of two classes."""


def mismatch(
    run: SolutionRun,
    variant: SolutionRun,
    reference: SolutionRun,
    probe: str,
    is_unfinished: bool = False,
    slack: float = 1.0,
) -> Mismatch | None:
    """How far a variant does not explain a probe of a run; None if a value contradicts the variant.

    The same mistake can give wrong numbers in one solution and an error in another, errors of two classes, or infinity
    in one and NaN in the other. Values that an unfinished solution does not give are ignored.
    """
    if probe in run.failures and probe in variant.failures:
        return Mismatch(errors=int(run.failures[probe].kind != variant.failures[probe].kind))
    values, explained, expected = (each.values.get(probe, {}) for each in (run, variant, reference))
    shared = values.keys() & explained.keys()
    unlike = [key for key in shared if not same(values[key], explained[key], slack)]
    for key in unlike:
        pair = values[key], explained[key]
        both_wrong = key in expected and not any(same(value, expected[key], slack) for value in pair)
        if not all(map(_overflows, pair)) and not (key.startswith(EXTREME) and both_wrong):
            return None
    only = {key: value for key, value in values.items() if key not in shared}
    if not is_unfinished:
        only |= {key: value for key, value in explained.items() if key not in shared}
    wrong = [key for key, value in only.items() if key not in expected or not same(value, expected[key], slack)]
    if only and not wrong:
        return None
    return Mismatch(values=len(wrong) + len(unlike))


def _overflows(value: Tensor) -> bool:
    """Whether a value has NaN, infinite or huge numbers, which depend on the order of the operations."""
    return value.is_floating_point() and not bool((value.abs() < HUGE_VALUE).all())


def same(one: Tensor, other: Tensor, slack: float = 1.0) -> bool:
    """Whether two tensors have the same shape, floating dtype and NaNs, and are equal up to `slack` times rounding."""
    if one.shape != other.shape or not same_precision(one, other) or one.is_meta != other.is_meta:
        return False
    return one.is_meta or close(one, other, slack)


def same_precision(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same floating dtype, float32 and float64 being one, or are both not floating."""
    if not one.is_floating_point() and not other.is_floating_point():
        return True
    return one.dtype == other.dtype or (one.dtype in FULL_PRECISION and other.dtype in FULL_PRECISION)


def close(one: Tensor, other: Tensor, slack: float = 1.0) -> bool:
    """Whether two tensors of the same shape are equal up to `slack` times rounding."""
    if one.dtype == other.dtype and torch.equal(one, other):  # the usual case, and much faster than the general one
        return True
    tolerance = slack * max(TOLERANCES.get(tensor.dtype, 0.0) for tensor in (one, other))
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
