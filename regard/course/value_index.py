"""Find tensors with given values among many, also if they are stored in another layout."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import permutations

import torch
from torch import Tensor

from regard.course.line_tracing import TracedTensor

MAX_MAGNITUDE = 1e4
"""Larger numbers, such as a mask's -1e9 or -inf, count as equal to this one."""
MAX_PERMUTED_AXES = 4
TOLERANCE = 1e-3
"""Maximum difference of equal values of about 1. It is generous: the angles of late positions differ this much."""


class Layout(IntEnum):
    """How two tensors with the same values differ."""

    SAME = 0
    RESHAPED = 1
    PERMUTED = 2


class ValueIndex:
    """Traced tensors that can be found by their values."""

    def __init__(self, traced: Sequence[TracedTensor]) -> None:
        self.traced = traced
        self._by_size: dict[int, list[tuple[int, Tensor, tuple[float, float]]]] = {}
        for number, tensor in enumerate(traced):
            if (value := canonical(tensor.value)) is not None:
                self._by_size.setdefault(value.numel(), []).append((number, value, _features(value)))

    def find(self, wanted: Tensor, layout: Layout) -> Iterator[int]:
        """The positions of the tensors with these values, in at most this different a layout."""
        if (value := canonical(wanted)) is None:
            return
        features = _features(value)
        for number, other, other_features in self._by_size.get(value.numel(), ()):
            if _may_be_equal(features, other_features) and is_equal(value, other, layout):
                yield number

    def contains(self, wanted: Tensor, layout: Layout) -> bool:
        """Whether a tensor has these values."""
        return next(self.find(wanted, layout), None) is not None


def loop_views(traced: Sequence[TracedTensor]) -> Iterator[list[TracedTensor]]:
    """The tensors as a solution has them that loops over sequences, heads, both, or the tokens too.

    What such a loop computes first belongs to the first sequence, head and token.
    """
    for axes, kept in (((0,), 2), ((1,), 2), ((0, 0), 2), ((0, 0, 0), 1)):
        yield [replace(tensor, value=_first_along(tensor.value, axes, kept)) for tensor in traced]


def _first_along(value: Tensor, axes: Sequence[int], kept: int) -> Tensor:
    """The first item along some axes. At least this many axes are kept."""
    for axis in axes:
        if value.ndim > axis + kept and value.shape[axis]:
            value = value.select(axis, 0)
    return value


def canonical(value: Tensor) -> Tensor | None:
    """The values in double precision; None for constants, which occur everywhere.

    A tensor of booleans or floats with two different values, such as a mask, becomes the positions that equal its first
    element: masks are often written inverted, or with zeros and infinities.
    """
    may_be_mask = value.dtype == torch.bool or (value.is_floating_point() and value.numel() > 2)
    if value.is_complex() or value.is_meta or not value.numel():
        return None
    value = value.detach().double().nan_to_num(nan=2 * MAX_MAGNITUDE).clamp(-MAX_MAGNITUDE, 2 * MAX_MAGNITUDE)
    if value.numel() == 1:
        return None if float(value) == int(value) else value
    first, low, high = value.flatten()[0], value.min(), value.max()
    if low == high:
        return None
    if may_be_mask and bool(((value == low) | (value == high)).all()):
        return (value == first).double()
    return value


def is_equal(one: Tensor, other: Tensor, layout: Layout) -> bool:
    """Whether two canonical tensors have the same values, in at most this different a layout."""
    if one.shape == other.shape and _close(one, other):
        return True
    if layout >= Layout.RESHAPED and _close(one.flatten(), other.flatten()):
        return True
    if layout < Layout.PERMUTED or not 2 <= one.ndim <= MAX_PERMUTED_AXES or is_mask(one):
        return False
    if not _close(one.flatten().sort().values, other.flatten().sort().values):
        return False
    flat = other.flatten()
    return any(_close(one.permute(axes).flatten(), flat) for axes in permutations(range(one.ndim)))


def is_mask(value: Tensor) -> bool:
    """Whether all values are 0 or 1. As a mask, a transposed triangle is the complement of another one."""
    return bool(((value == 0) | (value == 1)).all())


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def _features(value: Tensor) -> tuple[float, float]:
    """Two numbers that do not depend on the order of the values."""
    return float(value.sum()), float(value.abs().sum())


def _may_be_equal(one: tuple[float, float], other: tuple[float, float]) -> bool:
    difference = 10 * TOLERANCE * (1 + max(one[1], other[1]))
    return abs(one[0] - other[0]) <= difference and abs(one[1] - other[1]) <= difference
