"""The examples of an epoch, in shards, so that the memory for planning batches does not grow with the corpus.

An epoch with few examples is a single shard. A longer one is dealt out in blocks of neighbouring examples, in another
random order each time, so that every shard is a sample of all corpora. The examples of a shard are then shuffled and
arranged in batches. All of this is a function of seed, epoch and shard.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.batch_plans import NO_EXAMPLE, BatchItems, IntArray
from regard.data.ragged import index_ranges
from regard.errors import RegardError

MAX_SHARD_EXAMPLES = 2**22
"""Maximum number of examples that are shuffled and arranged in batches together."""
BLOCK_EXAMPLES = 1024
"""Number of neighbouring examples that are always in the same shard."""
CHUNK_EXAMPLES = 2**20
"""Number of examples whose lengths are read at a time."""

LengthsOf = Callable[[IntArray], IntArray]
"""Returns the lengths of sequences, by their number: [sides, sequences]."""


@dataclass(frozen=True)
class ShardSeed:
    """Identifies a shard of an epoch, and determines its random numbers."""

    seed: int
    epoch: int
    shard: int = 0
    shards: int = 1

    def random(self) -> np.random.Generator:
        """Return the random numbers of the shard."""
        return self.epoch_random() if self.shards == 1 else np.random.default_rng([self.seed, self.epoch, self.shard])

    def epoch_random(self) -> np.random.Generator:
        """Return random numbers that are the same for all shards of the epoch."""
        return np.random.default_rng([self.seed, self.epoch])


EpochPlan = Callable[[ShardSeed, np.random.Generator], list[BatchItems]]
"""Returns the items of each batch of a shard. The generator is that of the shard."""
GroupExamples = Callable[[IntArray, np.random.Generator], list[BatchItems]]
"""Groups examples in random order, given their lengths, into batches of their indices."""


@dataclass(frozen=True)
class LengthStatistics:
    """The lengths of the examples that are used, each on its longer side."""

    kept: int
    """Number of examples that are short enough."""
    shortest: int
    mean: float
    """Mean over an epoch, in which corpora are used several times, and over the variants of each example."""


@dataclass(frozen=True)
class EpochExamples:
    """The examples that are short enough, and how often those of each corpus are used in an epoch."""

    count: int
    lengths_of: LengthsOf
    longest: int
    """Maximum length of an example on every side."""
    variants: int = 1
    """Number of variants of each example, of which an epoch uses one: those of example i are the sequences i,
    i + count, i + 2 × count … Only the first must be short enough, and it replaces variants that are too long."""
    corpus_ends: Sequence[int] = ()
    """Number of examples up to the end of each corpus."""
    times: Sequence[float] = ()
    """How often each corpus is used in an epoch; empty if all are used once."""

    @property
    def corpora(self) -> list[tuple[int, int, float]]:
        """The first example of each corpus, the first one after it, and how often it is used."""
        if not self.times:
            return [(0, self.count, 1.0)]
        return list(zip((0, *self.corpus_ends), self.corpus_ends, self.times, strict=False))

    @property
    def shards(self) -> int:
        """The number of shards of an epoch."""
        used = sum((end - first) * times for first, end, times in self.corpora)
        return max(1, math.ceil(used / MAX_SHARD_EXAMPLES))

    def draw(self, seed: ShardSeed, random: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return the sequences of a shard in random order, and their lengths [sides, sequences]."""
        starts, stops, shares = self._blocks(seed)
        examples = index_ranges(starts, stops - starts)
        if (shares < 1).any():
            examples = examples[random.random(len(examples)) < np.repeat(shares, stops - starts)]
        lengths = self.lengths_of(examples).astype(np.int32)
        fits = lengths.max(0) <= self.longest
        if not fits.all():
            examples, lengths = examples[fits], lengths[:, fits]
        if self.variants > 1:
            chosen = examples + self.count * random.integers(self.variants, size=len(examples))
            examples, lengths = self._first_if_too_long(chosen, examples, lengths)
        order = random.permutation(len(examples))
        return examples[order], lengths.take(order, axis=1)  # unlike indexing, `take` keeps each side contiguous

    def plan(self, group: GroupExamples) -> EpochPlan:
        """Return a plan that draws the examples of a shard and groups them into batches."""

        def batches(seed: ShardSeed, random: np.random.Generator) -> list[BatchItems]:
            examples, lengths = self.draw(seed, random)
            groups = group(lengths, random) if len(examples) else []
            return [np.where(items == NO_EXAMPLE, NO_EXAMPLE, examples[items]) for items in groups]

        return batches

    def _first_if_too_long(self, chosen: IntArray, first: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
        """Return the chosen variants, or the first where they are too long, and their lengths."""
        chosen_lengths = self.lengths_of(chosen).astype(np.int32)
        fits = chosen_lengths.max(0) <= self.longest
        return np.where(fits, chosen, first), np.where(fits, chosen_lengths, lengths)

    def _blocks(self, seed: ShardSeed) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
        """Return the start and the stop of each block of a shard, and the share of its examples that is used.

        A corpus that is used 2.5 times has each block three times, once with a share of 0.5.
        """
        blocks = []
        for first, end, times in self.corpora:
            starts = np.arange(first, end, BLOCK_EXAMPLES)
            stops = np.minimum(starts + BLOCK_EXAMPLES, end)
            shares = [1.0] * int(times) + ([times % 1] if times % 1 else [])
            blocks += [(starts, stops, np.full(len(starts), share)) for share in shares]
        all_starts, all_stops, all_shares = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        if seed.shards == 1:
            return all_starts, all_stops, all_shares
        cuts = np.linspace(0, len(all_starts), seed.shards + 1).astype(int)
        order = seed.epoch_random().permutation(len(all_starts))
        chosen = np.sort(order[cuts[seed.shard] : cuts[seed.shard + 1]])  # in the order of the files
        return all_starts[chosen], all_stops[chosen], all_shares[chosen]

    def statistics(self) -> LengthStatistics:
        """Read the lengths of all examples. Raises a RegardError if all are too long."""
        kept, shortest, shortest_kept = 0, math.inf, math.inf
        total = weight = 0.0
        for first, end, times in self.corpora:
            for start, stop in chunks(first, end):
                examples = np.arange(start, stop)
                lengths = self.lengths_of(examples)
                larger = lengths.max(0)
                fits = larger <= self.longest
                shortest = min(shortest, larger.min())
                if not fits.any():
                    continue
                kept += int(fits.sum())
                for variant in range(self.variants):
                    chosen = examples[fits] + variant * self.count
                    _, used = self._first_if_too_long(chosen, examples[fits], lengths[:, fits])
                    larger = used.max(0)
                    shortest_kept = min(shortest_kept, int(larger.min()))
                    total, weight = total + float(larger.sum()) * times, weight + len(larger) * times
        if not kept:
            raise RegardError(f"no example has {self.longest} tokens or fewer: the shortest has {shortest}")
        return LengthStatistics(kept, int(shortest_kept), total / weight)


def chunks(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the starts and stops of ranges of at most CHUNK_EXAMPLES.

    >>> list(chunks(5, 7)), list(chunks(5, 5))
    ([(5, 7)], [])
    """
    for start in range(first, end, CHUNK_EXAMPLES):
        yield start, min(start + CHUNK_EXAMPLES, end)
