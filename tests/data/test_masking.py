"""BERT's masking: how many tokens are chosen, what replaces them, and that it depends on seed, epoch and text only."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import regard
from regard.data.batches import IGNORED_TARGET, Batches, masked_batches, packed_masked_batches
from regard.data.masking import Masking, _mix
from regard.data.ragged import Ragged
from regard.data.tokenizer_training import train_tokenizer
from tests.support.batches import END, MASK, MASKING, PAD, TARGETS, TEXT, corpus_of


def mask_texts(
    texts: list[list[int]], number: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the ids of the texts, the ids that are read, and which were chosen."""
    ids = np.array([id_ for text in texts for id_ in text], np.int64)
    rows = Ragged(ids, np.array([len(text) for text in texts], np.int64))
    return ids, *MASKING.apply(rows, np.arange(len(ids)), np.full(len(ids), number))


@given(st.lists(st.lists(st.integers(0, 99), max_size=50), max_size=8), st.integers(0, 2**31 - 1))
def test_each_text_has_15_per_cent_of_its_text_tokens_chosen(texts: list[list[int]], number: int) -> None:
    ids, read, is_chosen = mask_texts(texts, number)
    start = 0
    for text in texts:
        span, start = slice(start, start + len(text)), start + len(text)
        eligible = sum(2 <= id_ < 90 for id_ in text)  # all other ids are special
        rounded = math.floor(0.15 * eligible + 0.5)
        assert is_chosen[span].sum() == (0 if eligible == 0 else max(1, rounded))
    assert all(2 <= id_ < 90 for id_ in ids[is_chosen])
    assert (read[~is_chosen] == ids[~is_chosen]).all()
    assert all(id_ == MASK or 2 <= id_ < 90 for id_ in read[is_chosen])


@pytest.mark.slow
def test_chosen_tokens_are_masked_replaced_and_kept_in_bert_s_shares() -> None:
    """100,000 tokens in texts of 20. Each share is within five standard deviations of what BERT's paper says."""
    texts = np.random.default_rng(0).integers(2, 90, (5_000, 20)).tolist()
    ids, read, is_chosen = mask_texts(texts)
    count = int(is_chosen.sum())
    assert count == 5_000 * 3
    is_masked, is_kept = read == MASK, is_chosen & (read == ids)
    # A random token is the original one in 1 of 88 cases.
    for share, chosen in ((0.8, is_masked.sum()), (0.1 + 0.1 / 88, is_kept.sum())):
        assert abs(chosen - share * count) < 5 * math.sqrt(count * share * (1 - share))
    replacements = Counter(read[is_chosen & ~is_masked & ~is_kept].tolist())
    assert len(replacements) == 88
    expected = sum(replacements.values()) / 88
    chi_squared = sum((seen - expected) ** 2 / expected for seen in replacements.values())
    assert chi_squared < 87 + 5 * math.sqrt(2 * 87)
    by_position = is_chosen.reshape(5_000, 20).sum(0)  # 750 expected of each
    assert ((by_position - 750) ** 2 / 750).sum() < 19 + 5 * math.sqrt(2 * 19)


def test_maskings_are_independent() -> None:
    texts = [[5] * 20 for _ in range(1_000)]
    first, second = (mask_texts(texts, number)[2] for number in (0, 1))
    both = int((first & second).sum())  # 15% of 15% of 20,000 tokens: 450
    assert abs(both - 450) < 5 * math.sqrt(450)


def test_the_hash_is_splitmix64() -> None:
    """Published outputs of SplitMix64 for the seed 1234567, whose state grows by the golden ratio."""
    golden, state = 0x9E3779B97F4A7C15, 1234567
    states = np.array([(state + i * golden) % 2**64 for i in range(3)], np.uint64)
    assert _mix(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


Rows = set[tuple[tuple[int, ...], tuple[int, ...]]]


def rows_of(batches: Batches, epoch: int) -> Rows:
    """Return every text of an epoch as it is read, with its labels, whichever row it is in."""
    rows: Rows = set()
    for batch in batches.epoch(epoch):
        assert batch.lengths is not None
        lengths = batch.lengths.reshape(len(batch.tokens), -1).tolist()
        for tokens, labels, counts in zip(batch.tokens.tolist(), batch.labels.tolist(), lengths, strict=True):
            start = 0
            for count in counts:
                if count:
                    rows.add((tuple(tokens[start : start + count]), tuple(labels[start : start + count])))
                start += count
    return rows


def test_the_masking_depends_on_seed_and_epoch_only() -> None:
    """A text is masked in the same way in large and small batches, packed rows, and on any rank."""
    expected = rows_of(masked_batches(TEXT, END, PAD, MASKING, 64, seed=3), 2)
    assert rows_of(masked_batches(TEXT, END, PAD, MASKING, 500, seed=3), 2) == expected
    assert rows_of(packed_masked_batches(TEXT, END, PAD, MASKING, 64, row=32, seed=3), 2) == expected
    shares = [rows_of(masked_batches(TEXT, END, PAD, MASKING, 64, seed=3, rank=rank, ranks=3), 2) for rank in range(3)]
    assert set().union(*shares) >= expected
    for seed, epoch in ((3, 1), (4, 2)):
        assert len(rows_of(masked_batches(TEXT, END, PAD, MASKING, 64, seed=seed), epoch) & expected) < 50


def test_the_labels_restore_the_text_and_its_end_is_read() -> None:
    texts = {tuple(text) for text in TARGETS}
    for tokens, labels in rows_of(masked_batches(TEXT, END, PAD, MASKING, 64), 0):
        assert (tokens[-1], labels[-1]) == (END, IGNORED_TARGET)
        restored = [token if label == IGNORED_TARGET else label for token, label in zip(tokens, labels, strict=True)]
        assert tuple(restored[:-1]) in texts


def test_a_text_of_special_tokens_only_has_nothing_to_predict() -> None:
    (batch,) = masked_batches(corpus_of([[1, 1], [5, 1]]), END, PAD, MASKING, 64).epoch(0)
    assert batch.targets == 1
    with pytest.raises(regard.RegardError, match="nothing to mask"):
        Masking(MASK, [])


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_a_trained_tokenizer_has_a_mask_on_request(kind: str) -> None:
    texts = ["Le chat dort sur la table.", "Marie mange une pomme rouge."] * 20
    plain, tokenizer = (train_tokenizer(texts, 512, kind, mask=mask) for mask in (False, True))  # type: ignore[arg-type]
    assert plain.mask is None
    assert tokenizer.mask == 2
    assert tokenizer.pad == tokenizer.size - 1
    assert not {0, 1, 2, tokenizer.pad} & set(tokenizer.text_ids)
    assert all(not tokenizer.token(id_).startswith("<unused") for id_ in tokenizer.text_ids)
    words = tokenizer.encode("Le chat dort.")
    assert set(words) <= set(tokenizer.text_ids)
    # A mask stands for one token: in BPE a word with the space before it.
    written, missing = ("Le chat <mask>.", " dort") if kind == "bpe" else ("Le cha<mask> dort.", "t")
    masked, (missing_id,) = tokenizer.encode(written, parse_special=True), tokenizer.encode(missing)
    assert [missing_id if id_ == tokenizer.mask else id_ for id_ in masked] == words
    assert tokenizer.mask not in tokenizer.encode(written)  # in other texts, "<mask>" is text
