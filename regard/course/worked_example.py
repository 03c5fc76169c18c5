"""A small table of a wrong solution's values next to the reference's, with the cells that differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.course.line_tracing import TracedTensor
from regard.course.numeric_equality import TOLERANCES, same, same_numbers
from regard.course.observe import EXAMPLE, SolutionRun
from regard.course.probe_values import is_text

MAX_TABLE_SIZE = 6
"""Maximum number of rows and of columns that are shown."""


@dataclass(frozen=True)
class ExampleTable:
    """Expected and actual values of a matrix, as text."""

    name: str
    """What the values are: a variable of the reference, or a probe's value."""
    expected: list[list[str]]
    actual: list[list[str]]
    differs: list[list[bool]]
    """Which cells of `actual` differ."""
    note: str = ""
    """The position of the matrix in its tensor, or a difference in shape or dtype."""


def example_table(run: SolutionRun, reference: SolutionRun, stages: Sequence[str]) -> ExampleTable | None:
    """The example's attention weights if the solution computed them and they differ; else the first wrong value.

    None if there is nothing to show: everything is right, or there are only errors.
    """
    for expected in _attention_weights(reference.traced, stages):
        weights = _matching_weights(expected, run.traced)
        if weights is not None and not same_numbers(weights, expected.value):
            return _table(expected.name, expected.value, weights)
    for probe, key in _common_values(run, reference):
        value, actual = reference.values[probe][key], run.values[probe][key]
        if not same(actual, value):
            return _table(key if probe == EXAMPLE else f"{key} ({probe})", value, actual)
    return None


def wrong_shapes(run: SolutionRun, reference: SolutionRun) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
    """The expected and the actual shape of values with a wrong shape, by probe and name."""
    shapes = {}
    for probe, key in _common_values(run, reference):
        value = reference.values[probe][key]
        expected, actual = list(value.shape), list(run.values[probe][key].shape)
        if expected != actual and not is_text(value):
            shapes[probe, key] = expected, actual
    return shapes


def _attention_weights(traced: Sequence[TracedTensor], stages: Sequence[str]) -> Iterator[TracedTensor]:
    """The reference's attention weights: tensors without negative values whose rows sum to 1."""
    for tensor in traced:
        value = tensor.value
        if tensor.name in stages and value.is_floating_point() and value.ndim > 1 and bool((value >= 0).all()):
            sums = value.sum(-1)
            if torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
                yield tensor


def _matching_weights(expected: TracedTensor, traced: Sequence[TracedTensor]) -> Tensor | None:
    """The solution's attention weights: of the same size, and with the same name or with rows or columns of sum 1."""
    shape = expected.value.shape
    for tensor in reversed(traced):
        value = tensor.value
        if value.ndim < 2 or value.shape[-2:] != shape[-2:] or value.numel() != expected.value.numel():
            continue
        sums = [value.sum(axis) for axis in (-1, -2)] if value.is_floating_point() else []
        is_normalized = any(torch.allclose(total, torch.ones_like(total), atol=1e-3) for total in sums)
        if tensor.name == expected.name or is_normalized:
            return value.reshape(shape)
    return None


def _common_values(run: SolutionRun, reference: SolutionRun) -> list[tuple[str, str]]:
    """The probes and names of values that both runs have; the example's first."""
    pairs = [
        (probe, key) for probe, values in reference.values.items() for key in values if key in run.values.get(probe, {})
    ]
    return sorted(pairs, key=lambda pair: pair[0] != EXAMPLE)


def _table(name: str, expected: Tensor, actual: Tensor) -> ExampleTable:
    if is_text(expected) and is_text(actual):
        return ExampleTable(name, [[_quoted(expected)]], [[_quoted(actual)]], [[True]])
    if expected.shape != actual.shape:
        cells, actual_cells = (_cells(_corner(value, _first_matrix(value))) for value in (expected, actual))
        note = f"expected shape {list(expected.shape)}, got {list(actual.shape)}"
        return ExampleTable(name, cells, actual_cells, [], note)
    if expected.dtype != actual.dtype:
        return ExampleTable(name, [], [], [], f"expected {_dtype_name(expected)}, got {_dtype_name(actual)}")
    differs = _differing(expected, actual)
    index = _first_matrix(differs)
    corners = [_corner(value, index) for value in (expected, actual, differs)]
    return ExampleTable(name, _cells(corners[0]), _cells(corners[1]), corners[2].tolist(), _position(index, expected))


def _quoted(value: Tensor) -> str:
    """A text in quotes, with escapes for line breaks and the like."""
    return repr(bytes(value.tolist()).decode(errors="replace"))


def _dtype_name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _differing(expected: Tensor, actual: Tensor) -> Tensor:
    """Which numbers differ by more than rounding."""
    tolerance = 10 * TOLERANCES.get(expected.dtype, 0.0)
    return ~torch.isclose(actual.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def _first_matrix(marked: Tensor) -> tuple[int, ...]:
    """The index of the first matrix in a tensor that has a nonzero element."""
    leading = marked.shape[:-2]
    if not leading or not marked.numel():
        return ()
    nonzero = marked.bool().flatten(-2).any(-1).flatten()
    position = torch.unravel_index(nonzero.int().argmax(), leading)
    return tuple(int(coordinate) for coordinate in position)


def _corner(value: Tensor, index: tuple[int, ...]) -> Tensor:
    """The part of the matrix at this index that is shown."""
    matrix = value[index] if index else value
    while matrix.ndim < 2:
        matrix = matrix.unsqueeze(0)
    return matrix[:MAX_TABLE_SIZE, :MAX_TABLE_SIZE]


def _position(index: tuple[int, ...], value: Tensor) -> str:
    rows, columns = [1, 1, *value.shape][-2:]
    parts = []
    if index:
        parts.append(f"at index [{', '.join(map(str, index))}]")
    if max(rows, columns) > MAX_TABLE_SIZE:
        parts.append(f"the first {MAX_TABLE_SIZE} rows and columns")
    return ", ".join(parts)


def _cells(matrix: Tensor) -> list[list[str]]:
    if matrix.dtype == torch.bool:
        return [["yes" if cell else "no" for cell in row] for row in matrix.tolist()]
    return [[f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in matrix.tolist()]
