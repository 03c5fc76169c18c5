"""Ragged arrays: rows of different lengths, concatenated, so that batches are laid out without loops over sentences.

Dimensions: B rows, T positions in a row, N sentences packed into a row.
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
    """Rows of different lengths; row i is `values[starts[i] : starts[i] + lengths[i]]`.

    `Ragged([5, 6, 7], [2, 0, 1])` has the rows [5, 6], [] and [7].
    """

    values: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The start of each row in `values`."""
        return np.cumsum(self.lengths) - self.lengths

    def filled(self, value: int) -> "Ragged":
        """Return rows of the same lengths in which every value is `value`."""
        return Ragged(np.full(len(self.values), value), self.lengths)

    def joined(self, counts: IntArray) -> "Ragged":
        """Join rows: the first `counts[0]` become one row, the next `counts[1]` another, and so on.

        >>> rows = Ragged(np.array([5, 6, 7, 8]), np.array([2, 1, 1])).joined(np.array([2, 0, 1]))
        >>> rows.values.tolist(), rows.lengths.tolist()
        ([5, 6, 7, 8], [3, 0, 1])
        """
        values_before = np.concatenate([[0], np.cumsum(self.lengths)])
        rows_before = np.concatenate([[0], np.cumsum(counts)])
        return Ragged(self.values, np.diff(values_before[rows_before]))

    def padded(self, fill: int, length: int | None = None) -> Int[Tensor, "B T"]:
        """Return a tensor with one row each, padded with `fill` to `length`, or to the longest row.

        >>> Ragged(np.array([5, 6, 7]), np.array([2, 0, 1])).padded(-1)
        tensor([[ 5,  6],
                [-1, -1],
                [ 7, -1]])
        """
        width = int(self.lengths.max(initial=0)) if length is None else length
        padded = np.full((len(self.lengths), width), fill)  # [B, T]
        padded[np.arange(width) < self.lengths[:, None]] = self.values
        return torch.from_numpy(padded)

    def packed(self, counts: IntArray, fill: int, length: int | None = None) -> Int[Tensor, "B T"]:
        """Return a tensor whose first row has the first `counts[0]` rows, its second the next `counts[1]`, and so on.

        >>> Ragged(np.array([5, 6, 7, 8]), np.array([2, 1, 1])).packed(np.array([2, 0, 1]), fill=-1, length=4)
        tensor([[ 5,  6,  7, -1],
                [-1, -1, -1, -1],
                [ 8, -1, -1, -1]])
        """
        return self.joined(counts).padded(fill, length)

    def packed_lengths(self, counts: IntArray, max_count: int) -> Int[Tensor, "B N"]:
        """Return the lengths of the rows that `packed` puts into each row, padded with 0 to `max_count`.

        >>> Ragged(np.array([5, 6, 7, 8]), np.array([2, 1, 1])).packed_lengths(np.array([2, 0, 1]), max_count=3)
        tensor([[2, 1, 0],
                [0, 0, 0],
                [1, 0, 0]])
        """
        return Ragged(self.lengths, counts).padded(0, max_count)


def take_rows(tokens: IntArray, offsets: IntArray, rows: IntArray) -> Ragged:
    """Return the chosen rows of concatenated text, in which row i is `tokens[offsets[i] : offsets[i + 1]]`.

    >>> rows = take_rows(np.array([5, 6, 7, 8], np.uint16), np.array([0, 2, 3, 4]), np.array([2, 0]))
    >>> rows.values.tolist(), rows.lengths.tolist()
    ([8, 5, 6], [1, 2])
    """
    lengths = offsets[rows + 1] - offsets[rows]
    return Ragged(np.asarray(tokens)[index_ranges(offsets[rows], lengths)].astype(np.int64), lengths)


def concatenate_rows(*parts: Ragged | int) -> Ragged:
    """Concatenate row by row: row i of the result is row i of every part; an integer is repeated in each row.

    >>> first, last = Ragged(np.array([5, 6, 7]), np.array([2, 1])), Ragged(np.array([8]), np.array([0, 1]))
    >>> rows = concatenate_rows(first, 0, last)
    >>> rows.values.tolist(), rows.lengths.tolist()
    ([5, 6, 0, 7, 0, 8], [3, 3])
    """
    count = next(len(part.lengths) for part in parts if isinstance(part, Ragged))
    ragged_parts = [
        Ragged(np.full(count, part), np.ones(count, np.int64)) if isinstance(part, int) else part for part in parts
    ]
    lengths = np.sum([part.lengths for part in ragged_parts], axis=0)  # [B]
    values = np.empty(int(lengths.sum()), np.int64)
    start = np.cumsum(lengths) - lengths
    for part in ragged_parts:
        values[index_ranges(start, part.lengths)] = part.values
        start = start + part.lengths
    return Ragged(values, lengths)


def index_ranges(starts: IntArray, lengths: IntArray) -> NDArray[np.int64]:
    """Return the integers from each start on, as many as its length, concatenated.

    >>> index_ranges(np.array([7, 3]), np.array([2, 3])).tolist()
    [7, 8, 3, 4, 5]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
