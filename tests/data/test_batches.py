"""Tokenized corpora and batches: no example is lost or duplicated, and every token is where the model expects it."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.data import batches as data_batches
from regard.data import encoding_parts, language_batches
from regard.data.batch_plans import NO_EXAMPLE, group_by_length, group_flat, group_in_rows, max_examples_per_row
from regard.data.batches import IGNORED_TARGET, Batch, Batches
from regard.data.corpus import Corpus, CorpusError, CorpusProblems
from regard.data.epoch_examples import EpochExamples
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenized_corpus import TokenizedCorpus, open_tokenized_corpus, tokenize_corpora
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.errors import RegardError
from tests.support.batches import (
    DATA,
    END,
    PAD,
    SEP,
    SOURCES,
    TARGETS,
    TASKS,
    TEXT,
    corpus_of,
    same_batch,
)


def test_translation_rows_have_the_expected_layout() -> None:
    (batch,) = data_batches.translation_batches(corpus_of([[5, 6, 7], [8]], [[15], [18, 19]]), END, PAD, 64).epoch(0)
    rows = {tuple(row) for row in torch.cat([batch.source, batch.tokens, batch.labels], 1).tolist()}  # type: ignore[list-item]
    assert rows == {
        (5, 6, 7, END, PAD, 15, PAD, 15, END, IGNORED_TARGET),
        (8, END, PAD, PAD, PAD, 18, 19, 18, 19, END),
    }
    assert batch.source_lengths is not None
    assert sorted(zip(batch.source_lengths.tolist(), batch.lengths.tolist(), strict=True)) == [(2, 3), (4, 2)]  # type: ignore[union-attr]
    assert batch.positions == 8 + 6
    assert batch.real == 6 + 5


def test_decoder_translation_predicts_only_the_target() -> None:
    data = corpus_of([[5, 6]], [[15, 16]])
    (batch,) = data_batches.decoder_translation_batches(data, END, SEP, PAD, 64).epoch(0)
    assert batch.prefix is None
    (batch,) = data_batches.decoder_translation_batches(data, END, SEP, PAD, 64, prefix=True).epoch(0)
    assert batch.tokens.tolist() == [[5, 6, SEP, 15, 16]]
    assert batch.labels.tolist() == [[IGNORED_TARGET, IGNORED_TARGET, 15, 16, END]]
    assert batch.prefix is not None
    assert batch.prefix.tolist() == [3]  # the source and <sep> are not predicted


@pytest.mark.slow
def test_language_blocks_form_one_stream() -> None:
    documents = [[5, 6, 7], [8], [], [9, 10, 11, 12]]
    stream = [END, 5, 6, 7, END, 8, END, END, 9, 10, 11, 12, END]
    seen = Counter()  # type: Counter[tuple[int, ...]]
    for epoch in range(40):
        for batch in language_batches.language_block_batches(corpus_of(documents), END, 4, 8).epoch(epoch):
            for row, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
                if set(labels) == {IGNORED_TARGET}:  # a padding row that fills the last batch
                    continue
                whole = [*row, labels[-1]]
                assert row[1:] == labels[:-1]
                assert any(whole == stream[i : i + 5] for i in range(len(stream)))
                seen[tuple(whole)] += 1
    assert len(seen) == len({tuple(stream[i : i + 5]) for i in range(len(stream) - 4)})  # every offset occurs


def test_long_documents_are_split_and_documents_stay_separate() -> None:
    batches = language_batches.language_document_batches(
        corpus_of([[5, 6, 7, 8, 9], [10]]), END, PAD, row=4, batch_tokens=8
    ).epoch(0)
    pieces = []
    for batch in batches:
        assert batch.tokens.shape == batch.labels.shape
        assert batch.tokens.size(1) == 4
        for tokens, labels, lengths in zip(batch.tokens, batch.labels, batch.lengths, strict=True):  # type: ignore[arg-type]
            start = 0
            for n in lengths.tolist():
                pieces.append((tokens[start : start + n].tolist(), labels[start : start + n].tolist()))
                start += n
            assert (labels[start:] == IGNORED_TARGET).all()
    wanted = [([END, 5, 6, 7], [5, 6, 7, 8]), ([8, 9], [9, END]), ([END, 10], [10, END])]
    assert sorted(piece for piece in pieces if piece[0]) == sorted(wanted)


def sentences(batch: Batch) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Return the source, target and labels of each pair in a batch, padded or packed."""
    found = []
    assert batch.source is not None
    assert batch.source_lengths is not None
    assert batch.lengths is not None
    for row in range(batch.tokens.size(0)):
        s = t = 0
        sentence_lengths = batch.source_lengths[row].reshape(-1).tolist(), batch.lengths[row].reshape(-1).tolist()
        for n, m in zip(*sentence_lengths, strict=True):
            part = batch.source[row, s : s + n], batch.tokens[row, t : t + m], batch.labels[row, t : t + m]
            if m:
                found.append(tuple(tuple(x.tolist()) for x in part))
            s, t = s + n, t + m
    return found  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["translation", "packed flat", "packed rows"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_each_pair_occurs_once_per_epoch(task: str, ranks: int) -> None:
    wanted = Counter(((*s, END), (PAD, *t), (*t, END)) for s, t in zip(SOURCES, TARGETS, strict=True))
    for epoch in (0, 1):
        got = Counter(
            pair
            for rank in range(ranks)
            for batch in TASKS[task](rank=rank, ranks=ranks).epoch(epoch)
            for pair in sentences(batch)
            if not all(label == IGNORED_TARGET for label in pair[2])
        )
        assert got == wanted


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.slow
def test_the_order_depends_only_on_seed_and_epoch(task: str) -> None:
    make = TASKS[task]
    first, second = list(make(seed=3).epoch(2)), list(make(seed=3).epoch(2))
    assert len(first) > 3
    assert all(same_batch(a, b) for a, b in zip(first, second, strict=True))
    for other in (make(seed=4).epoch(2), make(seed=3).epoch(3)):
        assert not all(same_batch(a, b) for a, b in zip(first, other, strict=False))


@pytest.mark.parametrize("task", TASKS)
def test_any_batch_can_be_resumed_from_two_integers(task: str) -> None:
    whole = list(TASKS[task]().epoch(5))
    batches = TASKS[task]()
    rest = [batches.share(items) for items in batches.order(5)[2:]]
    assert len(rest) == len(whole) - 2
    assert all(same_batch(a, b) for a, b in zip(rest, whole[2:], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("ranks", [2, 5])
def test_ranks_split_each_batch_and_take_the_same_number_of_steps(task: str, ranks: int) -> None:
    alone = list(TASKS[task]().epoch(1))
    shares = [list(TASKS[task](rank=rank, ranks=ranks).epoch(1)) for rank in range(ranks)]
    for step, whole in enumerate(alone):
        counted = sum(int((share[step].labels != IGNORED_TARGET).sum()) for share in shares)
        assert counted == int((whole.labels != IGNORED_TARGET).sum())
    assert {len(share) for share in shares} == {len(alone)}


@pytest.mark.parametrize("task", TASKS)
def test_batches_stay_within_the_token_budget(task: str) -> None:
    for batch in TASKS[task]().epoch(0):
        assert batch.tokens.numel() <= 64
        assert batch.source is None or batch.source.numel() <= 64


def test_seed_and_epoch_are_independent() -> None:
    """Seed 3 in epoch 2 differs from seed 2 in epoch 3, and batches are not sorted by length."""
    one, other = (data_batches.translation_batches(DATA, END, PAD, 64, seed=s).order(e) for s, e in ((3, 2), (2, 3)))
    assert np.concatenate(one).tolist() != np.concatenate(other).tolist()
    lengths = [batch.tokens.size(1) for batch in data_batches.translation_batches(DATA, END, PAD, 64).epoch(0)]
    assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))
    blocks = [batch.tokens[0].tolist() for batch in language_batches.language_block_batches(TEXT, END, 16, 16).epoch(0)]
    again = [
        batch.tokens[0].tolist()
        for batch in language_batches.language_block_batches(TEXT, END, 16, 16, seed=1).epoch(0)
    ]
    assert blocks != again


def test_length_buckets_pad_less_than_random_or_one_sided_batches() -> None:
    """On sentences whose sides vary together and independently: little padding, and no tiny batches."""
    chance = np.random.default_rng(0)
    source = chance.gamma(4, 5, 20_000).astype(int) + 2
    lengths = np.stack([source, np.maximum(2, source + chance.normal(0, 4, 20_000)).astype(int)])
    plan = group_by_length(lengths, 4000)
    places = sum(len(batch) * lengths[:, batch].max(1).sum() for batch in plan)
    assert 1 - lengths.sum() / places < 0.05
    assert min(lengths[:, batch].sum(1).max() for batch in plan) > 0.4 * 4000
    assert len(plan) < 1.25 * lengths.sum(1).max() / 4000


def test_all_tensors_of_a_batch_are_moved() -> None:
    batch = next(TASKS["translation"]().epoch(0))
    moved = batch.to("meta")
    assert all(x is None or x.is_meta for x in vars(moved).values())
    assert moved.tokens.shape == batch.tokens.shape


def test_flat_packed_batches_have_no_padding() -> None:
    assert all(batch.real == batch.positions for batch in TASKS["packed flat"]().epoch(0))


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60), st.integers(40, 200))
def test_every_plan_is_a_partition_within_the_budget(pairs: list[tuple[int, int]], budget: int) -> None:
    lengths = np.array(pairs).T
    plan = group_by_length(lengths, budget)
    assert sorted(int(i) for batch in plan for i in batch) == list(range(len(pairs)))
    assert all(len(batch) * lengths[:, batch].max() <= budget for batch in plan)
    flat = group_flat(lengths, budget)
    assert sorted(int(i) for batch in flat for i in batch) == list(range(len(pairs)))
    for batch, following in pairwise(flat):  # every batch is as full as possible
        sums = lengths[:, batch].sum(1)
        assert sums.max() <= budget < (sums + lengths[:, following[0]]).max()
    packed = group_in_rows(lengths, np.random.default_rng(0), 40, 5, budget // 40)
    assert {batch.shape for batch in packed} == {(budget // 40, packed[0].shape[1])}
    rows = [row[row != NO_EXAMPLE] for batch in packed for row in batch]
    assert sorted(int(i) for row in rows for i in row) == list(range(len(pairs)))
    assert all(lengths[:, row].sum(1).max() <= 40 for row in rows)


def test_long_examples_are_dropped_and_an_empty_result_is_an_error() -> None:
    batches = data_batches.translation_batches(DATA, END, PAD, 64, max_length=6)
    assert batches.left_out == sum(max(len(s), len(t)) > 5 for s, t in zip(SOURCES, TARGETS, strict=True)) > 0
    longest = max(max(batch.source.size(1), batch.tokens.size(1)) for batch in batches.epoch(0))  # type: ignore[union-attr]
    assert longest == 6
    with pytest.raises(ValueError, match="no example has 1 tokens or fewer: the shortest has 2"):
        data_batches.translation_batches(DATA, END, PAD, 64, max_length=1)
    with pytest.raises(ValueError, match="batch_tokens=8 is smaller than one row of 16"):
        language_batches.language_block_batches(TEXT, END, 16, 8)
    with pytest.raises(ValueError, match="the text has 4 tokens, too few for one block of 16"):
        language_batches.language_block_batches(corpus_of([[5, 6]]), END, 16, 64)
    with pytest.raises(ValueError, match="no example has 0 tokens or fewer"):
        data_batches.translation_batches(DATA, END, PAD, 64, max_length=0)
    with pytest.raises(ValueError, match=r"needs text with 2 side\(s\), not 1"):
        data_batches.translation_batches(TEXT, END, PAD, 64)
    with pytest.raises(ValueError, match=r"needs text with 1 side\(s\), not 2"):
        language_batches.language_block_batches(DATA, END, 16, 64)
    with pytest.raises(ValueError, match="row=0 is too small"):
        language_batches.language_document_batches(TEXT, END, PAD, 0, 64)
    for rank, ranks in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match=f"rank={rank} must be from 0 to .*ranks={ranks}"):
            data_batches.translation_batches(DATA, END, PAD, 64, rank=rank, ranks=ranks)
    with pytest.raises(ValueError, match="epoch=-1 is too small"):
        data_batches.translation_batches(DATA, END, PAD, 64).order(-1)
    with pytest.raises(ValueError, match="tokenize it with labelled=True"):
        data_batches.classification_batches(TEXT, END, PAD, 64)


# Batches compared with a reference that handles one sentence at a time, and their shapes.


Sentences = list[tuple[list[int], ...]]


def concatenate_rows(rows: list[Sentences], part: int, fill: int, width: int | None = None) -> list[list[int]]:
    """Concatenate one part of every sentence in each row, then pad with `fill`."""
    joined = [[i for sentence in row for i in sentence[part]] for row in rows]
    width = max(map(len, joined)) if width is None else width
    return [row + [fill] * (width - len(row)) for row in joined]


def sentence_lengths(rows: list[Sentences], part: int, most: int) -> list[list[int]]:
    """Return the length of that part for each sentence of each row, padded with 0."""
    return [[len(sentence[part]) for sentence in row] + [0] * (most - len(row)) for row in rows]


def check_against_reference(batches: Batches, read: Callable[[int], tuple[list[int], ...]], row: int | None) -> None:
    """Compare every tensor of every batch; `read` returns an example's tokens, labels, and source or prefix."""
    for items, batch in zip(batches.order(1), batches.epoch(1), strict=True):
        packed = batch.lengths is not None and batch.lengths.dim() == 2
        places = items.tolist() if items.ndim == 2 else [items.tolist()] if packed else [[i] for i in items.tolist()]
        rows = [[read(i) for i in each if i != NO_EXAMPLE] for each in places]
        most = len(places[0])
        assert batch.tokens.tolist() == concatenate_rows(rows, 0, PAD, row)
        assert batch.labels.tolist() == concatenate_rows(rows, 1, IGNORED_TARGET, row)
        assert batch.lengths is not None
        assert batch.lengths.view(len(rows), -1).tolist() == sentence_lengths(rows, 0, most)
        if batch.source is not None and batch.source_lengths is not None:
            assert batch.source.tolist() == concatenate_rows(rows, 2, PAD, row)
            assert batch.source_lengths.view(len(rows), -1).tolist() == sentence_lengths(rows, 2, most)
        if batch.prefix is not None:
            assert batch.prefix.view(len(rows), -1).tolist() == sentence_lengths(rows, 2, most)
            assert batch.prefix.shape == batch.lengths.shape
        assert batch.targets == sum(
            label != IGNORED_TARGET for each in rows for sentence in each for label in sentence[1]
        )


SENTENCE = st.lists(st.integers(2, 90), max_size=9)


@pytest.mark.slow
@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=30), st.sampled_from([None, 19, 24]))
def test_batches_equal_a_loop_over_sentences(pairs: list[tuple[list[int], list[int]]], row: int | None) -> None:
    data = corpus_of([s for s, _ in pairs], [t for _, t in pairs])

    def both(i: int) -> tuple[list[int], ...]:
        source, target = pairs[i]
        return [PAD, *target], [*target, END], [*source, END]

    def one(i: int) -> tuple[list[int], ...]:
        source, target = pairs[i]
        return [*source, SEP, *target], [IGNORED_TARGET] * len(source) + [*target, END], [*source, SEP]

    check_against_reference(data_batches.translation_batches(data, END, PAD, 48), both, None)
    check_against_reference(data_batches.packed_translation_batches(data, END, PAD, 48, row), both, row)
    check_against_reference(data_batches.decoder_translation_batches(data, END, SEP, PAD, 48, prefix=True), one, None)
    check_against_reference(
        data_batches.packed_decoder_translation_batches(data, END, SEP, PAD, 48, row, prefix=True), one, row
    )


@pytest.mark.slow
@pytest.mark.parametrize("task", ["packed rows", "packed decoder", "documents", "blocks"])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_packed_rows_have_one_shape_in_every_epoch_and_on_every_rank(task: str, ranks: int) -> None:
    shares = [TASKS[task](rank=rank, ranks=ranks) for rank in range(ranks)]
    found = [batch for share in shares for epoch in range(8) for batch in share.epoch(epoch)]
    shapes = {tuple(None if x is None else tuple(x.shape) for x in vars(batch).values()) for batch in found}
    assert len(shapes) == 1
    width = found[0].tokens.size(1)
    assert found[0].tokens.size(0) == -(-(64 // width) // ranks)
    assert any((batch.labels == IGNORED_TARGET).all(1).any() for batch in found)  # some rows were padding rows


def test_an_empty_row_does_not_affect_the_model() -> None:
    """An empty row changes no other row, and its outputs and all gradients are finite."""
    batches = data_batches.packed_translation_batches(
        corpus_of([[5, 6, 7], [8, 9]], [[15], [18, 19]]), END, PAD, 32, row=8
    )
    (batch,) = batches.epoch(0)
    assert batch.lengths is not None
    assert (batch.lengths.sum(1) == 0).sum() == 3
    model = regard.build(regard.preset("tiny", vocab_size=100, dropout=0.0))
    logits = model(batch.source, batch.tokens, batch.source_lengths, batch.lengths)
    assert logits.isfinite().all()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.slow
@given(st.lists(SENTENCE, min_size=1, max_size=12), st.integers(1, 20), st.integers(1, 3))
def test_covering_blocks_predict_each_token_once(documents: list[list[int]], length: int, ranks: int) -> None:
    stream = [END, *(i for document in documents for i in [*document, END])]
    tasks = [
        language_batches.language_block_batches(
            corpus_of(documents), END, length, 3 * length, rank=rank, ranks=ranks, covering=True
        )
        for rank in range(ranks)
    ]
    steps = zip(*(task.epoch(4) for task in tasks), strict=True)
    rows = [row for step in steps for turn in rows_in_global_order(list(step)) for row in turn]
    shape = -(-3 // ranks), length
    assert {batch.tokens.shape for task in tasks for batch in task.epoch(0)} == {shape}
    assert [label for _, labels in rows for label in labels if label != IGNORED_TARGET] == stream[1:]
    assert [
        i for tokens, labels in rows for i, label in zip(tokens, labels, strict=True) if label != IGNORED_TARGET
    ] == stream[:-1]


def rows_in_global_order(shares: list[Batch]) -> list[list[tuple[list[int], list[int]]]]:
    """Return the tokens and labels of a batch's rows in their order before they were divided among ranks."""
    rows = [list(zip(share.tokens.tolist(), share.labels.tolist(), strict=True)) for share in shares]
    return [list(turn) for turn in zip(*rows, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("row", [128, 256])
def test_rows_are_full_and_shuffled_every_epoch(row: int) -> None:
    chance = np.random.default_rng(0)
    source = chance.gamma(2.2, 7, 40_000).astype(int) + 2  # 17 on average
    target = np.maximum(2, np.rint(source * chance.normal(1, 0.15, 40_000))).astype(int)
    lengths = np.stack([source, target]).clip(max=120)
    examples = EpochExamples(40_000, lambda numbers: lengths[:, numbers], row)
    statistics = examples.statistics()
    shape = (row, max_examples_per_row(row, statistics.shortest, statistics.mean), 32_000 // row)
    batches = Batches(examples.plan(lambda lengths, random: group_in_rows(lengths, random, *shape)), as_batch)
    first, second = (np.concatenate(batches.order(epoch)) for epoch in (0, 1))  # [rows, N] each
    filled = np.where(first == NO_EXAMPLE, 0, lengths[:, first]).sum(2)
    assert (filled[:, filled.max(0) > 0].mean(1) > 0.96 * row).all()
    again = {tuple(sorted(pair)) for each in second for pair in pairwise(each[each != NO_EXAMPLE].tolist())}
    neighbours = [tuple(sorted(pair)) for each in first for pair in pairwise(each[each != NO_EXAMPLE].tolist())]
    assert sum(pair in again for pair in neighbours) < 0.01 * len(neighbours)


def as_batch(rows: Any) -> Batch:
    return Batch(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(rows)[None])


def test_pinning_memory_changes_no_value() -> None:
    batch = next(TASKS["packed rows"]().epoch(0))
    assert batch.pinned_for(torch.device("cpu")) is batch
    if torch.cuda.is_available():
        pinned = batch.pinned_for(torch.device("cuda"))
        assert pinned.tokens.is_pinned()
        assert same_batch(batch, pinned)


# Preparation: from text files to memory-mapped integers.


@pytest.fixture
def files(tmp_path: Path) -> tuple[Corpus, Tokenizer]:
    french, english = ["Un chat.", "", "Deux chats dorment."], ["A cat.", "", "Two cats sleep."]
    for name, lines in (("t.fr", french), ("t.en", english)):
        (tmp_path / name).write_text("\n".join(line for line in lines if line) + "\n")
    return Corpus((str(tmp_path / "t.fr"), str(tmp_path / "t.en"))), train_tokenizer([*french, *english], 320)


def text_of(data: TokenizedCorpus, tokenizer: Tokenizer) -> list[tuple[str, ...]]:
    sides = range(len(data.tokens))
    return [tuple(tokenizer.decode(data.sequence(side, i).tolist()) for side in sides) for i in range(len(data))]


def test_the_tokenized_corpus_decodes_to_the_text(files: tuple[Corpus, Tokenizer], tmp_path: Path) -> None:
    corpus, tokenizer = files
    data = tokenize_corpora([corpus, corpus], tokenizer, tmp_path / "cache", CorpusProblems())
    assert text_of(data, tokenizer) == [("Un chat.", "A cat."), ("Deux chats dorment.", "Two cats sleep.")] * 2
    assert [t.dtype for t in data.tokens] == [np.uint16] * 2


def test_a_second_run_opens_the_stored_corpus(
    files: tuple[Corpus, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, tokenizer = files
    cache = tmp_path / "cache"
    tokenize_corpora([corpus], tokenizer, cache, CorpusProblems())
    (folder,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(HuggingFaceTokenizer, "encode_batch", None)  # must not be called again
        tokenize_corpora([corpus], tokenizer, cache, CorpusProblems())
    Path(corpus.files[0]).write_text("Un chien.\nDeux chiens.\n")  # different content, different name
    tokenize_corpora([corpus], tokenizer, cache, CorpusProblems())
    tokenize_corpora([corpus], train_tokenizer(["x"], 320), cache, CorpusProblems())
    assert len(list(cache.iterdir())) == 3
    assert folder.stat().st_mode & 0o755 == 0o755


def test_an_interrupted_preparation_leaves_no_files(files: tuple[Corpus, Tokenizer], tmp_path: Path) -> None:
    corpus, tokenizer = files
    Path(corpus.files[0]).write_text("Un chat.\n\nDeux.\n")
    Path(corpus.files[1]).write_text("A cat.\n\nTwo.\n")
    with pytest.raises(CorpusError, match=r"t\.fr:2: empty side"):
        tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems())
    assert list((tmp_path / "cache").iterdir()) == []
    data = tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems(skip=True))
    assert len(data) == 2
    assert data.problems == {"empty side": 1}


def test_a_killed_preparation_leaves_no_folder_that_looks_complete(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from regard.atomic_files import new_folder
with new_folder(Path(sys.argv[1]) / "done") as folder:
    (folder / "half").write_text("half")
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert not (tmp_path / "done").exists()


def test_damaged_files_are_detected(files: tuple[Corpus, Tokenizer], tmp_path: Path) -> None:
    corpus, tokenizer = files
    tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems())
    (folder,) = (tmp_path / "cache").iterdir()
    (folder / "1.tokens").write_bytes((folder / "1.tokens").read_bytes()[:-2])
    with pytest.raises(ValueError, match=r"is damaged \(sizes do not match\): delete it"):
        open_tokenized_corpus(folder)
    (folder / "1.tokens").unlink()
    with pytest.raises(ValueError, match=r"is damaged \(.*1\.tokens.*\): delete it"):
        tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems())
    (folder / "prepared.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems())


def test_a_file_that_changes_while_it_is_read_is_not_stored(
    files: tuple[Corpus, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, tokenizer = files
    encode = HuggingFaceTokenizer.encode_batch

    def meddle(self: HuggingFaceTokenizer, texts: list[str]) -> Any:
        Path(corpus.files[0]).write_text("Tout autre chose.\nEt encore.\n")
        return encode(self, texts)

    monkeypatch.setattr(HuggingFaceTokenizer, "encode_batch", meddle)
    with pytest.raises(CorpusError, match="changed while it was read: start again"):
        tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems())
    assert list((tmp_path / "cache").iterdir()) == []


def test_corpora_of_many_chunks_and_wide_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, documents and offsets continue from chunk to chunk; more than 65,536 ids need four bytes."""
    monkeypatch.setattr(encoding_parts, "ROWS_PER_CHUNK", 2)
    monkeypatch.setattr(HuggingFaceTokenizer, "size", 2**16 + 1)
    tokenizer = train_tokenizer(["a b c d e"], 320)
    (tmp_path / "t").write_text("a b\nc\n\nd\ne\n\na\n")
    corpus = Corpus((str(tmp_path / "t"),))
    data = tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems(), "blank-line")
    assert text_of(data, tokenizer) == [("a b\nc\n",), ("d\ne\n",), ("a\n",)]
    assert data.tokens[0].dtype == np.uint32
    lines = tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems(), "line")
    assert text_of(lines, tokenizer) == [("a b",), ("c",), ("d",), ("e",), ("a",)]


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_a_document_has_the_same_ids_at_once_and_line_by_line(tmp_path: Path, kind: Any) -> None:
    text = "def f():\n    return 1\n\n\n  x\n"
    tokenizer = train_tokenizer([text] * 5, 320, kind)
    (tmp_path / "t").write_text(text)
    data = tokenize_corpora([Corpus((str(tmp_path / "t"),))], tokenizer, tmp_path / "cache", CorpusProblems(), "file")
    assert data.sequence(0, 0).tolist() == tokenizer.encode(text)


def test_problems_are_reported_per_corpus_and_again_on_a_second_run(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"un\ncaf\xe9\n")
    (tmp_path / "good").write_text("deux\n")
    tokenizer = train_tokenizer(["un"], 320)
    for _ in range(2):
        problems = CorpusProblems(skip=True)
        bad = tokenize_corpora([Corpus((str(tmp_path / "bad"),))], tokenizer, tmp_path / "cache", problems)
        good = tokenize_corpora([Corpus((str(tmp_path / "good"),))], tokenizer, tmp_path / "cache", problems)
        assert (bad.problems, good.problems) == ({"invalid UTF-8": 1}, {})
        assert problems.counts == {"invalid UTF-8": 1}
        assert problems.examples == {"invalid UTF-8": [f"{tmp_path}/bad:2"]}


def test_reading_options_are_part_of_the_stored_name(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\n")
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"hello\n"))
    (tmp_path / "t.txt").write_bytes((tmp_path / "t.gz").read_bytes())
    tokenizer, cache = train_tokenizer(["a b hello"], 320), tmp_path / "cache"
    for columns in ((1, 2), (2, 1)):
        tokenize_corpora([Corpus((str(tmp_path / "t.tsv"),), columns)], tokenizer, cache, CorpusProblems())
    tokenize_corpora([Corpus((str(tmp_path / "t.gz"),))], tokenizer, cache, CorpusProblems())
    for documents in ("line", "file"):
        tokenize_corpora([Corpus((str(tmp_path / "t.tsv"),))], tokenizer, cache, CorpusProblems(), documents)
    assert len(list(cache.iterdir())) == 5
    with pytest.raises(RegardError, match=r"t\.txt is compressed with gzip: rename it"):
        tokenize_corpora([Corpus((str(tmp_path / "t.txt"),))], tokenizer, cache, CorpusProblems())


@pytest.mark.parametrize(
    ("documents", "wanted"),
    [
        ("line", [("a b",), ("c",), ("d",)]),
        ("blank-line", [("a b\nc\n",), ("d\n",)]),
        ("file", [("a b\nc\n\nd\n",)]),
    ],
)
def test_documents_are_separated_by_blank_lines(tmp_path: Path, documents: Any, wanted: list[tuple[str]]) -> None:
    (tmp_path / "t").write_text("a b\nc\n\nd\n")
    tokenizer = train_tokenizer(["a b c d"], 320)
    data = tokenize_corpora(
        [Corpus((str(tmp_path / "t"),))], tokenizer, tmp_path / "cache", CorpusProblems(), documents
    )
    assert text_of(data, tokenizer) == wanted


def test_labels_become_class_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("good\tUn chat.\nbad\tUn chien.\ngood\tOui.\n")
    corpus, tokenizer = Corpus((str(tmp_path / "t.tsv"),), columns=(2, 1)), train_tokenizer(["Un"], 320)
    data = tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems(), labelled=True)
    assert data.classes == ("bad", "good")
    assert data.labels is not None
    assert data.labels.tolist() == [1, 0, 1]
    (batch,) = data_batches.classification_batches(data, tokenizer.end, tokenizer.pad, 4096).epoch(0)
    assert sorted(batch.labels.tolist()) == [0, 1, 1]
    with pytest.raises(CorpusError, match=r"t\.tsv:2: unknown class \('bad': expected one of good\)"):
        tokenize_corpora([corpus], tokenizer, tmp_path / "cache", CorpusProblems(), labelled=True, classes=("good",))
    known = tokenize_corpora(
        [corpus], tokenizer, tmp_path / "cache", CorpusProblems(skip=True), labelled=True, classes=("x", "good")
    )
    assert known.problems == {"unknown class": 1}
    assert known.labels is not None
    assert known.labels.tolist() == [1, 1]
    with pytest.raises(CorpusError, match="duplicate class"):
        tokenize_corpora(
            [corpus], tokenizer, tmp_path / "cache", CorpusProblems(), labelled=True, classes=("good", "good")
        )


def test_corpora_that_cannot_be_prepared_are_rejected(files: tuple[Corpus, Tokenizer], tmp_path: Path) -> None:
    corpus, tokenizer = files
    plain = Corpus(corpus.files[:1])
    with pytest.raises(CorpusError, match="no corpus given"):
        tokenize_corpora([], tokenizer, tmp_path / "cache", CorpusProblems())
    with pytest.raises(CorpusError, match=r"same number of sides: these have \[1, 2\]"):
        tokenize_corpora([corpus, plain], tokenizer, tmp_path / "cache", CorpusProblems())
    with pytest.raises(CorpusError, match="needs two fields, a text and its class: these corpora have 1"):
        tokenize_corpora([plain], tokenizer, tmp_path / "cache", CorpusProblems(), labelled=True)
    with pytest.raises(CorpusError, match="nowhere: no such file"):
        tokenize_corpora([Corpus(("nowhere",))], tokenizer, tmp_path / "cache", CorpusProblems())
    (tmp_path / "empty").write_text("")
    with pytest.raises(CorpusError, match="no row could be read: the file is empty"):
        tokenize_corpora([Corpus((str(tmp_path / "empty"),))], tokenizer, tmp_path / "cache", CorpusProblems())
    assert json.dumps([path.name for path in (tmp_path / "cache").iterdir()]) == "[]"
