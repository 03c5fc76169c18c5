"""What to show of a wrong solution: a few numbers of it beside the reference's, with the cells that differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.course.numeric_equality import TOLERANCES, same, same_numbers
from regard.course.observe import EXAMPLE, Held, Observed

MOST = 6
"""rows and columns that are shown"""


@dataclass(frozen=True)
class Shown:
    """A small table of numbers, as it should be and as it is."""

    name: str
    """what the numbers are: weights, or a probe's name and value"""
    expected: list[list[str]]
    got: list[list[str]]
    differs: list[list[bool]]
    """cell by cell, of `got`"""
    note: str = ""
    """said instead of numbers, or beside them"""


def shown(seen: Observed, right: Observed, stages: Sequence[str]) -> Shown | None:
    """The attention weights of the example, if the solution's lines held them and they differ; else a value that does.

    None where nothing can be shown: all is right, or there are errors alone.
    """
    for expected in _weights(right.held, stages):
        if (got := _like(expected, seen.held)) is not None and not same_numbers(got, expected.value):
            return _table(expected.name, expected.value, got)
    for probe, key in _places(seen, right):
        expected_value, got = right.values[probe][key], seen.values[probe][key]
        if not same(got, expected_value):
            return _table(key if probe == EXAMPLE else f"{key} ({probe})", expected_value, got)
    return None


def wrong_shapes(seen: Observed, right: Observed) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
    """Of values whose shape is not the reference's, by probe and name: the shape expected, and the shape got."""
    found = {}
    for probe, key in _places(seen, right):
        expected, got = list(right.values[probe][key].shape), list(seen.values[probe][key].shape)
        if expected != got:
            found[probe, key] = expected, got
    return found


def _weights(held: Sequence[Held], stages: Sequence[str]) -> Iterator[Held]:
    """What the reference held that are weights: not below zero, and each row of sum 1."""
    for each in held:
        value = each.value
        if each.name in stages and value.is_floating_point() and value.ndim > 1 and bool((value >= 0).all()):
            sums = value.sum(-1)
            if torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
                yield each


def _like(expected: Held, held: Sequence[Held]) -> Tensor | None:
    """What the solution held in the weights' place: of their shape, and of their name or with rows or columns of 1."""
    shape = expected.value.shape
    for each in reversed(held):
        value = each.value
        if value.ndim < 2 or value.shape[-2:] != shape[-2:] or value.numel() != expected.value.numel():
            continue
        sums = [value.sum(axis) for axis in (-1, -2)] if value.is_floating_point() else []
        if each.name == expected.name or any(torch.allclose(one, torch.ones_like(one), atol=1e-3) for one in sums):
            return value.reshape(shape)
    return None


def _places(seen: Observed, right: Observed) -> list[tuple[str, str]]:
    """Probes and names of values that both have; the example's first."""
    found = [
        (probe, key) for probe, values in right.values.items() for key in values if key in seen.values.get(probe, {})
    ]
    return sorted(found, key=lambda each: each[0] != EXAMPLE)


def _table(name: str, expected: Tensor, got: Tensor) -> Shown:
    if expected.shape != got.shape:
        said = f"expected the shape {list(expected.shape)}, got {list(got.shape)}"
        return Shown(name, _cells(_corner(expected, _first(expected))), _cells(_corner(got, _first(got))), [], said)
    if expected.dtype != got.dtype:
        return Shown(name, [], [], [], f"expected {_kind(expected)}, got {_kind(got)}")
    apart = _apart(expected, got)
    where = _first(apart)
    one, other, marks = (_corner(each, where) for each in (expected, got, apart))
    return Shown(name, _cells(one), _cells(other), marks.tolist(), _place(where, expected))


def _kind(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _apart(expected: Tensor, got: Tensor) -> Tensor:
    """Which numbers differ by more than rounding."""
    least = TOLERANCES.get(expected.dtype, 0.0)
    one, other = got.double(), expected.double()
    return ~torch.isclose(one, other, rtol=10 * least, atol=10 * least, equal_nan=True)


def _first(marked: Tensor) -> tuple[int, ...]:
    """Of all the matrices in a tensor, the first with something in it."""
    leading = marked.shape[:-2]
    if not leading or not marked.numel():
        return ()
    full = marked.bool().flatten(-2).any(-1).flatten()
    index = int(full.int().argmax())
    return tuple(int(each) for each in torch.unravel_index(torch.tensor(index), leading))


def _corner(value: Tensor, where: tuple[int, ...]) -> Tensor:
    """The matrix there, as much of it as is shown."""
    matrix = value[where] if where else value
    while matrix.ndim < 2:
        matrix = matrix.unsqueeze(0)
    return matrix[:MOST, :MOST]


def _place(where: tuple[int, ...], value: Tensor) -> str:
    rows, columns = [1, 1, *value.shape][-2:]
    cut = f"the first {MOST} rows and columns" if max(rows, columns) > MOST else ""
    at = f"at [{', '.join(map(str, where))}]" if where else ""
    return ", ".join(filter(None, (at, cut)))


def _cells(matrix: Tensor) -> list[list[str]]:
    if matrix.dtype == torch.bool:
        return [["yes" if each else "no" for each in row] for row in matrix.tolist()]
    return [[f"{each:.2f}" if isinstance(each, float) else str(each) for each in row] for row in matrix.tolist()]
