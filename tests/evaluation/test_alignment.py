"""Cross-attention compared with gold alignments: error rates by hand and by loops, pieces per word."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.config import preset
from regard.data.tokenizer_training import TokenizerKind, train_tokenizer
from regard.evaluation.alignment import (
    NO_WORD,
    AttentionPair,
    Links,
    alignment_score,
    alignment_scores,
    read_links,
    source_token_words,
    token_words,
    word_weights,
    words_of_rows,
)
from regard.model.transformer import EncoderDecoder
from regard.model.watch import watch
from regard.petit import pairs, spans, words

PAIRS = list(pairs(60, seed=1))
TEXTS = [text for pair in PAIRS for text in (pair.french, pair.english)]
KINDS: list[TokenizerKind] = ["bpe", "characters"]
TRAINED = {kind: train_tokenizer(TEXTS, 500, kind) for kind in KINDS}


def links(text: str) -> Links:
    return frozenset((int(i), int(j)) for i, j in (link.split("-") for link in text.split()))


def error_rate_by_loops(
    weights: np.ndarray, target: list[int], source: list[int], sure: Links, possible: Links
) -> float:
    """Compute the error rate of one head with loops over words and pieces."""
    found = set()
    for word in sorted(set(target) - {NO_WORD}):
        rows = [t for t, each in enumerate(target) if each == word]
        most, place = -1.0, -1
        for other in range(max(source) + 1):
            columns = [s for s, each in enumerate(source) if each == other]
            weight = sum(sum(float(weights[t, s]) for s in columns) for t in rows) / len(rows)
            if weight > most:
                most, place = weight, other
        found.add((place, word))
    return 1 - (len(found & sure) + len(found & (sure | possible))) / (len(found) + len(sure))


def test_the_error_rate_matches_a_hand_computation() -> None:
    """Three links, two of them sure and one possible; four sure ones in all: 1 - (2 + 3) / (3 + 4)."""
    score = alignment_score(links("0-0 1-1 2-3"), links("0-0 1-1 2-2 3-3"), possible=links("2-3"))
    assert score.error_rate == pytest.approx(2 / 7)
    assert (score.precision, score.recall) == (1.0, 0.5)
    perfect = alignment_score(links("0-0 2-1"), links("0-0 2-1"))
    assert (perfect.error_rate, perfect.precision, perfect.recall) == (0.0, 1.0, 1.0)
    assert alignment_score(links("0-1"), links("0-0")).error_rate == 1.0
    # With only sure links it is 1 minus F1: precision 1/2, recall 1/3, F1 = 2/5.
    assert alignment_score(links("0-0 1-2"), links("0-0 1-1 2-2")).error_rate == pytest.approx(3 / 5)


def test_word_weights_match_a_hand_computation() -> None:
    """Two target words, the first of two pieces; two source words, the second of two pieces; </s> after both."""
    weights = np.array(
        [
            [0.1, 0.4, 0.4, 0.1],
            [0.5, 0.1, 0.2, 0.2],
            [0.6, 0.0, 0.1, 0.3],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    between = word_weights(weights, [0, 0, 1, NO_WORD], [0, 1, 1, NO_WORD])
    np.testing.assert_allclose(between, [[0.3, 0.55], [0.6, 0.1]])


def test_best_head_means_diagonal_and_reach() -> None:
    """Two layers of two heads on three words in reverse order: one head is right, the others look ahead."""
    ahead, backwards = np.eye(3), np.eye(3)[::-1]
    weights = np.stack([np.stack([ahead, ahead]), np.stack([ahead, 2.5 * backwards])]).astype(np.float32)
    sure = links("2-0 1-1 0-2 1-0")  # the first target word needs two: one is unreachable
    scores = alignment_scores([AttentionPair(weights, range(3), range(3), sure)] * 2)
    assert scores.sentences == 2
    assert scores.best == (1, 1)
    knows, ahead_only = 1 - 2 * 3 / (3 + 4), 1 - 2 * 1 / (3 + 4)
    assert [[head.error_rate for head in layer] for layer in scores.heads] == [
        pytest.approx([ahead_only, ahead_only]),
        pytest.approx([ahead_only, knows]),
    ]
    assert [layer.error_rate for layer in scores.layers] == pytest.approx([ahead_only, knows])
    assert scores.mean.error_rate == pytest.approx(ahead_only)  # 3 against 2.5
    assert scores.diagonal.error_rate == pytest.approx(ahead_only)
    assert scores.reachable.error_rate == pytest.approx(knows)


@given(seed=st.integers(0, 10_000))
def test_every_head_matches_plain_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    pieces = {"target": random.integers(2, 9), "source": random.integers(2, 9)}
    target, source = (
        [NO_WORD, *sorted(int(word) for word in random.integers(0, 4, count))] for count in pieces.values()
    )
    weights = random.dirichlet(np.ones(len(source)), (2, 3, len(target)))
    every = [(i, j) for i in range(4) for j in range(4)]
    sure, possible = (frozenset(link for link in every if random.random() < 0.3) for _ in range(2))
    scores = alignment_scores([AttentionPair(weights, target, source, sure, possible)])
    for layer in range(2):
        for head in range(3):
            expected = error_rate_by_loops(weights[layer, head], target, source, sure, possible)
            assert scores.heads[layer][head].error_rate == pytest.approx(expected)
        mean = error_rate_by_loops(weights[layer].mean(0), target, source, sure, possible)
        assert scores.layers[layer].error_rate == pytest.approx(mean)
    assert scores.mean.error_rate == pytest.approx(
        error_rate_by_loops(weights.mean((0, 1)), target, source, sure, possible)
    )
    assert scores.reachable.error_rate <= min(head.error_rate for layer in scores.heads for head in layer) + 1e-12


def test_sentences_are_summed_before_dividing() -> None:
    right = AttentionPair(np.eye(3)[None, None], range(3), range(3), links("0-0 1-1 2-2"))
    wrong = AttentionPair(np.eye(1)[None, None], [0], [0], links("1-0"))
    assert alignment_scores([right, wrong]).mean.error_rate == pytest.approx(1 - 2 * 3 / (4 + 4))


@pytest.mark.parametrize("kind", KINDS)
def test_each_piece_is_assigned_to_its_word(kind: TokenizerKind) -> None:
    """The concatenated pieces of each word are that word, apart from surrounding spaces."""
    tokenizer = TRAINED[kind]
    for text in [*TEXTS, "Où est l'œuvre ?", "日本 ☃ naïve", ""]:
        ids, found = tokenizer.encode(text), token_words(tokenizer, text, spans)
        assert len(found) == len(ids)
        for number, word in enumerate(words(text)):
            own = [id_ for id_, each in zip(ids, found, strict=True) if each == number]
            assert tokenizer.decode(own).strip() == word, (text, word)
        rest = [id_ for id_, each in zip(ids, found, strict=True) if each == NO_WORD]
        assert not tokenizer.decode(rest).strip()


def test_a_piece_of_two_words_goes_to_the_longer_part() -> None:
    tokenizer = train_tokenizer(["ab!! " * 50], 320)
    assert tokenizer.pieces(tokenizer.encode("ab!!")) == ["ab", "!!"]
    assert token_words(tokenizer, "ab!!", lambda _: [(0, 1), (1, 4)]) == [0, 1]  # equal parts of "ab": the first
    assert token_words(tokenizer, "ab!!", lambda _: [(0, 1), (1, 2), (2, 3)]) == [0, 2]


def test_query_rows_that_write_and_read() -> None:
    assert words_of_rows([0, 0, 1]) == [0, 0, 1, NO_WORD]
    assert words_of_rows([0, 0, 1], "reading") == [NO_WORD, 0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["writing", "reading"])
def test_the_attention_of_a_model_is_scored(moment: str) -> None:
    """From a model's own weights to scores; attention equal to gold has the lowest reachable error."""
    tokenizer = TRAINED["bpe"].with_template(after=[TRAINED["bpe"].end])
    model = EncoderDecoder(preset("tiny", vocab_size=tokenizer.size)).eval()
    attended, ideal = [], []
    for pair in PAIRS[:12]:
        target = tokenizer.encode(pair.english)
        with watch(model) as seen, torch.inference_mode():
            model(torch.tensor([tokenizer.encode_with_template(pair.french)]), torch.tensor([[tokenizer.pad, *target]]))
        weights = torch.cat([each[0] for name, each in seen.items() if name.endswith("cross_attention")]).numpy()
        rows = words_of_rows(token_words(tokenizer, pair.english, spans), moment)  # type: ignore[arg-type]
        columns = source_token_words(tokenizer, pair.french, spans)
        assert weights.shape[-2:] == (len(rows), len(columns))
        sure = frozenset(pair.alignment)
        attended.append(AttentionPair(weights, rows, columns, sure))
        gold = np.array([[(source, target) in sure for source in columns] for target in rows], dtype=float)
        ideal.append(AttentionPair(gold[None, None], rows, columns, sure))
    scores, best = alignment_scores(attended), alignment_scores(ideal)
    assert len(scores.heads) == model.config.decoder_layers or len(scores.heads) == model.config.layers
    assert best.mean == best.reachable == scores.reachable
    assert 0 <= best.mean.error_rate < 0.12
    assert scores.mean.error_rate > 0.4  # it is untrained
    assert scores.diagonal == best.diagonal


def test_petits_links_are_read(tmp_path: Path) -> None:
    path = tmp_path / "test.align"
    path.write_text("0-0 1-2\n\n10-3\n")
    assert read_links(path) == [links("0-0 1-2"), frozenset(), links("10-3")]
    path.write_text("0-0\n0:0 1-2\n")
    with pytest.raises(ValueError, match=r"test\.align:2: '0:0 1-2' is not an alignment"):
        read_links(path)
    assert len(spans(PAIRS[0].french)) > max(i for i, _ in PAIRS[0].alignment)


@pytest.mark.usefixtures("without_type_checks")
def test_models_that_cannot_be_aligned_are_rejected() -> None:
    weights = np.ones((1, 1, 2, 3))
    with pytest.raises(ValueError, match="there are no sentences to align"):
        alignment_scores([])
    with pytest.raises(ValueError, match="sentence 1: words are given for 3 target tokens, but the weights have 2"):
        alignment_scores([AttentionPair(weights, range(3), range(3), links("0-0"))])
    with pytest.raises(ValueError, match="words are given for 2 source tokens, but the weights have 3"):
        alignment_scores([AttentionPair(weights, range(2), range(2), links("0-0"))])
    with pytest.raises(ValueError, match="weights are not finite"):
        alignment_scores([AttentionPair(weights * np.nan, range(2), range(3), links("0-0"))])
    with pytest.raises(ValueError, match="one side has no words"):
        alignment_scores([AttentionPair(weights, range(2), [NO_WORD] * 3, links("0-0"))])
    with pytest.raises(ValueError, match="align one model at a time"):
        alignment_scores(AttentionPair(np.ones((1, heads, 1, 1)), range(1), range(1), links("0-0")) for heads in (1, 2))
