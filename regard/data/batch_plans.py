"""Groups examples into batches: by length, in random order, or packed into rows.

Dimensions of `lengths`: sides (one, or source and target) × examples.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import require_at_least
from regard.errors import RegardError

IntArray = NDArray[Any]
BatchItems = IntArray
"""The examples of a batch or, with packed rows, of each row [rows, N], padded with NO_EXAMPLE."""

NO_EXAMPLE = -1


def group_by_length(lengths: IntArray, batch_tokens: int) -> list[BatchItems]:
    """Group examples of similar length on every side, with at most `batch_tokens` positions on the larger side."""

    def split(items: IntArray) -> Iterator[IntArray]:
        sides = lengths.take(items, axis=1)  # [sides, items]; unlike indexing, `take` keeps each side contiguous
        if len(items) * int(sides.max()) <= batch_tokens:
            yield items
            return
        order, cut = _best_cut(sides, batch_tokens)
        yield from split(items[order[:cut]])
        yield from split(items[order[cut:]])

    return list(split(np.arange(lengths.shape[1])))


def _best_cut(sides: IntArray, batch_tokens: int, few_batches: int = 8) -> tuple[IntArray, int]:
    """Return an order of the rows and a position to cut it, such that the two parts need the least padding.

    Rows are sorted by either side, by their sum and by their difference, and cut at one, two or three quarters or, when
    only a few batches are left, where an even share can be split off at either end. Cutting in all these directions
    gives parts with similar lengths on both sides, while sorting by one side leaves the other ragged.
    """
    count = sides.shape[1]
    keys = [sides[0]] if len(sides) == 1 else [*sides, sides.sum(0), sides[0] - sides[1]]
    best: tuple[float, IntArray, int] | None = None
    for key in keys:
        order = np.argsort(key, kind="stable")
        ordered = sides.take(order, axis=1)
        before = np.maximum.accumulate(ordered, axis=1)  # longest of each side up to each row
        after = np.maximum.accumulate(ordered[:, ::-1], axis=1)[:, ::-1]  # longest from each row on
        tokens = np.cumsum(ordered, axis=1).max(0)
        if tokens[-1] <= few_batches * batch_tokens:
            padded = 1.05 * tokens[-1]  # an estimate
            batches = max(2, math.ceil(padded / batch_tokens))
            share = min(batch_tokens, padded / batches)  # even, so that no small batch is left over
            rows = np.arange(1, count + 1)
            first = np.searchsorted(before.max(0) * rows, share, "right")
            last = count - np.searchsorted(after.max(0)[::-1] * rows, share, "right")
            cuts = [first, last]
        else:
            cuts = [np.searchsorted(tokens, tokens[-1] * quarters / 4) for quarters in (1, 2, 3)]
        for candidate in cuts:
            cut = min(max(int(candidate), 1), count - 1)
            positions = cut * before[:, cut - 1].sum() + (count - cut) * after[:, cut].sum()
            if best is None or positions < best[0]:
                best = float(positions), order, cut
    assert best is not None
    return best[1], best[2]


def group_flat(lengths: IntArray, batch_tokens: int) -> list[BatchItems]:
    """Group examples in the order given; a batch has at most `batch_tokens` tokens on its larger side."""
    sums = np.cumsum(lengths, axis=1, dtype=np.int64)  # [sides, examples]
    count = lengths.shape[1]
    batches: list[BatchItems] = []
    start = 0
    while start < count:
        before = sums[:, start - 1] if start else np.zeros(len(lengths), np.int64)
        stops = [np.searchsorted(side, done + batch_tokens, "right") for side, done in zip(sums, before, strict=True)]
        stop = int(min(stops))
        batches.append(np.arange(start, stop))
        start = stop
    return batches


def group_in_rows(
    lengths: IntArray, random: np.random.Generator, row: int, max_count: int, rows: int, ranks: int = 1
) -> list[BatchItems]:
    """Pack examples into rows of `row` positions on every side, and group the rows into batches of one shape.

    A row has at most `max_count` examples, a batch `rows` rows, rounded up to a multiple of `ranks`.
    """
    return equal_batches(random.permutation(_fill_rows(lengths, row, max_count)), rows, ranks)


def max_examples_per_row(row: int, shortest: int, mean: float) -> int:
    """Return how many examples may share a row: twice as many as would fit if all had the mean length."""
    return min(row // shortest, math.ceil(2 * row / mean))


def equal_batches(items: IntArray, rows: int, ranks: int) -> list[BatchItems]:
    """Split items into batches of `rows` rows, padded with NO_EXAMPLE to a multiple of `ranks`, all of one shape.

    >>> [batch.tolist() for batch in equal_batches(np.array([5, 6, 7]), rows=2, ranks=1)]
    [[5, 6], [7, -1]]
    """
    batches = math.ceil(len(items) / rows)
    padded = np.full((batches * rows, *items.shape[1:]), NO_EXAMPLE)
    padded[: len(items)] = items
    padded = padded.reshape(batches, rows, *items.shape[1:])
    widths = [(0, 0), (0, -rows % ranks), *[(0, 0)] * (padded.ndim - 2)]
    return list(np.pad(padded, widths, constant_values=NO_EXAMPLE))


def _fill_rows(lengths: IntArray, row: int, max_count: int, waiting: int = 32) -> IntArray:
    """Fill rows with at most `max_count` examples each, [rows, max_count]; of the `waiting` examples, the one that
    leaves the least room is placed next.

    Several lanes work in parallel, each on its own part of the examples, so that each step is array arithmetic.
    """
    count = lengths.shape[1]
    lanes = max(1, min(128, count // 2048))  # each lane may leave one row partly empty
    steps = math.ceil(count / lanes)
    queue = np.full((steps + waiting, lanes), NO_EXAMPLE)
    queue.flat[:count] = np.arange(count)
    sizes = np.where(queue == NO_EXAMPLE, row + 1, lengths[:, queue])  # [sides, steps, lanes]; NO_EXAMPLE never fits
    sizes = sizes.astype(np.int32)
    near = queue[:waiting].T.copy()  # [lanes, waiting]
    near_sizes = sizes[:, :waiting].swapaxes(1, 2).copy()  # [sides, lanes, waiting]
    room = np.full((len(lengths), lanes), row, np.int32)
    lane, placed_count, number = np.arange(lanes), np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    placed, numbers = np.empty((2, steps, lanes), np.int64)
    for step in range(steps):
        left = _room_left(room, near_sizes)
        best = left.argmin(1)  # [lanes]
        full = np.flatnonzero((left[lane, best] > row) | (placed_count == max_count))
        if len(full):
            room[:, full], placed_count[full], number[full] = row, 0, number[full] + 1
            best[full] = _room_left(room[:, full], near_sizes[:, full]).argmin(1)
        placed[step], numbers[step] = near[lane, best], number
        room -= near_sizes[:, lane, best]
        placed_count += 1
        near[lane, best], near_sizes[:, lane, best] = queue[waiting + step], sizes[:, waiting + step]
    return _by_row(placed, numbers, max_count)


def _room_left(room: IntArray, sizes: IntArray) -> IntArray:
    """Return the room left on the side that keeps more of it [lanes, waiting]; -1 as an unsigned number is huge, so an
    example that does not fit is never the minimum."""
    left: IntArray = (room[:, :, None] - sizes).view(np.uint32).max(0)
    return left


def _by_row(placed: IntArray, numbers: IntArray, max_count: int) -> IntArray:
    """Convert the examples and row numbers of each lane, [steps, lanes], to rows, [rows, max_count]."""
    lanes = np.repeat(np.arange(placed.shape[1]), len(placed))
    examples, numbers = placed.T.ravel(), numbers.T.ravel()
    real = examples != NO_EXAMPLE
    is_new_row = np.diff(numbers[real]) | np.diff(lanes[real])
    starts = np.concatenate([[0], np.flatnonzero(is_new_row) + 1])
    counts = np.diff(starts, append=int(real.sum()))
    rows = np.full((len(counts), max_count), NO_EXAMPLE)
    rows[np.arange(max_count) < counts[:, None]] = examples[real]
    return rows


def rows_per_batch(batch_tokens: int, length: int) -> int:
    """Return the number of rows of `length` in a batch."""
    require_at_least(1, length=length)
    if batch_tokens < length:
        raise RegardError(f"batch_tokens={batch_tokens} is smaller than one row of {length}")
    return batch_tokens // length
