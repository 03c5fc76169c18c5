"""Sequences to batches: which go together, in which order, and how they lie in a tensor.

The order is a pure function of seed and epoch: batch i of epoch e is the same whenever it is asked for, so that two
integers resume a run. Under several ranks every batch is shared out, and all take the same number of steps.

Dimensions: B rows, T tokens of the side with the loss, S of the source, N sentences packed into a row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.config import require_at_least
from regard.text.plans import Ids, Items, Plan, by_length, in_rows, in_turn, rows_for, short_enough
from regard.text.prepared import Prepared

IGNORE = -100
"""the label where no loss is counted: torch's own default"""


@dataclass(frozen=True)
class Batch:
    """What one step reads. Padding is whatever lies behind a row's length: it is never looked at."""

    tokens: Int[Tensor, "B T"]
    """what the model reads; in a translation by encoder and decoder, the target behind its <pad>"""
    labels: Int[Tensor, "B T"] | Int[Tensor, " B"]
    """for each token the one that follows, IGNORE where no loss is counted; or the class of each row"""
    lengths: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    """real tokens of each row, or of each sentence packed into it; None when every row is full"""
    source: Int[Tensor, "B S"] | None = None
    """what the encoder reads"""
    source_lengths: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    prefix: Int[Tensor, " B"] | Int[Tensor, "B N"] | None = None
    """in a decoder-only translation, how much of each row is source and separator"""

    def to(self, device: torch.device | str) -> "Batch":
        """The same on another device."""
        tensors = {each.name: getattr(self, each.name) for each in fields(self)}
        there = {name: x.to(device, non_blocking=True) for name, x in tensors.items() if x is not None}
        return replace(self, **there)

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

    plan: Plan
    make: Callable[[Any], Batch]
    left_out: int = 0
    """examples that are too long for a batch, and in none"""
    seed: int = 0
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        """Check the share."""
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank={self.rank} of ranks={self.ranks}: a rank is from 0 to one below their number")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's share of each batch of an epoch, from batch number `start` on."""
        require_at_least(0, epoch=epoch, start=start)
        for items in self.order(epoch)[start:]:
            share = items[self.rank :: self.ranks]
            if len(share):
                yield self.make(share)
            else:  # fewer rows than ranks: take part with a row that counts nothing
                batch = self.make(items[:1])
                yield replace(batch, labels=torch.full_like(batch.labels, IGNORE))

    def order(self, epoch: int) -> list[Items]:
        """The items of each batch of an epoch, over all ranks."""
        random = np.random.default_rng([self.seed, epoch])
        batches = self.plan(random)
        return [batches[i] for i in random.permutation(len(batches))]


def translation(
    data: Prepared,
    end: int,
    pad: int,
    batch_tokens: int,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """For encoder and decoder: the source ends with </s>; the target starts with <pad> and must say </s>."""
    check_sides(data, 2)

    def make(rows: list[int]) -> Batch:
        sources, targets, labels = _three(data, rows, end, pad)
        return Batch(
            tokens=_padded(targets, pad),
            labels=_padded(labels, IGNORE),
            lengths=_lengths(targets),
            source=_padded(sources, pad),
            source_lengths=_lengths(sources),
        )

    lengths = np.stack([data.lengths(0) + 1, data.lengths(1) + 1])  # [sides, examples]
    kept = short_enough(lengths, batch_tokens, max_length)
    return Batches(by_length(lengths, kept, batch_tokens), make, len(data) - len(kept), seed, rank, ranks)


def decoder_translation(
    data: Prepared,
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
    check_sides(data, 2)

    def make(rows: list[int]) -> Batch:
        pairs = [(data.sequence(0, i), data.sequence(1, i)) for i in rows]
        tokens = [_join(source, separator, target) for source, target in pairs]
        labels = [_join(np.full(len(source), IGNORE), target, end) for source, target in pairs]
        sources = torch.tensor([len(source) + 1 for source, _ in pairs]) if prefix else None
        return Batch(_padded(tokens, pad), _padded(labels, IGNORE), _lengths(tokens), prefix=sources)

    lengths = (data.lengths(0) + data.lengths(1) + 1)[None]  # [1, examples]
    kept = short_enough(lengths, batch_tokens, max_length)
    return Batches(by_length(lengths, kept, batch_tokens), make, len(data) - len(kept), seed, rank, ranks)


def classification(
    data: Prepared,
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
        raise ValueError("this text has no classes: prepare it with labelled=True")

    def make(rows: list[int]) -> Batch:
        texts = [_join(data.sequence(0, i), end) for i in rows]
        return Batch(_padded(texts, pad), torch.tensor([int(classes[i]) for i in rows]), _lengths(texts))

    lengths = (data.lengths(0) + 1)[None]  # [1, examples]
    kept = short_enough(lengths, batch_tokens, max_length)
    return Batches(by_length(lengths, kept, batch_tokens), make, len(data) - len(kept), seed, rank, ranks)


def packed_translation(
    data: Prepared,
    end: int,
    pad: int,
    batch_tokens: int,
    row: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Batches:
    """As `translation`, with many pairs one behind the other, kept apart by lengths [B, N].

    Flat, all in one row with nothing between or behind; or with `row` in rows of so many places on either side.
    """
    check_sides(data, 2)
    lengths = np.stack([data.lengths(0) + 1, data.lengths(1) + 1])  # [sides, examples]

    def make(rows: list[list[int]]) -> Batch:
        sources, targets, labels = zip(*(_three(data, pairs, end, pad) for pairs in rows), strict=True)
        return Batch(
            tokens=_packed(targets, pad, row),
            labels=_packed(labels, IGNORE, row),
            lengths=_packed_lengths(targets),
            source=_packed(sources, pad, row),
            source_lengths=_packed_lengths(sources),
        )

    kept = short_enough(lengths, batch_tokens if row is None else row, max_length)
    left_out = len(data) - len(kept)
    if row is None:
        return Batches(in_turn(lengths, kept, batch_tokens), lambda pairs: make([pairs]), left_out, seed, rank, ranks)
    return Batches(in_rows(lengths, kept, row, batch_tokens), make, left_out, seed, rank, ranks)


def language_blocks(
    data: Prepared, end: int, length: int, batch_tokens: int, seed: int = 0, rank: int = 0, ranks: int = 1
) -> Batches:
    """Text as one stream, </s> before each document and at the end, cut into blocks; another cut in each epoch."""
    check_sides(data, 1)
    starts = data.offsets[0] + np.arange(len(data) + 1)  # where each document's </s> stands in the stream
    total = int(starts[-1]) + 1
    if total <= length:
        raise ValueError(f"the text has {total} tokens, too few for one block of {length} and the token after it")
    rows = rows_for(batch_tokens, length)

    def plan(random: np.random.Generator) -> list[Items]:
        first = int(random.integers(min(length, total - length)))
        blocks = random.permutation(np.arange(first, total - length, length)).tolist()
        return [blocks[i : i + rows] for i in range(0, len(blocks), rows)]

    def make(blocks: list[int]) -> Batch:
        places = np.array(blocks)[:, None] + np.arange(length + 1)  # [B, length + 1]
        document = np.searchsorted(starts, places, side="right") - 1
        within = places - starts[document]  # 0 is the </s>
        ids = data.tokens[0][np.maximum(data.offsets[0][document] + within - 1, 0).clip(max=len(data.tokens[0]) - 1)]
        stream = torch.from_numpy(np.where(within == 0, end, ids.astype(np.int64)))
        return Batch(stream[:, :-1].contiguous(), stream[:, 1:].contiguous())

    return Batches(plan, make, 0, seed, rank, ranks)


def language_documents(
    data: Prepared, end: int, pad: int, row: int, batch_tokens: int, seed: int = 0, rank: int = 0, ranks: int = 1
) -> Batches:
    """Documents packed into rows and kept apart: each starts with </s>, and must say </s> when it is over.

    One that is longer than a row is cut into pieces, which do not see each other.
    """
    check_sides(data, 1)
    require_at_least(1, row=row)
    whole = data.lengths(0) + 1
    document = np.repeat(np.arange(len(data)), -(-whole // row))
    first = np.concatenate([np.arange(0, n, row) for n in whole])  # where each piece begins
    lengths = np.minimum(whole[document] - first, row)[None]  # [1, pieces]

    def piece(i: int) -> tuple[Ids, Ids]:
        text = _join(end, data.sequence(0, int(document[i])), end)[first[i] : first[i] + row + 1]
        return text[:-1], text[1:]

    def make(rows: list[list[int]]) -> Batch:
        pieces = [[piece(i) for i in each] for each in rows]
        tokens = [[text for text, _ in each] for each in pieces]
        labels = [[following for _, following in each] for each in pieces]
        return Batch(_packed(tokens, pad, row), _packed(labels, IGNORE, row), _packed_lengths(tokens))

    everything = np.arange(lengths.shape[1])
    return Batches(in_rows(lengths, everything, row, batch_tokens), make, 0, seed, rank, ranks)


def check_sides(data: Prepared, sides: int) -> None:
    """A ValueError unless the text has so many sides."""
    if len(data.tokens) != sides:
        raise ValueError(f"this needs text of {sides} side{'s' * (sides > 1)}, and here are {len(data.tokens)}")


def _three(data: Prepared, pairs: list[int], end: int, pad: int) -> tuple[list[Ids], list[Ids], list[Ids]]:
    """What the encoder reads of each pair, what the decoder reads, and what it must say."""
    sources = [_join(data.sequence(0, i), end) for i in pairs]
    targets = [_join(pad, data.sequence(1, i)) for i in pairs]
    return sources, targets, [_join(target[1:], end) for target in targets]


def _join(*parts: Ids | int) -> Ids:
    return np.concatenate([np.atleast_1d(np.asarray(part, np.int64)) for part in parts])


def _padded(rows: Sequence[Ids], fill: int) -> Int[Tensor, "B T"]:
    laid = np.full((len(rows), max(len(row) for row in rows)), fill)
    for place, row in zip(laid, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(laid)


def _lengths(rows: Sequence[Ids]) -> Int[Tensor, " B"]:
    return torch.tensor([len(row) for row in rows])


def _packed(rows: Sequence[Sequence[Ids]], fill: int, length: int | None) -> Int[Tensor, "B T"]:
    """The sentences of each row one behind the other, in rows of `length` or as long as the longest."""
    joined = [np.concatenate(row) for row in rows]
    laid = _padded(joined, fill)
    return laid if length is None else torch.nn.functional.pad(laid, (0, length - laid.size(1)), value=fill)


def _packed_lengths(rows: Sequence[Sequence[Ids]]) -> Int[Tensor, "B N"]:
    return _padded([np.array([len(sentence) for sentence in row]) for row in rows], 0)
