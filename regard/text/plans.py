"""Which examples go together: plans for an epoch, each a function of a random generator alone.

Dimensions of `lengths`: sides (one, or source and target) × examples.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import require_at_least

Ids = NDArray[Any]
Items = list[int] | list[list[int]]
"""what makes a batch: examples or, in packed rows, the examples of each row"""

Plan = Callable[[np.random.Generator], list[Items]]


def by_length(lengths: Ids, kept: Ids, batch_tokens: int) -> Plan:
    """Batches of examples of like length on every side, each of at most `batch_tokens` places on its larger one."""

    def split(rows: Ids) -> Iterator[Ids]:
        sides = lengths[:, rows]  # [sides, rows]
        if len(rows) * sides.max() <= batch_tokens:
            yield rows
            return
        order, cut = _best_cut(sides, batch_tokens)
        yield from split(rows[order[:cut]])
        yield from split(rows[order[cut:]])

    return lambda random: [rows.tolist() for rows in split(random.permutation(kept))]


def _best_cut(sides: Ids, batch_tokens: int, few: int = 8) -> tuple[Ids, int]:
    """An order of the rows and a place to cut it, such that the two parts, padded, take the least room.

    Rows are sorted by either side, by both together and by how they differ, and cut at a quarter, half or three
    quarters or, when only a few batches are left, where an even share of them can be taken off at either end. Cutting
    in all these directions leaves boxes that are small on both sides, where sorting by one leaves the other ragged.
    """
    count = sides.shape[1]
    keys = [sides[0]] if len(sides) == 1 else [*sides, sides.sum(0), sides[0] - sides[1]]
    best: tuple[float, Ids, int] | None = None
    for key in keys:
        order = np.argsort(key, kind="stable")
        ordered = sides[:, order]
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


def in_turn(lengths: Ids, kept: Ids, batch_tokens: int) -> Plan:
    """Batches of examples as chance brings them, each of at most `batch_tokens` tokens on its larger side."""

    def plan(random: np.random.Generator) -> list[Items]:
        order = random.permutation(kept)
        sums = np.cumsum(lengths[:, order], axis=1)  # [sides, examples]
        batches: list[Items] = []
        start = 0
        while start < len(order):
            before = sums[:, start - 1] if start else np.zeros(len(lengths), np.int64)
            stops = [
                np.searchsorted(side, done + batch_tokens, "right") for side, done in zip(sums, before, strict=True)
            ]
            stop = int(min(stops))
            batches.append(order[start:stop].tolist())
            start = stop
        return batches

    return plan


def in_rows(lengths: Ids, kept: Ids, row: int, batch_tokens: int) -> Plan:
    """Batches of rows, each filled with the examples that fit into `row` places on every side."""
    rows = rows_for(batch_tokens, row)

    def plan(random: np.random.Generator) -> list[Items]:
        filled = _fill_rows(lengths, random.permutation(kept), row)
        shuffled = [filled[i] for i in random.permutation(len(filled))]
        return [shuffled[i : i + rows] for i in range(0, len(shuffled), rows)]

    return plan


def _fill_rows(lengths: Ids, order: Ids, row: int, open_rows: int = 32) -> list[list[int]]:
    """Each example goes where it leaves the least room, among a few rows kept open; the fullest makes way."""
    done: list[list[int]] = []
    rows: list[list[int]] = [[] for _ in range(open_rows)]
    room = np.full((len(lengths), open_rows), row)  # [sides, open rows]
    for i in order.tolist():
        after = room - lengths[:, i, None]
        least = np.where((after >= 0).all(0), after.sum(0), row * len(lengths) + 1)
        best = int(least.argmin())
        if least[best] > row * len(lengths):
            best = int(room.sum(0).argmin())
            done.append(rows[best])
            rows[best], room[:, best] = [], row
        rows[best].append(i)
        room[:, best] -= lengths[:, i]
    return done + [each for each in rows if each]


def short_enough(lengths: Ids, longest: int, max_length: int | None = None) -> Ids:
    """The examples that have no more than `longest` tokens on any side, nor more than `max_length`."""
    longest = longest if max_length is None else min(longest, max_length)
    kept = np.flatnonzero(lengths.max(0) <= longest)
    if not len(kept):
        raise ValueError(f"not one example has {longest} tokens or fewer: the shortest has {int(lengths.max(0).min())}")
    return kept


def rows_for(batch_tokens: int, length: int) -> int:
    """How many rows of `length` a batch has."""
    require_at_least(1, length=length)
    if batch_tokens < length:
        raise ValueError(f"batch_tokens={batch_tokens} is less than one row of {length}")
    return batch_tokens // length
