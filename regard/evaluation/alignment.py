"""Word alignment from attention weights, scored against gold links.

Dimensions: L layers, H heads, T target tokens (rows), S source tokens, W target words, V source words,
M maps: each head, the mean of each layer, the mean of all, the diagonal, and the best reachable.

From weights to links: weights are summed over the tokens of a source word and averaged over the tokens of a target
word, and each target word is linked to the source word with the most weight. Weight on </s> and other tokens that
belong to no word is ignored. A model attends in one direction only, from target to source, so every target word has
exactly one link, and links are not symmetrized with those of a model of the other direction: a source word that two
target words need is found, but a target word that needs two source words gets only one.

The alignment error rate (Och and Ney, 2003) of links A against sure links S and possible links P, which include S, is
1 - (|A∩S| + |A∩P|) / (|A| + |S|). With sure links only, it is 1 minus the F1 of the links.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError
from regard.evaluation.text_files import read_text_lines

Links = frozenset[tuple[int, int]]
"""Pairs of (source word, target word)."""
WordSpans = Callable[[str], list[tuple[int, int]]]
"""Function that gives the start and end of each word of a text, in characters."""
RowToken = Literal["writing", "reading"]
"""The target token that a row of attention belongs to: the one it predicts, or the one it reads."""
NO_WORD = -1
"""Word index of a token that belongs to no word."""


@dataclass(frozen=True)
class AttentionPair:
    """A sentence pair: the weights of every layer and head, the word of each token, and the gold links."""

    weights: Float[np.ndarray, "L H T S"]
    target_words: Sequence[int]
    """Target word of each row: see `words_of_rows`."""
    source_words: Sequence[int]
    """Source word of each column."""
    sure: Links
    possible: Links = frozenset()
    """Possible links in addition to the sure ones."""


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment error rate, precision and recall of links."""

    error_rate: float
    precision: float
    recall: float


@dataclass(frozen=True)
class AlignmentScores:
    """Scores of every head, with baselines."""

    sentences: int
    heads: tuple[tuple[AlignmentScore, ...], ...]
    """Score of each head of each layer."""
    layers: tuple[AlignmentScore, ...]
    """Score of each layer, from the mean of the weights over its heads."""
    mean: AlignmentScore
    """Score of the mean of the weights over all layers and heads."""
    best: tuple[int, int]
    """Layer and head with the lowest error rate, from 0. Selected on the same sentences, so its score is optimistic."""
    diagonal: AlignmentScore
    """Baseline: score of a diagonal from the first words to the last, which ignores the text."""
    reachable: AlignmentScore
    """Upper bound: score of the best single link for each target word."""


def alignment_scores(pairs: Iterable[AttentionPair]) -> AlignmentScores:
    """Score the links of all pairs together, so that long sentences count for more, as is usual."""
    sums: dict[tuple[int, int], Int[np.ndarray, "M 4"]] = {}
    sentences = 0
    for sentences, pair in enumerate(pairs, 1):
        try:
            counts = _count(pair)
        except RegardError as error:
            raise RegardError(f"sentence {sentences}: {error}") from None
        shape = pair.weights.shape[:2]
        sums[shape] = sums[shape] + counts if shape in sums else counts
    if len(sums) != 1:
        raise RegardError(
            "sentences differ in their number of layers or heads: align one model at a time"
            if sums
            else "there are no sentences to align"
        )
    ((layers, heads), counts), *_ = sums.items()
    scores = tuple(_score(row) for row in counts)
    maps = layers * heads
    best = min(range(maps), key=lambda i: scores[i].error_rate)
    return AlignmentScores(
        sentences=sentences,
        heads=tuple(scores[i : i + heads] for i in range(0, maps, heads)),
        layers=scores[maps:-3],
        mean=scores[-3],
        best=divmod(best, heads),
        diagonal=scores[-2],
        reachable=scores[-1],
    )


def alignment_score(links: Links, sure: Links, possible: Links = frozenset()) -> AlignmentScore:
    """The score of given links."""
    return _score(np.array([len(links & sure), len(links & (sure | possible)), len(links), len(sure)]))


def word_weights(
    weights: Float[np.ndarray, "*maps T S"], target_words: Sequence[int], source_words: Sequence[int]
) -> Float[np.ndarray, "*maps W V"]:
    """Weights between words: summed over the tokens of a source word, averaged over those of a target word."""
    rows, columns = weights.shape[-2:]
    for side, count, expected in (("target", len(target_words), rows), ("source", len(source_words), columns)):
        if count != expected:
            raise RegardError(f"words are given for {count} {side} tokens, but the weights have {expected}")
    if not np.isfinite(weights).all():
        raise RegardError("the attention weights are not finite")
    target_tokens, source_tokens = _membership(target_words), _membership(source_words)  # [W, T], [V, S]
    counts = np.maximum(target_tokens.sum(-1, keepdims=True), 1)
    return np.asarray((target_tokens / counts) @ weights @ source_tokens.T, dtype=weights.dtype)  # [*maps, W, V]


def whitespace_spans(text: str) -> list[tuple[int, int]]:
    """The words of a text that is tokenised by spaces.

    >>> whitespace_spans("a cat .")
    [(0, 1), (2, 5), (6, 7)]
    """
    return [match.span() for match in re.finditer(r"\S+", text)]


def reports_positions(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer, or both of a pair, report the positions of tokens in the text, which `token_words` needs."""
    return all(isinstance(side, HuggingFaceTokenizer) for side in (tokenizer.source_side, tokenizer.target_side))


def token_words(tokenizer: Tokenizer, text: str, spans: WordSpans) -> list[int]:
    """The word of each token of `tokenizer.encode(text)`: the one it shares most characters with, or NO_WORD."""
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        raise RegardError(f"{type(tokenizer).__name__} does not report the positions of tokens in the text")
    words = spans(text)
    offsets = tokenizer.engine.encode(text, add_special_tokens=False).offsets
    return [_word_at(begin, end, words) for begin, end in offsets]


def source_token_words(tokenizer: Tokenizer, text: str, spans: WordSpans) -> list[int]:
    """The word of each token of a source as the encoder reads it; special tokens around it belong to no word."""
    before, after = ([NO_WORD] * len(ids) for ids in (tokenizer.before, tokenizer.after))
    return [*before, *token_words(tokenizer, text, spans), *after]


def words_of_rows(words: Sequence[int], row_token: RowToken = "writing") -> list[int]:
    """The word of each row of cross-attention, in a decoder that reads <pad> and then all target tokens.

    Row t reads token t - 1 and predicts token t. "writing", the usual choice, is where the model attends to predict a
    word; "reading" is where it attends when the word is its input, often the better alignment (Chen et al., 2020).
    """
    return [*words, NO_WORD] if row_token == "writing" else [NO_WORD, *words]


def read_links(path: Path) -> list[Links]:
    """The links of each sentence, from a file with lines such as `0-0 1-2`: source word, target word."""
    return [_links(line, f"{path}:{number}") for number, line in enumerate(read_text_lines(path), 1)]


def _links(line: str, where: str) -> Links:
    links = [re.fullmatch(r"(\d+)-(\d+)", link, re.ASCII) for link in line.split()]
    if None in links:
        raise RegardError(f"{where}: {line!r} is not an alignment: write pairs of word numbers, as in 0-0 1-2")
    return frozenset((int(link[1]), int(link[2])) for link in links if link)


def _count(pair: AttentionPair) -> Int[np.ndarray, "M 4"]:
    """|A∩S|, |A∩P|, |A| and |S| for every map."""
    weights = word_weights(pair.weights, pair.target_words, pair.source_words)  # [L, H, W, V]
    *_, targets, sources = weights.shape
    if not targets or not sources:
        raise RegardError("one side has no words: there is nothing to align")
    sure, either = (_table(links, targets, sources) for links in (pair.sure, pair.sure | pair.possible))  # [W, V]
    chosen = np.stack(
        [
            *weights.argmax(-1).reshape(-1, targets),  # the source word of each target word, by each head
            *weights.mean(1).argmax(-1),
            weights.mean((0, 1)).argmax(-1),
            (2 * np.arange(targets) + 1) * sources // (2 * targets),
            (sure.astype(int) + either).argmax(-1),
        ]
    )  # [M, W]
    has_row = np.isin(np.arange(targets), pair.target_words)  # a word without a token of its own has no row
    correct = [(gold[np.arange(targets), chosen] & has_row).sum(-1) for gold in (sure, either)]  # [M]
    total, gold_total = (np.full(len(chosen), count) for count in (has_row.sum(), len(pair.sure)))
    return np.stack([*correct, total, gold_total], -1)


def _table(links: Links, targets: int, sources: int) -> Bool[np.ndarray, "W V"]:
    """True where two words are linked; words without a token are left out."""
    table = np.zeros((targets, sources), dtype=bool)
    for source, target in links:
        if target < targets and source < sources:
            table[target, source] = True
    return table


def _score(counts: Int[np.ndarray, "4"]) -> AlignmentScore:
    sure, possible, total, gold = (int(count) for count in counts)
    error_rate = 1 - (sure + possible) / (total + gold) if total + gold else 0.0
    return AlignmentScore(error_rate, possible / total if total else 0.0, sure / gold if gold else 0.0)


def _membership(words: Sequence[int]) -> Float[np.ndarray, "words tokens"]:
    """1 where a token belongs to a word."""
    numbers = np.arange(max(words, default=NO_WORD) + 1)
    return np.asarray(numbers[:, None] == np.asarray(words, dtype=int), dtype=np.float64)


def _word_at(begin: int, end: int, words: Sequence[tuple[int, int]]) -> int:
    shared = [min(end, stop) - max(begin, start) for start, stop in words]
    max_shared = max(shared, default=0)
    return shared.index(max_shared) if max_shared > 0 else NO_WORD
