"""Batches of tokenized examples: which examples form a batch, in which order, and their layout in tensors.

The order is a pure function of seed and epoch: batch i of epoch e is always the same, so two integers are enough to
resume a run. With several ranks every batch is divided among them, and all ranks take the same number of steps.

Dimensions: B rows, T tokens of the side with the loss, S source tokens, N sentences packed into a row.
"""

from collections.abc import Callable, Iterator, Sequence
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
    WeightedItems,
    equal_batches,
    plan_by_length,
    plan_flat,
    plan_rows,
    rows_per_batch,
    select_short_enough,
)
from regard.data.masking import Masking
from regard.data.ragged import Ragged, concatenate_rows, index_ranges, take_rows
from regard.data.tokenized_corpus import NO_LABEL, TokenizedCorpus
from regard.errors import RegardError

IGNORED_TARGET = -100
"""Label of positions that do not count for the loss: torch's default `ignore_index`."""
MASKINGS = 2**31
"""Number of different ways in which texts can be masked. Each epoch draws one of them."""


@dataclass(frozen=True)
class Batch:
    """The input of one training step. Everything after a row's length is padding, which is never attended to."""

    tokens: Int[Tensor, "B T"]
    """The model's input; for an encoder-decoder, the target after its initial <pad>."""
    labels: Int[Tensor, "B T"] | Int[Tensor, " B"]
    """The token that follows each token or that a mask replaces, or the class of each token, IGNORED_TARGET where no
    loss is counted; or the class of each row."""
    lengths: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    """Number of tokens of each row, or of each sentence packed into it (0 for none); None if every row is full."""
    source: Int[Tensor, "B S"] | None = None
    """The encoder's input."""
    source_lengths: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    prefix: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    """In decoder-only translation, the number of source and separator tokens of each row."""

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on another device."""
        return self._map_tensors(lambda x: x.to(device, non_blocking=True))

    def pinned_for(self, device: torch.device) -> "Batch":
        """Return the batch in page-locked memory, which a GPU copies asynchronously; for other devices, unchanged.

        The run's device decides, not whether the machine has a GPU: pinning memory creates a CUDA context.
        """
        return self._map_tensors(Tensor.pin_memory) if device.type == "cuda" else self

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(self, **{name: change(x) for name, x in tensors.items() if x is not None})

    def split(self, pieces: int) -> list["Batch"]:
        """Split the rows into this many batches of nearly equal size; fewer if there are fewer rows."""
        cuts = np.linspace(0, len(self.tokens), min(pieces, len(self.tokens)) + 1).astype(int).tolist()
        spans = [slice(*span) for span in pairwise(cuts)]
        return [self._map_tensors(itemgetter(span)) for span in spans] if pieces > 1 else [self]

    def twice(self) -> "Batch":
        """Return a batch with all rows repeated."""
        return self._map_tensors(lambda x: torch.cat([x, x]))

    @property
    def targets(self) -> int:
        """The number of labels that count for the loss."""
        return int((self.labels != IGNORED_TARGET).sum())

    @property
    def positions(self) -> int:
        """The number of positions in the tensors of both sides, including padding."""
        return self.tokens.numel() + (0 if self.source is None else self.source.numel())

    @property
    def real(self) -> int:
        """The number of positions that contain a token."""
        target = self.tokens.numel() if self.lengths is None else int(self.lengths.sum())
        return target + (0 if self.source_lengths is None else int(self.source_lengths.sum()))


@dataclass(frozen=True)
class Batches:
    """The batches of every epoch: `plan` groups the items of an epoch, `make` turns each group into tensors."""

    plan: EpochPlan
    make: Callable[[Any], Batch]
    left_out: int = 0
    """Number of examples that are too long for a batch and are never used."""
    seed: int = 0
    rank: int = 0
    ranks: int = 1
    shuffle: bool = True
    """Whether batches are shuffled, or keep the order of the plan."""
    _last: dict[int, list[BatchItems]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the rank."""
        if not 0 <= self.rank < self.ranks:
            raise RegardError(f"rank={self.rank} must be from 0 to {self.ranks - 1}: ranks={self.ranks}")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this rank's share of each batch of an epoch, from batch number `start` on."""
        require_at_least(0, epoch=epoch, start=start)
        for items in self.order(epoch)[start:]:
            share = items[self.rank :: self.ranks]
            if len(share):
                yield self.make(share)
            else:  # fewer rows than ranks: participate with a row that has no loss
                batch = self.make(items[:1])
                yield replace(batch, labels=torch.full_like(batch.labels, IGNORED_TARGET))

    def order(self, epoch: int) -> list[BatchItems]:
        """Return the items of each batch of an epoch, for all ranks; the last epoch is cached."""
        batches = self._last.get(epoch)
        if batches is None:
            random = np.random.default_rng([self.seed, epoch])
            batches = self.plan(random)
            if self.shuffle:
                batches = [batches[i] for i in random.permutation(len(batches))]
            self._last.clear()
            self._last[epoch] = batches
        return batches

    def length(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
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
    source_end: int | None = None,
    source_pad: int | None = None,
) -> Batches:
    """Return batches for an encoder-decoder: sources end with </s>; targets start with <pad>, and </s> is predicted.

    `source_end` and `source_pad` are needed if the source has its own vocabulary: `end` and `pad` are the target's.
    """
    lengths = _lengths_of_pairs(data)
    source_end, source_pad = _source_ids(end, pad, source_end, source_pad)

    def make(pairs: IntArray) -> Batch:
        source, target, labels = _encoder_decoder_rows(data, pairs, end, pad, source_end)
        return Batch(
            tokens=target.padded(pad),
            labels=labels.padded(IGNORED_TARGET),
            lengths=torch.from_numpy(target.lengths),
            source=source.padded(source_pad),
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
    source_end: int | None = None,
    source_pad: int | None = None,
) -> Batches:
    """Return batches like `translation_batches`, with many pairs packed into a row and separated by lengths [B, N].

    Without `row`, a batch is a single row without padding. With `row`, rows have this many positions on both sides, and
    all batches have one shape: B is `batch_tokens // row`, N is constant, and the last batch is padded with empty rows.
    Each rank takes B / ranks rows, rounded up: choose B as a multiple of ranks, or some rows are empty.
    """
    lengths = _lengths_of_pairs(data)
    source_end, source_pad = _source_ids(end, pad, source_end, source_pad)

    def make(items: IntArray) -> Batch:
        pairs, counts, max_count = _packing(items)
        source, target, labels = _encoder_decoder_rows(data, pairs, end, pad, source_end)
        return Batch(
            tokens=target.packed(counts, pad, row),
            labels=labels.packed(counts, IGNORED_TARGET, row),
            lengths=target.packed_lengths(counts, max_count),
            source=source.packed(counts, source_pad, row),
            source_lengths=source.packed_lengths(counts, max_count),
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
    """Return batches for a decoder-only translator: source, <sep>, target; only the target and its </s> have a loss.

    With `prefix` the batch contains the length of each source: for a model that attends to the source in both
    directions.
    """
    lengths = _lengths_in_a_row(data)

    def make(pairs: IntArray) -> Batch:
        sources, tokens, labels = _decoder_rows(data, pairs, end, separator)
        prefix_lengths = torch.from_numpy(sources) if prefix else None
        return Batch(
            tokens=tokens.padded(pad),
            labels=labels.padded(IGNORED_TARGET),
            lengths=torch.from_numpy(tokens.lengths),
            prefix=prefix_lengths,
        )

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
    """Return `decoder_translation_batches` packed as in `packed_translation_batches`, a prefix per sentence [B, N]."""
    lengths = _lengths_in_a_row(data)

    def make(items: IntArray) -> Batch:
        pairs, counts, max_count = _packing(items)
        sources, tokens, labels = _decoder_rows(data, pairs, end, separator)
        return Batch(
            tokens=tokens.packed(counts, pad, row),
            labels=labels.packed(counts, IGNORED_TARGET, row),
            lengths=tokens.packed_lengths(counts, max_count),
            prefix=Ragged(sources, counts).padded(0, max_count) if prefix else None,
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
    """Return batches of texts, each ending with </s>, and their classes."""
    classes = data.labels
    if classes is None:
        raise RegardError("this text has no classes: tokenize it with labelled=True")
    lengths = _lengths_with_end(data)

    def make(rows: IntArray) -> Batch:
        texts = concatenate_rows(_side(data, 0, rows), end)
        labels = torch.from_numpy(classes[rows].astype(np.int64))
        return Batch(texts.padded(pad), labels, torch.from_numpy(texts.lengths))

    return _padded_batches(data, lengths, make, batch_tokens, max_length, seed, rank, ranks)


def masked_batches(
    data: TokenizedCorpus,
    end: int,
    pad: int,
    masking: Masking,
    batch_tokens: int,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """Return batches of texts, each ending with </s>, in which a masked language model predicts the chosen tokens.

    Each epoch masks the texts in another way.
    """
    lengths = _lengths_with_end(data)
    make = _padded_rows(lambda items: _masked_rows(data, items, end, masking), pad)
    batches = _padded_batches(data, lengths, make, batch_tokens, max_length, seed, rank, ranks)
    return replace(batches, plan=_plan_maskings(batches.plan, len(data)))


def packed_masked_batches(
    data: TokenizedCorpus,
    end: int,
    pad: int,
    masking: Masking,
    batch_tokens: int,
    row: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """Return `masked_batches` packed as in `packed_translation_batches`."""
    lengths = _lengths_with_end(data)
    make = _packed_rows(lambda items: _masked_rows(data, items, end, masking), pad, row)
    batches = _packed_batches(data, lengths, make, batch_tokens, row, max_length, seed, rank, ranks)
    return replace(batches, plan=_plan_maskings(batches.plan, len(data)))


def tagging_batches(
    data: TokenizedCorpus,
    end: int,
    pad: int,
    batch_tokens: int,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """Return batches of texts, each ending with </s>, and the class of each word at its first token."""
    rows_of, lengths = _tagged_rows(data, end)
    return _padded_batches(data, lengths, _padded_rows(rows_of, pad), batch_tokens, max_length, seed, rank, ranks)


def packed_tagging_batches(
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
    """Return `tagging_batches` packed as in `packed_translation_batches`."""
    rows_of, lengths = _tagged_rows(data, end)
    make = _packed_rows(rows_of, pad, row)
    return _packed_batches(data, lengths, make, batch_tokens, row, max_length, seed, rank, ranks)


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
    """Return blocks of the text as one stream, with </s> before each document and at the end; each epoch starts the
    blocks at another position.

    With `covering`, for validation, blocks are in order and every token except the first is predicted exactly once. All
    batches have one shape: the last is padded with </s> that have no loss.
    """
    stream = _stream(data, end)
    total = len(data.tokens[0]) + len(data) + 1
    if total <= (1 if covering else length):
        raise RegardError(f"the text has {total} tokens, too few for one block of {length} and the token that follows")
    rows = rows_per_batch(batch_tokens, length)
    stream_ends = [int(data.offsets[0][end]) + end for end in data.corpus_ends]

    def plan(random: np.random.Generator) -> list[BatchItems]:
        if covering:
            return equal_batches(np.arange(0, total - 1, length), rows, ranks)
        first = int(random.integers(min(length, total - length)))
        blocks = _weighted(np.arange(first, total - length, length), stream_ends, data.times)
        return equal_batches(random.permutation(blocks.draw(random)), rows, ranks)

    def make(blocks: IntArray) -> Batch:
        positions = blocks[:, None] + np.arange(length + 1)  # [B, length + 1]
        exists = (blocks[:, None] != NO_EXAMPLE) & (positions < total)
        ids = stream(np.where(exists, positions, 0))  # position 0 is a </s>
        labels = np.where(exists, ids, IGNORED_TARGET)[:, 1:]
        return Batch(*(torch.from_numpy(np.ascontiguousarray(x)) for x in (ids[:, :-1], labels)))

    return Batches(plan, make, 0, seed, rank, ranks, shuffle=not covering)


def language_document_batches(
    data: TokenizedCorpus, end: int, pad: int, row: int, batch_tokens: int, seed: int = 0, rank: int = 0, ranks: int = 1
) -> Batches:
    """Return documents packed into rows: each starts with </s>, and its final </s> is predicted.

    A document longer than a row is cut into pieces that do not attend to each other. All batches have one shape, as in
    `packed_translation_batches` with `row`.
    """
    stream = _stream(data, end)
    require_at_least(1, row=row)
    document_lengths = data.lengths(0) + 1
    counts = (document_lengths + row - 1) // row  # pieces of each document, rounded up
    within = row * index_ranges(np.zeros_like(counts), counts)  # start of each piece in its document
    starts = within + np.repeat(data.offsets[0][:-1] + np.arange(len(data)), counts)  # start in the stream
    lengths = np.minimum(np.repeat(document_lengths, counts) - within, row)

    def rows_of(pieces: IntArray) -> tuple[Ragged, Ragged]:
        positions = index_ranges(starts[pieces], lengths[pieces])
        return Ragged(stream(positions), lengths[pieces]), Ragged(stream(positions + 1), lengths[pieces])

    make = _packed_rows(rows_of, pad, row)
    piece_ends = np.cumsum([0, *counts])[list(data.corpus_ends)].tolist()
    return _packed_batches(data, lengths[None], make, batch_tokens, row, None, seed, rank, ranks, piece_ends)


RowsOf = Callable[[IntArray], tuple[Ragged, Ragged]]
"""Return the tokens of examples and the label of each token."""


def _padded_rows(rows_of: RowsOf, pad: int) -> Callable[[IntArray], Batch]:
    """Return a function that makes a batch of examples, one in each row."""

    def make(examples: IntArray) -> Batch:
        tokens, labels = rows_of(examples)
        return Batch(tokens.padded(pad), labels.padded(IGNORED_TARGET), torch.from_numpy(tokens.lengths))

    return make


def _packed_rows(rows_of: RowsOf, pad: int, row: int | None) -> Callable[[IntArray], Batch]:
    """Return a function that makes a batch of examples, several in each row."""

    def make(items: IntArray) -> Batch:
        examples, counts, max_count = _packing(items)
        tokens, labels = rows_of(examples)
        return Batch(
            tokens=tokens.packed(counts, pad, row),
            labels=labels.packed(counts, IGNORED_TARGET, row),
            lengths=tokens.packed_lengths(counts, max_count),
        )

    return make


def check_sides(data: TokenizedCorpus, sides: int) -> None:
    """Raise a RegardError unless the text has this many sides."""
    if len(data.tokens) != sides:
        raise RegardError(f"this needs text with {sides} side(s), not {len(data.tokens)}")


def _lengths_of_pairs(data: TokenizedCorpus) -> IntArray:
    """Return the lengths of both sides of each pair, including the one added token: [2, examples]."""
    check_sides(data, 2)
    return np.stack([data.lengths(0) + 1, data.lengths(1) + 1])


def _lengths_in_a_row(data: TokenizedCorpus) -> IntArray:
    """Return the lengths of source, separator and target together, [1, examples]."""
    lengths: IntArray = _lengths_of_pairs(data).sum(0, keepdims=True) - 1
    return lengths


def _lengths_with_end(data: TokenizedCorpus) -> IntArray:
    """Return the length of each text and its </s>, [1, examples]."""
    lengths: IntArray = (data.lengths(0) + 1)[None]
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
    """Return batches of similar lengths from the examples that are short enough."""
    kept = select_short_enough(lengths, batch_tokens, max_length, data.variants)
    left_out = lengths.shape[1] // data.variants - len(kept)
    plan = plan_by_length(lengths, _weighted(kept, data.corpus_ends, data.times), batch_tokens)
    return Batches(plan, make, left_out, seed, rank, ranks)


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
    corpus_ends: Sequence[int] | None = None,
) -> Batches:
    """Return packed batches, flat or in rows, from the examples that are short enough.

    `corpus_ends` are those of the items, if an item is not an example of the corpus.
    """
    kept = select_short_enough(lengths, batch_tokens if row is None else row, max_length, data.variants)
    left_out = lengths.shape[1] // data.variants - len(kept)
    weighted = _weighted(kept, data.corpus_ends if corpus_ends is None else corpus_ends, data.times)
    if row is None:
        plan = plan_flat(lengths, weighted, batch_tokens)
    else:
        plan = plan_rows(lengths, weighted, row, batch_tokens, ranks)
    return Batches(plan, make, left_out, seed, rank, ranks)


def _weighted(items: IntArray, corpus_ends: Sequence[int], times: Sequence[float]) -> WeightedItems:
    """Return sorted items, which belong to the first corpus whose end is larger, with how often each is used."""
    firsts = items if items.ndim == 1 else items[:, 0]
    return (
        WeightedItems(items, np.searchsorted(firsts, corpus_ends[:-1]).tolist(), times)
        if times
        else WeightedItems(items)
    )


def _packing(items: IntArray) -> tuple[IntArray, IntArray, int]:
    """Return the packed examples, the number in each row, and the maximum number per row."""
    rows = np.atleast_2d(items)  # [B, N]; flat batches are one row
    real = rows != NO_EXAMPLE
    return rows[real], real.sum(1), rows.shape[1]


def _side(data: TokenizedCorpus, side: int, rows: IntArray) -> Ragged:
    return take_rows(data.tokens[side], data.offsets[side], rows)


def _source_ids(end: int, pad: int, source_end: int | None, source_pad: int | None) -> tuple[int, int]:
    """Return the ids that end and fill sources: those of the target unless the source has its own."""
    return end if source_end is None else source_end, pad if source_pad is None else source_pad


def _encoder_decoder_rows(
    data: TokenizedCorpus, pairs: IntArray, end: int, pad: int, source_end: int
) -> tuple[Ragged, Ragged, Ragged]:
    """Return the encoder's input, the decoder's input and the labels of each pair."""
    source, target = _side(data, 0, pairs), _side(data, 1, pairs)
    return concatenate_rows(source, source_end), concatenate_rows(pad, target), concatenate_rows(target, end)


def _decoder_rows(data: TokenizedCorpus, pairs: IntArray, end: int, separator: int) -> tuple[IntArray, Ragged, Ragged]:
    """Return the length of each source with its separator, the decoder's input, and the labels of each pair."""
    source, target = _side(data, 0, pairs), _side(data, 1, pairs)
    return (
        source.lengths + 1,
        concatenate_rows(source, separator, target),
        concatenate_rows(source.filled(IGNORED_TARGET), target, end),
    )


def _plan_maskings(plan: EpochPlan, examples: int) -> EpochPlan:
    """Return a plan that draws a masking for each epoch: item i is example i % examples in masking i // examples."""

    def masked(random: np.random.Generator) -> list[BatchItems]:
        masking = int(random.integers(MASKINGS))  # drawn first: it depends on seed and epoch, not on the plan
        return [np.where(items == NO_EXAMPLE, NO_EXAMPLE, items + masking * examples) for items in plan(random)]

    return masked


def _masked_rows(data: TokenizedCorpus, items: IntArray, end: int, masking: Masking) -> tuple[Ragged, Ragged]:
    """Return what the model reads of each item of `_plan_maskings`, and the labels."""
    numbers, rows = np.divmod(items, len(data))
    texts = _side(data, 0, rows)
    indices = index_ranges(data.offsets[0][rows], texts.lengths)
    read, is_chosen = masking.apply(texts, indices, np.repeat(numbers, texts.lengths))
    tokens, labels = (Ragged(ids, texts.lengths) for ids in (read, np.where(is_chosen, texts.values, IGNORED_TARGET)))
    return concatenate_rows(tokens, end), concatenate_rows(labels, IGNORED_TARGET)


def _tagged_rows(data: TokenizedCorpus, end: int) -> tuple[RowsOf, IntArray]:
    """Return a function from examples to their tokens and labels, and the lengths of all examples, [1, examples]."""
    word_labels = data.word_labels
    if word_labels is None:
        raise RegardError("the words of this text have no classes: tokenize it with tagged=True")

    def rows_of(examples: IntArray) -> tuple[Ragged, Ragged]:
        labels = take_rows(word_labels, data.offsets[0], examples)
        values = np.where(labels.values == NO_LABEL, IGNORED_TARGET, labels.values)
        return (
            concatenate_rows(_side(data, 0, examples), end),
            concatenate_rows(Ragged(values, labels.lengths), IGNORED_TARGET),
        )

    return rows_of, _lengths_with_end(data)


def _stream(data: TokenizedCorpus, end: int) -> Callable[[IntArray], IntArray]:
    """Return a function from positions to ids in the text as one stream: </s> precedes each document and ends it."""
    check_sides(data, 1)
    ends = data.offsets[0] + np.arange(len(data) + 1)  # positions of the </s>
    tokens = np.asarray(data.tokens[0])

    def ids_at(positions: IntArray) -> IntArray:
        passed = np.searchsorted(ends, positions, side="right")  # number of </s> up to each position
        if not len(tokens):
            return np.full(positions.shape, end)
        text = tokens.take(positions - passed, mode="clip").astype(np.int64)
        return np.where(ends[passed - 1] == positions, end, text)

    return ids_at
