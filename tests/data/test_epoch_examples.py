"""Epochs in shards: every example is used as often as it should be, and every shard is a sample of all corpora."""

import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from regard.data import epoch_examples as examples_module
from regard.data.batch_plans import NO_EXAMPLE, group_by_length
from regard.data.batches import Batch, Batches, translation_batches
from regard.data.epoch_examples import EpochExamples, ShardSeed
from regard.data.tokenized_corpus import TokenizedCorpus
from regard.errors import RegardError
from regard.training.prefetch import BatchPrefetcher
from tests.support.batches import DATA, END, PAD, TASKS, corpus_of, same_batch

CPU = torch.device("cpu")


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples_module, "MAX_SHARD_EXAMPLES", 48)
    monkeypatch.setattr(examples_module, "BLOCK_EXAMPLES", 8)
    monkeypatch.setattr(examples_module, "CHUNK_EXAMPLES", 37)


def used(batches: Batches, epoch: int, shard: int) -> list[int]:
    """Return the examples of a shard."""
    return [int(i) for items in batches.order(epoch, shard) for i in items.ravel() if i != NO_EXAMPLE]


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("task", [name for name in TASKS if "masked" not in name])
def test_an_epoch_has_every_example_once(task: str) -> None:
    batches = TASKS[task]()
    one_shard = {"blocks": 1}.get(task)
    if one_shard is None:
        assert batches.shards >= 5
        shards = [used(batches, 3, shard) for shard in range(batches.shards)]
        assert sorted(i for shard in shards for i in shard) == list(range(len(set().union(*shards))))
        assert max(map(len, shards)) <= 48 + 8
        assert min(map(len, shards)) >= 24
    again = TASKS[task]()
    assert all(same_batch(a, b) for a, b in zip(batches.epoch(2), again.epoch(2), strict=True))


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("task", ["masked", "packed masked"])
def test_shards_of_masked_text_are_masked(task: str) -> None:
    batches = TASKS[task]()
    rows = Counter(int(i) % 200 for shard in range(batches.shards) for i in used(batches, 0, shard))
    assert rows == dict.fromkeys(range(200), 1)


@pytest.mark.usefixtures("small_shards")
def test_language_blocks_in_shards_are_the_blocks_of_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    sharded = TASKS["blocks"]()
    starts = [sorted(used(sharded, 1, shard)) for shard in range(sharded.shards)]
    together = sorted(start for shard in starts for start in shard)
    monkeypatch.setattr(examples_module, "MAX_SHARD_EXAMPLES", 10**6)
    assert sharded.shards > 1
    assert {b - a for a, b in pairwise(together)} == {16}
    assert together == sorted(used(TASKS["blocks"](), 1, 0))


@pytest.mark.usefixtures("small_shards")
def test_every_shard_mixes_all_corpora_in_another_way_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half of the examples is one corpus; in the order of the files a shard would have only one."""
    monkeypatch.setattr(examples_module, "BLOCK_EXAMPLES", 2)
    batches = TASKS["translation"]()
    shares = [
        np.mean([i < 100 for i in used(batches, epoch, shard)])
        for epoch in range(20)
        for shard in range(batches.shards)
    ]
    assert all(0 < share < 1 for share in shares)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.05)
    together = [frozenset(used(batches, epoch, 0)) for epoch in range(20)]
    assert len(set(together)) == 20


@pytest.mark.usefixtures("small_shards")
def test_examples_are_shuffled_within_a_shard() -> None:
    examples = EpochExamples(200, lambda numbers: np.ones((1, len(numbers)), np.int64), 5)
    drawn, _ = examples.draw(ShardSeed(0, 0, 1, 4), np.random.default_rng(0))
    assert sum(b == a + 1 for a, b in pairwise(drawn.tolist())) < 10


@pytest.mark.usefixtures("small_shards")
def test_weights_hold_over_all_shards() -> None:
    data = replace(DATA, corpus_ends=(20, 20, 200), times=(4.5, 7.0, 1.0))  # the second corpus is empty
    batches = translation_batches(data, END, PAD, 64)
    assert batches.shards == 6  # 270 examples
    epochs = [Counter(i for shard in range(batches.shards) for i in used(batches, epoch, shard)) for epoch in range(30)]
    assert all(epoch[i] == 1 for epoch in epochs for i in range(20, 200))
    assert all(epoch[i] in (4, 5) for epoch in epochs for i in range(20))
    assert sum(epoch[i] for epoch in epochs for i in range(20)) / 600 == pytest.approx(4.5, abs=0.1)


@pytest.mark.usefixtures("small_shards")
def test_a_share_of_a_shard_may_be_empty() -> None:
    data = replace(corpus_of([[5]] * 3, [[6]] * 3), corpus_ends=(3,), times=(0.01,))
    batches = translation_batches(data, END, PAD, 64)
    assert {len(batches.order(epoch)) for epoch in range(300)} == {0, 1}
    with BatchPrefetcher(batches, 0, 0, CPU) as feed:
        assert next(iter(feed)).epoch > 0


@pytest.mark.usefixtures("small_shards")
def test_examples_that_are_too_long_are_in_no_shard() -> None:
    batches = translation_batches(DATA, END, PAD, 64, max_length=6)
    lengths = np.maximum(DATA.lengths(0), DATA.lengths(1)) + 1
    drawn = sorted(i for shard in range(batches.shards) for i in used(batches, 0, shard))
    assert drawn == np.flatnonzero(lengths <= 6).tolist()
    assert batches.left_out == 200 - len(drawn) > 0
    with pytest.raises(RegardError, match="no example has 1 tokens or fewer: the shortest has 2"):
        translation_batches(DATA, END, PAD, 64, max_length=1)


def test_statistics_are_those_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with one array of all lengths: corpora are repeated, and variants that are too long are replaced."""
    monkeypatch.setattr(examples_module, "CHUNK_EXAMPLES", 7)
    lengths = np.random.default_rng(0).integers(1, 9, (2, 60))  # 20 examples in three variants
    examples = EpochExamples(20, lambda numbers: lengths[:, numbers], 6, 3, (5, 20), (3.0, 0.5))
    larger = lengths.max(0).reshape(3, 20)
    fits = larger[0] <= 6
    replaced = np.where(larger <= 6, larger, larger[0])
    weights = np.where(np.arange(20) < 5, 3.0, 0.5)
    statistics = examples.statistics()
    assert statistics.kept == fits.sum()
    assert statistics.shortest == replaced[:, fits].min()
    mean = (replaced[:, fits] * weights[fits]).sum() / (3 * weights[fits].sum())
    assert statistics.mean == pytest.approx(mean, rel=1e-12)


@pytest.mark.usefixtures("small_shards")
def test_a_run_resumes_at_any_batch_of_any_shard() -> None:
    batches = TASKS["translation"]()
    wanted = list(batches.epoch(0)) + list(batches.epoch(1))[:3]
    with BatchPrefetcher(batches, 0, 0, CPU) as feed:
        whole = [item for item, _ in zip(feed, wanted, strict=False)]
    assert all(same_batch(item.batch, batch) for item, batch in zip(whole, wanted, strict=True))
    assert {item.shard for item in whole} == set(range(batches.shards))
    assert [item.epochs for item in whole] == sorted(item.epochs for item in whole)
    assert whole[len(wanted) - 4].epochs == 1
    for number, item in enumerate(whole[:-1]):
        with BatchPrefetcher(TASKS["translation"](), item.epoch, item.next_batch, CPU, item.shard) as feed:
            following = next(iter(feed))
        assert same_batch(following.batch, wanted[number + 1])
        assert (following.epoch, following.shard) == (whole[number + 1].epoch, whole[number + 1].shard)


def test_errors_of_a_plan_that_is_made_ahead_are_raised() -> None:
    def plan(seed: ShardSeed, random: np.random.Generator) -> list[Any]:
        if seed.epoch == 1:
            raise OSError("the disk has gone")
        return [random.integers(3, size=1)]

    batches = Batches(plan, lambda rows: Batch(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(rows)[None]))
    with BatchPrefetcher(batches, 0, 0, CPU) as feed:
        found = iter(feed)
        assert next(found).next_batch == 1
        with pytest.raises(OSError, match="the disk has gone"):
            next(found)


@pytest.mark.slow
def test_memory_depends_on_the_shard_and_not_on_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples_module, "MAX_SHARD_EXAMPLES", 20_000)
    monkeypatch.setattr(examples_module, "CHUNK_EXAMPLES", 20_000)
    peaks = [peak_memory(count) for count in (20_000, 400_000)]
    assert peaks[1] < 1.2 * peaks[0], peaks
    assert peaks[0] > 20_000 * 24  # examples, order and lengths: otherwise nothing is measured


def peak_memory(count: int) -> int:
    """Return the peak memory for preparing batches and planning a shard, without the text."""
    lengths = np.random.default_rng(0).integers(3, 20, count)
    offsets = np.cumsum([0, *lengths])
    data = TokenizedCorpus((np.zeros(int(offsets[-1]), np.uint16),) * 2, (offsets, offsets), None, (), {})
    tracemalloc.start()
    try:
        batches = translation_batches(data, END, PAD, 4000)
        assert sum(map(len, batches.order(0, batches.shards - 1))) == pytest.approx(20_000, rel=0.05)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_grouping_is_by_index() -> None:
    groups = group_by_length(np.array([[3, 9, 3, 9]]), 18)
    assert sorted(sorted(group.tolist()) for group in groups) == [[0, 2], [1, 3]]
