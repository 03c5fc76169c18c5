"""Which examples go together: plans for an epoch, each a function of a random generator alone.

Dimensions of `lengths`: sides (one, or source and target) × examples.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import require_at_least
from regard.errors import RegardError

IntArray = NDArray[Any]
BatchItems = IntArray
"""what makes a batch: examples or, in packed rows, the examples of each row [rows, N]; NONE where there is none"""

NO_EXAMPLE = -1

EpochPlan = Callable[[np.random.Generator], list[BatchItems]]


def plan_by_length(lengths: IntArray, kept: IntArray, batch_tokens: int) -> EpochPlan:
    """Batches of examples of like length on every side, each of at most `batch_tokens` places on its larger one."""

    narrow = lengths.astype(np.int32)  # half the bytes to go through

    def split(rows: IntArray) -> Iterator[IntArray]:
        sides = narrow.take(rows, axis=1)  # [sides, rows]; unlike an index, it lays each side end to end
        if len(rows) * int(sides.max()) <= batch_tokens:
            yield rows
            return
        order, cut = _best_cut(sides, batch_tokens)
        yield from split(rows[order[:cut]])
        yield from split(rows[order[cut:]])

    return lambda random: list(split(random.permutation(choose_variants(kept, random))))


def _best_cut(sides: IntArray, batch_tokens: int, few: int = 8) -> tuple[IntArray, int]:
    """An order of the rows and a place to cut it, such that the two parts, padded, take the least room.

    Rows are sorted by either side, by both together and by how they differ, and cut at a quarter, half or three
    quarters or, when only a few batches are left, where an even share of them can be taken off at either end. Cutting
    in all these directions leaves boxes that are small on both sides, where sorting by one leaves the other ragged.
    """
    count = sides.shape[1]
    keys = [sides[0]] if len(sides) == 1 else [*sides, sides.sum(0), sides[0] - sides[1]]
    best: tuple[float, IntArray, int] | None = None
    for key in keys:
        order = np.argsort(key, kind="stable")
        ordered = sides.take(order, axis=1)
        before = np.maximum.accumulate(ordered, axis=1)  # the longest of each side up to here
        behind = np.maximum.accumulate(ordered[:, ::-1], axis=1)[:, ::-1]  # and from here on
        tokens = np.cumsum(ordered, axis=1).max(0)
        if tokens[-1] <= few * batch_tokens:
            padded = 1.05 * tokens[-1]  # about what it will be
            batches = max(2, math.ceil(padded / batch_tokens))
            share = min(batch_tokens, padded / batches)  # even, so that no scrap is left
            rows = np.arange(1, count + 1)
            first = np.searchsorted(before.max(0) * rows, share, "right")
            last = count - np.searchsorted(behind.max(0)[::-1] * rows, share, "right")
            cuts = [first, last]
        else:
            cuts = [np.searchsorted(tokens, tokens[-1] * quarters / 4) for quarters in (1, 2, 3)]
        for place in cuts:
            cut = min(max(int(place), 1), count - 1)
            room = cut * before[:, cut - 1].sum() + (count - cut) * behind[:, cut].sum()
            if best is None or room < best[0]:
                best = float(room), order, cut
    assert best is not None
    return best[1], best[2]


def plan_flat(lengths: IntArray, kept: IntArray, batch_tokens: int) -> EpochPlan:
    """Batches of examples as chance brings them, each of at most `batch_tokens` tokens on its larger side."""

    def plan(random: np.random.Generator) -> list[BatchItems]:
        order = random.permutation(choose_variants(kept, random))
        sums = np.cumsum(lengths[:, order], axis=1)  # [sides, examples]
        batches: list[BatchItems] = []
        start = 0
        while start < len(order):
            before = sums[:, start - 1] if start else np.zeros(len(lengths), np.int64)
            stops = [
                np.searchsorted(side, done + batch_tokens, "right") for side, done in zip(sums, before, strict=True)
            ]
            stop = int(min(stops))
            batches.append(order[start:stop])
            start = stop
        return batches

    return plan


def plan_rows(lengths: IntArray, kept: IntArray, row: int, batch_tokens: int, ranks: int = 1) -> EpochPlan:
    """Batches of rows, each filled with the examples that fit into `row` places on every side, all of one shape.

    No row has more than N examples: twice as many as fit when all are of mean length.
    """
    rows = rows_per_batch(batch_tokens, row)
    larger = lengths[:, kept].max(0)
    most = min(row // int(larger.min()), math.ceil(2 * row / larger.mean()))

    def plan(random: np.random.Generator) -> list[BatchItems]:
        filled = _fill_rows(lengths, random.permutation(choose_variants(kept, random)), row, most)  # [all rows, N]
        return equal_batches(random.permutation(filled), rows, ranks)

    return plan


def equal_batches(items: IntArray, rows: int, ranks: int) -> list[BatchItems]:
    """Batches of so many rows, each brought with NONE to a number that ranks divide: all have one shape on any rank.

    >>> [batch.tolist() for batch in evenly(np.array([5, 6, 7]), rows=2, ranks=1)]
    [[5, 6], [7, -1]]
    """
    batches = -(-len(items) // rows)
    laid = np.full((batches * rows, *items.shape[1:]), NO_EXAMPLE)
    laid[: len(items)] = items
    laid = laid.reshape(batches, rows, *items.shape[1:])
    behind = [(0, 0), (0, -rows % ranks), *[(0, 0)] * (laid.ndim - 2)]
    return list(np.pad(laid, behind, constant_values=NO_EXAMPLE))


def _fill_rows(lengths: IntArray, order: IntArray, row: int, most: int, waiting: int = 32) -> IntArray:
    """Rows of at most `most` examples [rows, most]: of a few that wait, the next is the one that leaves the least room.

    Lanes do this side by side, each with its own part of the examples, so that a step is arithmetic on all of them.
    """
    lanes = max(1, min(128, len(order) // 2048))  # each may leave one row unfilled
    steps = math.ceil(len(order) / lanes)
    queue = np.full((steps + waiting, lanes), NO_EXAMPLE)
    queue.flat[: len(order)] = order
    sizes = np.where(queue == NO_EXAMPLE, row + 1, lengths[:, queue]).astype(
        np.int32
    )  # [sides, steps, lanes]; NONE never fits
    near = queue[:waiting].T.copy()  # [lanes, waiting]
    near_sizes = sizes[:, :waiting].swapaxes(1, 2).copy()  # [sides, lanes, waiting]
    room = np.full((len(lengths), lanes), row, np.int32)
    lane, count, number = np.arange(lanes), np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    placed, numbers = np.empty((2, steps, lanes), np.int64)
    for step in range(steps):
        left = _room_left(room, near_sizes)
        best = left.argmin(1)  # [lanes]
        full = np.flatnonzero((left[lane, best] > row) | (count == most))
        if len(full):
            room[:, full], count[full], number[full] = row, 0, number[full] + 1
            best[full] = _room_left(room[:, full], near_sizes[:, full]).argmin(1)
        placed[step], numbers[step] = near[lane, best], number
        room -= near_sizes[:, lane, best]
        count += 1
        near[lane, best], near_sizes[:, lane, best] = queue[waiting + step], sizes[:, waiting + step]
    return _by_row(placed, numbers, most)


def _room_left(room: IntArray, sizes: IntArray) -> IntArray:
    """On the side that keeps more of it [lanes, waiting]; huge where one does not fit, as -1 is without a sign."""
    left: IntArray = (room[:, :, None] - sizes).view(np.uint32).max(0)
    return left


def _by_row(placed: IntArray, numbers: IntArray, most: int) -> IntArray:
    """The examples that each lane [steps, lanes] has placed in its rows of these numbers, as [rows, most]."""
    lanes = np.repeat(np.arange(placed.shape[1]), len(placed))
    examples, numbers = placed.T.ravel(), numbers.T.ravel()
    real = examples != NO_EXAMPLE
    another = np.diff(numbers[real]) | np.diff(lanes[real])
    starts = np.concatenate([[0], np.flatnonzero(another) + 1])
    counts = np.diff(starts, append=int(real.sum()))
    rows = np.full((len(counts), most), NO_EXAMPLE)
    rows[np.arange(most) < counts[:, None]] = examples[real]
    return rows


def select_short_enough(lengths: IntArray, longest: int, max_length: int | None = None, variants: int = 1) -> IntArray:
    """The examples that have no more than `longest` tokens on any side, nor more than `max_length`.

    Of examples that are written in several ways, one behind the other, all ways of each [examples, variants]: it is
    the first that must be short enough, and stands in for a longer one.
    """
    longest = longest if max_length is None else min(longest, max_length)
    larger = lengths.max(0).reshape(variants, -1)
    kept = np.flatnonzero(larger[0] <= longest)
    if not len(kept):
        raise RegardError(f"not one example has {longest} tokens or fewer: the shortest has {int(larger[0].min())}")
    if variants == 1:
        return kept
    ways = kept[:, None] + np.arange(variants) * larger.shape[1]
    return np.where(larger.T[kept] <= longest, ways, kept[:, None])


def choose_variants(kept: IntArray, random: np.random.Generator) -> IntArray:
    """The examples of an epoch: where each is written in several ways, one of them."""
    if kept.ndim == 1:
        return kept
    ways: IntArray = kept[np.arange(len(kept)), random.integers(kept.shape[1], size=len(kept))]
    return ways


def rows_per_batch(batch_tokens: int, length: int) -> int:
    """How many rows of `length` a batch has."""
    require_at_least(1, length=length)
    if batch_tokens < length:
        raise RegardError(f"batch_tokens={batch_tokens} is less than one row of {length}")
    return batch_tokens // length
