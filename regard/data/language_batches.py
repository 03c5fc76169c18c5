"""Batches of a language model: blocks of the text as one stream, or documents packed into rows.

Dimensions: B rows, T tokens.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from regard.config import require_at_least
from regard.data.batch_plans import NO_EXAMPLE, BatchItems, IntArray, equal_batches, rows_per_batch
from regard.data.batches import IGNORED_TARGET, Batch, Batches, check_sides, packed_batches, packed_rows
from regard.data.epoch_examples import EpochExamples, ShardSeed
from regard.data.ragged import Ragged, index_ranges
from regard.data.tokenized_corpus import TokenizedCorpus
from regard.errors import RegardError


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

    def blocks_from(first: int) -> EpochExamples:
        """Return the blocks whose first one starts at this position."""
        count = math.ceil((total - length - first) / length)
        ends = [min(max(0, math.ceil((end - first) / length)), count) for end in stream_ends]
        ends[-1:] = [count] if ends else []  # the final </s> is after the last corpus
        return EpochExamples(count, lambda blocks: np.full((1, len(blocks)), length), length, 1, ends, data.times)

    def plan(seed: ShardSeed, random: np.random.Generator) -> list[BatchItems]:
        if covering:
            return equal_batches(np.arange(0, total - 1, length), rows, ranks)
        start_random = random if seed.shards == 1 else seed.epoch_random()
        first = int(start_random.integers(min(length, total - length)))
        blocks, _ = blocks_from(first).draw(seed, random)
        return equal_batches(first + length * blocks, rows, ranks)

    def make(blocks: IntArray) -> Batch:
        positions = blocks[:, None] + np.arange(length + 1)  # [B, length + 1]
        exists = (blocks[:, None] != NO_EXAMPLE) & (positions < total)
        ids = stream(np.where(exists, positions, 0))  # position 0 is a </s>
        labels = np.where(exists, ids, IGNORED_TARGET)[:, 1:]
        return Batch(*(torch.from_numpy(np.ascontiguousarray(x)) for x in (ids[:, :-1], labels)))

    shards = 1 if covering else blocks_from(0).shards
    return Batches(plan, make, 0, seed, rank, ranks, not covering, shards)


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

    piece_ends = np.cumsum([0, *counts])[list(data.corpus_ends)].tolist()
    pieces = EpochExamples(len(lengths), lambda numbers: lengths[None, numbers], row, 1, piece_ends, data.times)
    return packed_batches(pieces, packed_rows(rows_of, pad, row), batch_tokens, row, seed, rank, ranks)


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
