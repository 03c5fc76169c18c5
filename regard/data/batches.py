"""Sequences to batches: which go together, in which order, and how they lie in a tensor.

The order is a pure function of seed and epoch: batch i of epoch e is the same whenever it is asked for, so that two
integers resume a run. Under several ranks every batch is shared out, and all take the same number of steps.

Dimensions: B rows, T tokens of the side with the loss, S of the source, N sentences packed into a row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.config import require_at_least
from regard.data.batch_plans import (
    NO_EXAMPLE,
    BatchItems,
    EpochPlan,
    IntArray,
    equal_batches,
    plan_by_length,
    plan_flat,
    plan_rows,
    rows_per_batch,
    select_short_enough,
)
from regard.data.ragged import Ragged, concatenate_rows, index_ranges, take_rows
from regard.data.tokenized_corpus import TokenizedCorpus
from regard.errors import RegardError

IGNORED_TARGET = -100
"""the label where no loss is counted: torch's own default"""


@dataclass(frozen=True)
class Batch:
    """What one step reads. Padding is whatever lies behind a row's length: it is never looked at."""

    tokens: Int[Tensor, "B T"]
    """what the model reads; in a translation by encoder and decoder, the target behind its <pad>"""
    labels: Int[Tensor, "B T"] | Int[Tensor, " B"]
    """for each token the one that follows, IGNORE where no loss is counted; or the class of each row"""
    lengths: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    """real tokens of each row, or of each sentence packed into it, 0 for none; None when every row is full"""
    source: Int[Tensor, "B S"] | None = None
    """what the encoder reads"""
    source_lengths: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    prefix: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    """in a decoder-only translation, how much of each row is source and separator"""

    def to(self, device: torch.device | str) -> "Batch":
        """The same on another device."""
        return self._each(lambda x: x.to(device, non_blocking=True))

    def pinned_for(self, device: torch.device) -> "Batch":
        """The same in page-locked memory, which a GPU copies from asynchronously; for any other device, this batch.

        The device of the run decides, not whether the machine has a GPU: pinning memory opens a CUDA context.
        """
        return self._each(Tensor.pin_memory) if device.type == "cuda" else self

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: change(x) for name, x in tensors.items() if x is not None})

    def split(self, pieces: int) -> list["Batch"]:
        """Its rows in so many batches, as even as can be; fewer if there are fewer rows."""
        cuts = np.linspace(0, len(self.tokens), min(pieces, len(self.tokens)) + 1).astype(int).tolist()
        spans = [slice(*span) for span in pairwise(cuts)]
        return [self._each(itemgetter(span)) for span in spans] if pieces > 1 else [self]

    def twice(self) -> "Batch":
        """The same rows, and below them the same again."""
        return self._each(lambda x: torch.cat([x, x]))

    @property
    def targets(self) -> int:
        """How many labels count."""
        return int((self.labels != IGNORED_TARGET).sum())

    @property
    def positions(self) -> int:
        """Places in its tensors, on both sides."""
        return self.tokens.numel() + (0 if self.source is None else self.source.numel())

    @property
    def real(self) -> int:
        """Of these, how many hold a token."""
        target = self.tokens.numel() if self.lengths is None else int(self.lengths.sum())
        return target + (0 if self.source_lengths is None else int(self.source_lengths.sum()))


@dataclass(frozen=True)
class Batches:
    """Batches without end: `plan` says which items go together in an epoch, `make` lays them into tensors."""

    plan: EpochPlan
    make: Callable[[Any], Batch]
    left_out: int = 0
    """examples that are too long for a batch, and in none"""
    seed: int = 0
    rank: int = 0
    ranks: int = 1
    shuffle: bool = True
    """whether batches come in random order, or in the plan's"""
    _last: dict[int, list[BatchItems]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the share."""
        if not 0 <= self.rank < self.ranks:
            raise RegardError(f"rank={self.rank} of ranks={self.ranks}: a rank is from 0 to one below their number")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's share of each batch of an epoch, from batch number `start` on."""
        require_at_least(0, epoch=epoch, start=start)
        for items in self.order(epoch)[start:]:
            share = items[self.rank :: self.ranks]
            if len(share):
                yield self.make(share)
            else:  # fewer rows than ranks: take part with a row that counts nothing
                batch = self.make(items[:1])
                yield replace(batch, labels=torch.full_like(batch.labels, IGNORED_TARGET))

    def order(self, epoch: int) -> list[BatchItems]:
        """The items of each batch of an epoch, over all ranks; the last epoch asked for is remembered."""
        known = self._last.get(epoch)
        if known is None:
            random = np.random.default_rng([self.seed, epoch])
            known = self.plan(random)
            if self.shuffle:
                known = [known[i] for i in random.permutation(len(known))]
            self._last.clear()
            self._last[epoch] = known
        return known

    def length(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return len(self.order(epoch))


def translation_batches(
    data: TokenizedCorpus,
    end: int,
    pad: int,
    batch_tokens: int,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """For encoder and decoder: the source ends with </s>; the target starts with <pad> and must say </s>."""
    lengths = _lengths_of_pairs(data)

    def make(pairs: IntArray) -> Batch:
        source, target, labels = _three(data, pairs, end, pad)
        return Batch(
            tokens=target.padded(pad),
            labels=labels.padded(IGNORED_TARGET),
            lengths=torch.from_numpy(target.lengths),
            source=source.padded(pad),
            source_lengths=torch.from_numpy(source.lengths),
        )

    return _padded_batches(data, lengths, make, batch_tokens, max_length, seed, rank, ranks)


def packed_translation_batches(
    data: TokenizedCorpus,
    end: int,
    pad: int,
    batch_tokens: int,
    row: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """As `translation_batches`, with many pairs one behind the other, kept apart by lengths [B, N].

    Flat, all in one row with nothing between or behind. Or with `row` in rows of so many places on either side, and
    every batch of one shape: B is `batch_tokens // row`, N the same for the whole text, and a last batch is filled up
    with rows of no sentence. Each rank takes B / ranks rows, rounded up: let ranks divide B, or some rows are empty.
    """
    lengths = _lengths_of_pairs(data)

    def make(items: IntArray) -> Batch:
        pairs, counts, most = _packing(items)
        source, target, labels = _three(data, pairs, end, pad)
        return Batch(
            tokens=target.packed(counts, pad, row),
            labels=labels.packed(counts, IGNORED_TARGET, row),
            lengths=target.packed_lengths(counts, most),
            source=source.packed(counts, pad, row),
            source_lengths=source.packed_lengths(counts, most),
        )

    return _packed_batches(data, lengths, make, batch_tokens, row, max_length, seed, rank, ranks)


def decoder_translation_batches(
    data: TokenizedCorpus,
    end: int,
    separator: int,
    pad: int,
    batch_tokens: int,
    max_length: int | None = None,
    prefix: bool = False,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """For a decoder alone: source, <sep>, target, and the loss on the target (and its </s>) alone.

    With `prefix` the batch says how much of each row is source: for a model whose source sees itself whole.
    """
    lengths = _lengths_in_a_row(data)

    def make(pairs: IntArray) -> Batch:
        sources, tokens, labels = _one_behind_the_other(data, pairs, end, separator)
        known = torch.from_numpy(sources) if prefix else None
        return Batch(tokens.padded(pad), labels.padded(IGNORED_TARGET), torch.from_numpy(tokens.lengths), prefix=known)

    return _padded_batches(data, lengths, make, batch_tokens, max_length, seed, rank, ranks)


def packed_decoder_translation_batches(
    data: TokenizedCorpus,
    end: int,
    separator: int,
    pad: int,
    batch_tokens: int,
    row: int | None = None,
    max_length: int | None = None,
    prefix: bool = False,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """Like `decoder_translation_batches`, packed as in `packed_translation_batches`, one prefix per sentence [B, N]."""
    lengths = _lengths_in_a_row(data)

    def make(items: IntArray) -> Batch:
        pairs, counts, most = _packing(items)
        sources, tokens, labels = _one_behind_the_other(data, pairs, end, separator)
        return Batch(
            tokens=tokens.packed(counts, pad, row),
            labels=labels.packed(counts, IGNORED_TARGET, row),
            lengths=tokens.packed_lengths(counts, most),
            prefix=Ragged(sources, counts).padded(0, most) if prefix else None,
        )

    return _packed_batches(data, lengths, make, batch_tokens, row, max_length, seed, rank, ranks)


def classification_batches(
    data: TokenizedCorpus,
    end: int,
    pad: int,
    batch_tokens: int,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """Texts, each ending with </s>, and their classes."""
    classes = data.labels
    if classes is None:
        raise RegardError("this text has no classes: prepare it with labelled=True")
    lengths = (data.lengths(0) + 1)[None]  # [1, examples]

    def make(rows: IntArray) -> Batch:
        texts = concatenate_rows(_side(data, 0, rows), end)
        labels = torch.from_numpy(classes[rows].astype(np.int64))
        return Batch(texts.padded(pad), labels, torch.from_numpy(texts.lengths))

    return _padded_batches(data, lengths, make, batch_tokens, max_length, seed, rank, ranks)


def language_block_batches(
    data: TokenizedCorpus,
    end: int,
    length: int,
    batch_tokens: int,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
    covering: bool = False,
) -> Batches:
    """Text as one stream, </s> before each document and at the end, cut into blocks; another cut in each epoch.

    With `covering`, for validation, blocks come in order and each token but the first is foretold exactly once. All
    batches have one shape: what is missing in the last, or behind the text, is filled with </s> that no label counts.
    """
    stream = _stream(data, end)
    total = len(data.tokens[0]) + len(data) + 1
    if total <= (1 if covering else length):
        raise RegardError(f"the text has {total} tokens, too few for one block of {length} and the token after it")
    rows = rows_per_batch(batch_tokens, length)

    def plan(random: np.random.Generator) -> list[BatchItems]:
        if covering:
            return equal_batches(np.arange(0, total - 1, length), rows, ranks)
        first = int(random.integers(min(length, total - length)))
        return equal_batches(random.permutation(np.arange(first, total - length, length)), rows, ranks)

    def make(blocks: IntArray) -> Batch:
        places = blocks[:, None] + np.arange(length + 1)  # [B, length + 1]
        there = (blocks[:, None] != NO_EXAMPLE) & (places < total)
        ids = stream(np.where(there, places, 0))  # the first is a </s>
        labels = np.where(there, ids, IGNORED_TARGET)[:, 1:]
        return Batch(*(torch.from_numpy(np.ascontiguousarray(x)) for x in (ids[:, :-1], labels)))

    return Batches(plan, make, 0, seed, rank, ranks, shuffle=not covering)


def language_document_batches(
    data: TokenizedCorpus, end: int, pad: int, row: int, batch_tokens: int, seed: int = 0, rank: int = 0, ranks: int = 1
) -> Batches:
    """Documents packed into rows and kept apart: each starts with </s>, and must say </s> when it is over.

    One that is longer than a row is cut into pieces, which do not see each other. All batches have one shape, as those
    of `packed_translation_batches` in rows.
    """
    stream = _stream(data, end)
    require_at_least(1, row=row)
    whole = data.lengths(0) + 1
    counts = -(-whole // row)  # pieces of each document
    within = row * index_ranges(np.zeros_like(counts), counts)  # where each piece begins in its document
    starts = within + np.repeat(data.offsets[0][:-1] + np.arange(len(data)), counts)  # and in the stream
    lengths = np.minimum(np.repeat(whole, counts) - within, row)

    def make(items: IntArray) -> Batch:
        pieces, counts, most = _packing(items)
        places = index_ranges(starts[pieces], lengths[pieces])
        tokens, labels = (Ragged(stream(places + after), lengths[pieces]) for after in (0, 1))
        return Batch(
            tokens=tokens.packed(counts, pad, row),
            labels=labels.packed(counts, IGNORED_TARGET, row),
            lengths=tokens.packed_lengths(counts, most),
        )

    return _packed_batches(data, lengths[None], make, batch_tokens, row, None, seed, rank, ranks)


def check_sides(data: TokenizedCorpus, sides: int) -> None:
    """A ValueError unless the text has so many sides."""
    if len(data.tokens) != sides:
        raise RegardError(f"this needs text of {sides} side{'s' * (sides > 1)}, and here are {len(data.tokens)}")


def _lengths_of_pairs(data: TokenizedCorpus) -> IntArray:
    """Of each pair both sides, with the one token that is added to either: [2, examples]."""
    check_sides(data, 2)
    return np.stack([data.lengths(0) + 1, data.lengths(1) + 1])


def _lengths_in_a_row(data: TokenizedCorpus) -> IntArray:
    """Of source, separator and target, one behind the other, [1, examples]."""
    lengths: IntArray = _lengths_of_pairs(data).sum(0, keepdims=True) - 1
    return lengths


def _padded_batches(
    data: TokenizedCorpus,
    lengths: IntArray,
    make: Callable[[IntArray], Batch],
    batch_tokens: int,
    max_length: int | None,
    seed: int,
    rank: int,
    ranks: int,
) -> Batches:
    """Batches of like lengths, of the examples that are short enough."""
    kept = select_short_enough(lengths, batch_tokens, max_length, data.variants)
    left_out = lengths.shape[1] // data.variants - len(kept)
    return Batches(plan_by_length(lengths, kept, batch_tokens), make, left_out, seed, rank, ranks)


def _packed_batches(
    data: TokenizedCorpus,
    lengths: IntArray,
    make: Callable[[IntArray], Batch],
    batch_tokens: int,
    row: int | None,
    max_length: int | None,
    seed: int,
    rank: int,
    ranks: int,
) -> Batches:
    """Batches flat or in rows, of the examples that are short enough."""
    kept = select_short_enough(lengths, batch_tokens if row is None else row, max_length, data.variants)
    plan = plan_flat(lengths, kept, batch_tokens) if row is None else plan_rows(lengths, kept, row, batch_tokens, ranks)
    left_out = lengths.shape[1] // data.variants - len(kept)
    return Batches(plan, make, left_out, seed, rank, ranks)


def _packing(items: IntArray) -> tuple[IntArray, IntArray, int]:
    """The examples that are packed, how many go into each row, and how many could at most."""
    rows = np.atleast_2d(items)  # [B, N]; flat is one row
    real = rows != NO_EXAMPLE
    return rows[real], real.sum(1), rows.shape[1]


def _side(data: TokenizedCorpus, side: int, rows: IntArray) -> Ragged:
    return take_rows(data.tokens[side], data.offsets[side], rows)


def _three(data: TokenizedCorpus, pairs: IntArray, end: int, pad: int) -> tuple[Ragged, Ragged, Ragged]:
    """What the encoder reads of each pair, what the decoder reads, and what it must say."""
    source, target = _side(data, 0, pairs), _side(data, 1, pairs)
    return concatenate_rows(source, end), concatenate_rows(pad, target), concatenate_rows(target, end)


def _one_behind_the_other(
    data: TokenizedCorpus, pairs: IntArray, end: int, separator: int
) -> tuple[IntArray, Ragged, Ragged]:
    """How long each source is with its separator, what the decoder reads of each pair, and what it must say."""
    source, target = _side(data, 0, pairs), _side(data, 1, pairs)
    return (
        source.lengths + 1,
        concatenate_rows(source, separator, target),
        concatenate_rows(source.filled(IGNORED_TARGET), target, end),
    )


def _stream(data: TokenizedCorpus, end: int) -> Callable[[IntArray], IntArray]:
    """From places to what stands there, in the text as one stream, </s> before each document and at the end."""
    check_sides(data, 1)
    ends = data.offsets[0] + np.arange(len(data) + 1)  # where each </s> stands
    tokens = np.asarray(data.tokens[0])

    def at(places: IntArray) -> IntArray:
        passed = np.searchsorted(ends, places, side="right")  # how many </s> up to here
        if not len(tokens):
            return np.full(places.shape, end)
        return np.where(ends[passed - 1] == places, end, tokens.take(places - passed, mode="clip").astype(np.int64))

    return at
