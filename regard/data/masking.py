"""BERT's masking (Devlin et al. 2019, section 3.1): which tokens a masked language model must predict, and from what.

15% of the tokens of a text are chosen, at least one. Of them 80% are replaced by the mask, 10% by a random token and
10% stay as they are: the model cannot know which of the tokens it reads are wrong, so it needs a good vector for each.

Every random number is a hash of the number of the masking and of the token's index in the corpus. A text is therefore
masked in the same way in any batch, on any rank and after resuming, and differently in each masking.

Dimensions: N tokens of all texts, one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged
from regard.errors import RegardError

CHOSEN_SHARE = 0.15
"""Share of the tokens of a text that are predicted."""
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
"""Shares of the chosen tokens that are replaced by the mask and by a random token; the others are kept."""


@dataclass(frozen=True)
class Masking:
    """The mask of a vocabulary, and the ids that may be chosen."""

    mask: int
    text_ids: Sequence[int]
    """Ids that stand for text. Special tokens are never chosen and never replace another token."""

    def __post_init__(self) -> None:
        """Check that there is text to choose."""
        if not len(self.text_ids):
            raise RegardError("a vocabulary without text ids has nothing to mask")

    @cached_property
    def _replacements(self) -> NDArray[np.int64]:
        return np.asarray(self.text_ids, np.int64)

    @cached_property
    def _is_text(self) -> NDArray[np.bool_]:
        """Whether each id up to the largest text id stands for text."""
        is_text = np.zeros(max(self.text_ids) + 1, bool)
        is_text[self._replacements] = True
        return is_text

    def apply(
        self, texts: Ragged, indices: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Mask texts; return the ids that the model reads [N], and whether each token was chosen [N].

        `indices` [N] are the positions of the tokens in the corpus, `numbers` [N] those of their masking.
        """
        ids = texts.values
        choice, replacement, replaced_by = (_hash(numbers, indices, stream) for stream in range(3))  # [N] each
        is_chosen = _smallest(np.where(self._stands_for_text(ids), choice, 1.0), texts.lengths)
        random_ids = self._replacements[(replaced_by * len(self._replacements)).astype(np.int64)]
        replaced = np.select(
            [replacement < MASK_SHARE, replacement < MASK_SHARE + RANDOM_SHARE], [self.mask, random_ids], ids
        )
        return np.where(is_chosen, replaced, ids), is_chosen

    def _stands_for_text(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (ids < len(self._is_text)) & self._is_text.take(ids, mode="clip")


def _smallest(values: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each value is among the smallest of its row: 15% of those below 1, rounded, and at least one."""
    rows = np.repeat(np.arange(len(lengths)), lengths)  # [N]
    eligible = np.bincount(rows, values < 1, minlength=len(lengths))  # [rows]
    counts = np.minimum(np.maximum(1, np.floor(CHOSEN_SHARE * eligible + 0.5)), eligible)
    order = np.lexsort((values, rows))  # rows stay in place, values are sorted within each
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    smallest: NDArray[np.bool_] = rank < counts[rows]
    return smallest


def _hash(numbers: NDArray[np.int64], indices: NDArray[np.int64], stream: int) -> NDArray[np.float64]:
    """Return a number from 0 up to 1 for each masking and index, and for each stream another."""
    mixed = _mix(_mix(numbers.astype(np.uint64) * np.uint64(4) + np.uint64(stream)) + indices.astype(np.uint64))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a random-looking permutation of the 64-bit integers: SplitMix64 (Steele et al. 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
