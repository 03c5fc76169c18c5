"""Batches of tokenized examples: which examples form a batch, in which order, and their layout in tensors.

The order is a pure function of seed and epoch: batch i of shard s of epoch e is always the same, so three integers are
enough to resume a run. Only large corpora have more than one shard: see `regard.data.epoch_examples`. With several
ranks every batch is divided among them, and all ranks take the same number of steps.

Dimensions: B rows, T tokens of the side with the loss, S source tokens, N sentences packed into a row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
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
    IntArray,
    group_by_length,
    group_flat,
    group_in_rows,
    max_examples_per_row,
    rows_per_batch,
)
from regard.data.epoch_examples import EpochExamples, EpochPlan, LengthsOf, ShardSeed
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
    shards: int = 1
    """Number of parts of an epoch that are planned separately, one after the other."""

    def __post_init__(self) -> None:
        """Check the rank."""
        if not 0 <= self.rank < self.ranks:
            raise RegardError(f"rank={self.rank} must be from 0 to {self.ranks - 1}: ranks={self.ranks}")

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Yield this rank's share of each batch of an epoch."""
        for shard in range(self.shards):
            yield from map(self.share, self.order(epoch, shard))

    def order(self, epoch: int, shard: int = 0) -> list[BatchItems]:
        """Return the items of each batch of an epoch, or of one of its shards, for all ranks."""
        require_at_least(0, epoch=epoch)
        seed = ShardSeed(self.seed, epoch, shard, self.shards)
        random = seed.random()
        batches = self.plan(seed, random)
        return [batches[i] for i in random.permutation(len(batches))] if self.shuffle else batches

    def share(self, items: BatchItems) -> Batch:
        """Return this rank's share of a batch."""
        share = items[self.rank :: self.ranks]
        if len(share):
            return self.make(share)
        batch = self.make(items[:1])  # fewer rows than ranks: participate with a row that has no loss
        return replace(batch, labels=torch.full_like(batch.labels, IGNORED_TARGET))


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
    lengths_of = _lengths_of_pairs(data)
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

    return _padded_batches(data, lengths_of, make, batch_tokens, max_length, seed, rank, ranks)


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
    lengths_of = _lengths_of_pairs(data)
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

    return _packed_batches(data, lengths_of, make, batch_tokens, row, max_length, seed, rank, ranks)


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
    lengths_of = _lengths_in_a_row(data)

    def make(pairs: IntArray) -> Batch:
        sources, tokens, labels = _decoder_rows(data, pairs, end, separator)
        prefix_lengths = torch.from_numpy(sources) if prefix else None
        return Batch(
            tokens=tokens.padded(pad),
            labels=labels.padded(IGNORED_TARGET),
            lengths=torch.from_numpy(tokens.lengths),
            prefix=prefix_lengths,
        )

    return _padded_batches(data, lengths_of, make, batch_tokens, max_length, seed, rank, ranks)


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
    lengths_of = _lengths_in_a_row(data)

    def make(items: IntArray) -> Batch:
        pairs, counts, max_count = _packing(items)
        sources, tokens, labels = _decoder_rows(data, pairs, end, separator)
        return Batch(
            tokens=tokens.packed(counts, pad, row),
            labels=labels.packed(counts, IGNORED_TARGET, row),
            lengths=tokens.packed_lengths(counts, max_count),
            prefix=Ragged(sources, counts).padded(0, max_count) if prefix else None,
        )

    return _packed_batches(data, lengths_of, make, batch_tokens, row, max_length, seed, rank, ranks)


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
    lengths_of = _lengths_with_end(data)

    def make(rows: IntArray) -> Batch:
        texts = concatenate_rows(_side(data, 0, rows), end)
        labels = torch.from_numpy(classes[rows].astype(np.int64))
        return Batch(texts.padded(pad), labels, torch.from_numpy(texts.lengths))

    return _padded_batches(data, lengths_of, make, batch_tokens, max_length, seed, rank, ranks)


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
    lengths_of = _lengths_with_end(data)
    make = _padded_rows(lambda items: _masked_rows(data, items, end, masking), pad)
    batches = _padded_batches(data, lengths_of, make, batch_tokens, max_length, seed, rank, ranks)
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
    lengths_of = _lengths_with_end(data)
    make = packed_rows(lambda items: _masked_rows(data, items, end, masking), pad, row)
    batches = _packed_batches(data, lengths_of, make, batch_tokens, row, max_length, seed, rank, ranks)
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
    rows_of, lengths_of = _tagged_rows(data, end)
    return _padded_batches(data, lengths_of, _padded_rows(rows_of, pad), batch_tokens, max_length, seed, rank, ranks)


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
    rows_of, lengths_of = _tagged_rows(data, end)
    make = packed_rows(rows_of, pad, row)
    return _packed_batches(data, lengths_of, make, batch_tokens, row, max_length, seed, rank, ranks)


RowsOf = Callable[[IntArray], tuple[Ragged, Ragged]]
"""Return the tokens of examples and the label of each token."""


def _padded_rows(rows_of: RowsOf, pad: int) -> Callable[[IntArray], Batch]:
    """Return a function that makes a batch of examples, one in each row."""

    def make(examples: IntArray) -> Batch:
        tokens, labels = rows_of(examples)
        return Batch(tokens.padded(pad), labels.padded(IGNORED_TARGET), torch.from_numpy(tokens.lengths))

    return make


def packed_rows(rows_of: RowsOf, pad: int, row: int | None) -> Callable[[IntArray], Batch]:
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


def _lengths_of_pairs(data: TokenizedCorpus) -> LengthsOf:
    """Return a function to the lengths of both sides of pairs, including the one added token: [2, pairs]."""
    check_sides(data, 2)
    return lambda pairs: np.stack([data.lengths_of(side, pairs) + 1 for side in (0, 1)])


def _lengths_in_a_row(data: TokenizedCorpus) -> LengthsOf:
    """Return a function to the lengths of source, separator and target together, [1, pairs]."""
    check_sides(data, 2)
    return lambda pairs: (data.lengths_of(0, pairs) + data.lengths_of(1, pairs) + 1)[None]


def _lengths_with_end(data: TokenizedCorpus) -> LengthsOf:
    """Return a function to the length of each text and its </s>, [1, texts]."""
    return lambda texts: (data.lengths_of(0, texts) + 1)[None]


def examples_of(data: TokenizedCorpus, lengths_of: LengthsOf, longest: int, max_length: int | None) -> EpochExamples:
    """Return the examples with at most `longest` tokens, and at most `max_length`, on every side."""
    longest = longest if max_length is None else min(longest, max_length)
    return EpochExamples(data.examples, lengths_of, longest, data.variants, data.corpus_ends, data.times)


def _padded_batches(
    data: TokenizedCorpus,
    lengths_of: LengthsOf,
    make: Callable[[IntArray], Batch],
    batch_tokens: int,
    max_length: int | None,
    seed: int,
    rank: int,
    ranks: int,
) -> Batches:
    """Return batches of similar lengths from the examples that are short enough."""
    examples = examples_of(data, lengths_of, batch_tokens, max_length)
    left_out = examples.count - examples.statistics().kept
    plan = examples.plan(lambda lengths, _: group_by_length(lengths, batch_tokens))
    return Batches(plan, make, left_out, seed, rank, ranks, shards=examples.shards)


def packed_batches(
    examples: EpochExamples,
    make: Callable[[IntArray], Batch],
    batch_tokens: int,
    row: int | None,
    seed: int,
    rank: int,
    ranks: int,
) -> Batches:
    """Return packed batches, flat or in rows."""
    statistics = examples.statistics()
    if row is None:
        plan = examples.plan(lambda lengths, _: group_flat(lengths, batch_tokens))
    else:
        max_count = max_examples_per_row(row, statistics.shortest, statistics.mean)
        shape = (row, max_count, rows_per_batch(batch_tokens, row), ranks)
        plan = examples.plan(lambda lengths, random: group_in_rows(lengths, random, *shape))
    return Batches(plan, make, examples.count - statistics.kept, seed, rank, ranks, shards=examples.shards)


def _packed_batches(
    data: TokenizedCorpus,
    lengths_of: LengthsOf,
    make: Callable[[IntArray], Batch],
    batch_tokens: int,
    row: int | None,
    max_length: int | None,
    seed: int,
    rank: int,
    ranks: int,
) -> Batches:
    """Return packed batches, flat or in rows, from the examples that are short enough."""
    examples = examples_of(data, lengths_of, batch_tokens if row is None else row, max_length)
    return packed_batches(examples, make, batch_tokens, row, seed, rank, ranks)


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

    def masked(seed: ShardSeed, random: np.random.Generator) -> list[BatchItems]:
        masking = int(random.integers(MASKINGS))  # drawn first: it depends on seed and epoch, not on the plan
        return [np.where(items == NO_EXAMPLE, NO_EXAMPLE, items + masking * examples) for items in plan(seed, random)]

    return masked


def _masked_rows(data: TokenizedCorpus, items: IntArray, end: int, masking: Masking) -> tuple[Ragged, Ragged]:
    """Return what the model reads of each item of `_plan_maskings`, and the labels."""
    numbers, rows = np.divmod(items, len(data))
    texts = _side(data, 0, rows)
    indices = index_ranges(data.offsets[0][rows], texts.lengths)
    read, is_chosen = masking.apply(texts, indices, np.repeat(numbers, texts.lengths))
    tokens, labels = (Ragged(ids, texts.lengths) for ids in (read, np.where(is_chosen, texts.values, IGNORED_TARGET)))
    return concatenate_rows(tokens, end), concatenate_rows(labels, IGNORED_TARGET)


def _tagged_rows(data: TokenizedCorpus, end: int) -> tuple[RowsOf, LengthsOf]:
    """Return a function from examples to their tokens and labels, and one to their lengths, [1, examples]."""
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
