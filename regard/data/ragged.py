"""Rows of unequal length end to end in one array, so that a batch is laid out without a loop over its sentences.

Dimensions: B rows, T places in a row, N sentences packed into a row.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch_plans import IntArray


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row i is `values[starts[i] : starts[i] + lengths[i]]`: `Ragged([5, 6, 7], [2, 0, 1])` holds [5, 6], [], [7]."""

    values: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    def filled(self, value: int) -> "Ragged":
        """As many values in each row, all of them this one."""
        return Ragged(np.full(len(self.values), value), self.lengths)

    def joined(self, counts: IntArray) -> "Ragged":
        """Longer rows: the first `counts[0]` become one, the next `counts[1]` another, and so on.

        >>> rows = Ragged(np.array([5, 6, 7, 8]), np.array([2, 1, 1])).joined(np.array([2, 0, 1]))
        >>> rows.values.tolist(), rows.lengths.tolist()
        ([5, 6, 7, 8], [3, 0, 1])
        """
        values_before = np.concatenate([[0], np.cumsum(self.lengths)])
        rows_before = np.concatenate([[0], np.cumsum(counts)])
        return Ragged(self.values, np.diff(values_before[rows_before]))

    def padded(self, fill: int, length: int | None = None) -> Int[Tensor, "B T"]:
        """A row each, with `fill` behind its values, of `length` places or as many as the longest needs.

        >>> Ragged(np.array([5, 6, 7]), np.array([2, 0, 1])).padded(-1)
        tensor([[ 5,  6],
                [-1, -1],
                [ 7, -1]])
        """
        width = int(self.lengths.max(initial=0)) if length is None else length
        laid = np.full((len(self.lengths), width), fill)  # [B, T]
        laid[np.arange(width) < self.lengths[:, None]] = self.values
        return torch.from_numpy(laid)

    def packed(self, counts: IntArray, fill: int, length: int | None = None) -> Int[Tensor, "B T"]:
        """Many a row: the first `counts[0]` one behind the other, below them the next `counts[1]`, and so on.

        >>> Ragged(np.array([5, 6, 7, 8]), np.array([2, 1, 1])).packed(np.array([2, 0, 1]), fill=-1, length=4)
        tensor([[ 5,  6,  7, -1],
                [-1, -1, -1, -1],
                [ 8, -1, -1, -1]])
        """
        return self.joined(counts).padded(fill, length)

    def packed_lengths(self, counts: IntArray, most: int) -> Int[Tensor, "B N"]:
        """How long each is of those that `packed` puts into a row, and 0 up to `most`.

        >>> Ragged(np.array([5, 6, 7, 8]), np.array([2, 1, 1])).packed_lengths(np.array([2, 0, 1]), most=3)
        tensor([[2, 1, 0],
                [0, 0, 0],
                [1, 0, 0]])
        """
        return Ragged(self.lengths, counts).padded(0, most)


def take_rows(tokens: IntArray, offsets: IntArray, rows: IntArray) -> Ragged:
    """The named rows of text that lies end to end, row i from `offsets[i]` up to `offsets[i + 1]`.

    >>> rows = taken(np.array([5, 6, 7, 8], np.uint16), np.array([0, 2, 3, 4]), np.array([2, 0]))
    >>> rows.values.tolist(), rows.lengths.tolist()
    ([8, 5, 6], [1, 2])
    """
    lengths = offsets[rows + 1] - offsets[rows]
    return Ragged(np.asarray(tokens)[index_ranges(offsets[rows], lengths)].astype(np.int64), lengths)


def concatenate_rows(*parts: Ragged | int) -> Ragged:
    """The first rows of all parts one behind the other, then the second rows; an id stands for itself in each row.

    >>> rows = beside(Ragged(np.array([5, 6, 7]), np.array([2, 1])), 0, Ragged(np.array([8]), np.array([0, 1])))
    >>> rows.values.tolist(), rows.lengths.tolist()
    ([5, 6, 0, 7, 0, 8], [3, 3])
    """
    count = next(len(part.lengths) for part in parts if isinstance(part, Ragged))
    whole = [
        Ragged(np.full(count, part), np.ones(count, np.int64)) if isinstance(part, int) else part for part in parts
    ]
    lengths = np.sum([part.lengths for part in whole], axis=0)  # [B]
    values = np.empty(int(lengths.sum()), np.int64)
    place = np.cumsum(lengths) - lengths
    for part in whole:
        values[index_ranges(place, part.lengths)] = part.values
        place = place + part.lengths
    return Ragged(values, lengths)


def index_ranges(starts: IntArray, lengths: IntArray) -> NDArray[np.int64]:
    """Whole numbers from each start on, so many as its length.

    >>> ranges(np.array([7, 3]), np.array([2, 3])).tolist()
    [7, 8, 3, 4, 5]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
