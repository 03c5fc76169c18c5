"""Does cross-attention look where a word comes from? Its weights against a gold alignment of words.

Letters of dimensions: L layers, H heads, T target pieces (rows), S source pieces, W target words, V source words,
M maps: each head, the mean of each layer, the mean of all, the diagonal, and the best that can be.

From weights to links: over the pieces of a source word weights are summed, over those of a target word averaged, and
each target word is linked to the source word with the most. What falls on </s> and other tokens that are no word does
not count. One model looks one way, from target to source, so every target word has one link and nothing is made
symmetric with a model of the other direction: a source word that two target words need is found, a target word that
needs two source words gets one.

The alignment error rate (Och and Ney, 2003) of links A against sure links S and possible ones P, S among them, is
1 - (|A∩S| + |A∩P|) / (|A| + |S|). With sure links alone, as in Petit, it is 1 less the F1 of links.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from regard import petit
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError

Links = frozenset[tuple[int, int]]
"""(source word, target word)"""
Spans = Callable[[str], list[tuple[int, int]]]
"""where each word of a text begins and ends, in characters"""
NO_WORD = -1
"""the word of a piece that belongs to none"""


@dataclass(frozen=True)
class Attended:
    """One sentence pair: the weights of every layer and head, which word each piece is of, and the gold."""

    weights: Float[np.ndarray, "L H T S"]
    target_words: Sequence[int]
    """for each row; see `row_words`"""
    source_words: Sequence[int]
    sure: Links
    possible: Links = frozenset()
    """beyond the sure ones"""


@dataclass(frozen=True)
class AlignmentScore:
    """The alignment error rate, and what it is made of."""

    error_rate: float
    precision: float
    recall: float


@dataclass(frozen=True)
class AlignmentScores:
    """Error rates of every head, and what to hold them against."""

    sentences: int
    heads: tuple[tuple[AlignmentScore, ...], ...]
    """for each layer, each head by itself"""
    layers: tuple[AlignmentScore, ...]
    """for each layer, the mean of the weights over its heads"""
    mean: AlignmentScore
    """the mean of the weights over all layers and heads"""
    best: tuple[int, int]
    """layer and head of the lowest error rate, counted from 0; chosen on these very sentences, which flatters it"""
    diagonal: AlignmentScore
    """of a line from the first words to the last, which looks at no text: what attention must beat"""
    reachable: AlignmentScore
    """of the best single link of each target word: what attention could reach at most"""


def alignment_scores(pairs: Iterable[Attended]) -> AlignmentScores:
    """Sum up links over all pairs, then divide: long sentences count for more, as is usual."""
    sums: dict[tuple[int, int], Int[np.ndarray, "M 4"]] = {}
    sentences = 0
    for sentences, pair in enumerate(pairs, 1):
        try:
            counts = _count(pair)
        except ValueError as error:
            raise RegardError(f"sentence {sentences}: {error}") from None
        shape = pair.weights.shape[:2]
        sums[shape] = sums[shape] + counts if shape in sums else counts
    if len(sums) != 1:
        several = "sentences differ in layers or heads: align one model at a time"
        raise RegardError(several if sums else "no sentences: there is nothing to align")
    ((layers, heads), counts), *_ = sums.items()
    scores = tuple(_score(each) for each in counts)
    split = layers * heads
    best = min(range(split), key=lambda i: scores[i].error_rate)
    return AlignmentScores(
        sentences=sentences,
        heads=tuple(scores[i : i + heads] for i in range(0, split, heads)),
        layers=scores[split:-3],
        mean=scores[-3],
        best=divmod(best, heads),
        diagonal=scores[-2],
        reachable=scores[-1],
    )


def alignment_score(links: Links, sure: Links, possible: Links = frozenset()) -> AlignmentScore:
    """The score of links that are there already."""
    return _score(np.array([len(links & sure), len(links & (sure | possible)), len(links), len(sure)]))


def word_weights(
    weights: Float[np.ndarray, "*maps T S"], target_words: Sequence[int], source_words: Sequence[int]
) -> Float[np.ndarray, "*maps W V"]:
    """Weights between words: summed over the pieces of a source word, averaged over those of a target word."""
    rows, columns = weights.shape[-2:]
    for side, given, there in (("target", len(target_words), rows), ("source", len(source_words), columns)):
        if given != there:
            raise RegardError(f"{given} {side} pieces have a word, and the weights have {there}")
    if not np.isfinite(weights).all():
        raise RegardError("weights are not finite: something went wrong before they came here")
    into, of = _membership(target_words), _membership(source_words)  # [W, T], [V, S]
    pieces = np.maximum(into.sum(-1, keepdims=True), 1)
    return np.asarray((into / pieces) @ weights @ of.T, dtype=weights.dtype)  # [*maps, W, V]


def piece_words(tokenizer: Tokenizer, text: str, spans: Spans = petit.spans) -> list[int]:
    """Which word each piece of a text is of: the one it shares most characters with, NO_WORD for a mere space.

    Words are Petit's unless `spans` says otherwise. Pieces are those of `tokenizer.encode`.
    """
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        raise RegardError(f"{type(tokenizer).__name__} does not report where in the text its pieces are")
    words = spans(text)
    pieces = tokenizer.engine.encode(text, add_special_tokens=False).offsets
    return [_word_at(begin, end, words) for begin, end in pieces]


def source_pieces(tokenizer: Tokenizer, text: str, spans: Spans = petit.spans) -> list[int]:
    """The same for a source as the encoder reads it: with the tokens around it, which are no word."""
    before, after = ([NO_WORD] * len(ids) for ids in (tokenizer.before, tokenizer.after))
    return [*before, *piece_words(tokenizer, text, spans), *after]


def row_words(words: Sequence[int], moment: Literal["writing", "reading"] = "writing") -> list[int]:
    """The word of each row of cross-attention, of a decoder that was given <pad> and then all target pieces.

    Row t reads piece t - 1 and writes piece t. The usual choice is "writing": where the model looks to write a word.
    "reading" is where it looks when the word is its input, often the better alignment (Chen et al., 2020).
    """
    return [*words, NO_WORD] if moment == "writing" else [NO_WORD, *words]


def read_links(path: Path) -> list[Links]:
    """The links of each sentence, from a file with lines such as `0-0 1-2`: source word, target word."""
    return [_links(line, f"{path}:{i}") for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)]


def _links(line: str, where: str) -> Links:
    links = [re.fullmatch(r"(\d+)-(\d+)", link, re.ASCII) for link in line.split()]
    if None in links:
        raise RegardError(f"{where}: {line!r} is no alignment: write pairs of word numbers, as in 0-0 1-2")
    return frozenset((int(link[1]), int(link[2])) for link in links if link)


def _count(pair: Attended) -> Int[np.ndarray, "M 4"]:
    """|A∩S|, |A∩P|, |A| and |S| of every map."""
    weights = word_weights(pair.weights, pair.target_words, pair.source_words)  # [L, H, W, V]
    *_, targets, sources = weights.shape
    if not targets or not sources:
        raise RegardError("a side without words: there is nothing to align")
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
    written = np.isin(np.arange(targets), pair.target_words)  # a word may share its only piece with another
    found = [(gold[np.arange(targets), chosen] & written).sum(-1) for gold in (sure, either)]  # [M]
    total, gold_total = (np.full(len(chosen), count) for count in (written.sum(), len(pair.sure)))
    return np.stack([*found, total, gold_total], -1)


def _table(links: Links, targets: int, sources: int) -> Bool[np.ndarray, "W V"]:
    """True where two words are linked; a word that has no piece is not in it."""
    table = np.zeros((targets, sources), dtype=bool)
    for source, target in links:
        if target < targets and source < sources:
            table[target, source] = True
    return table


def _score(counts: Int[np.ndarray, "4"]) -> AlignmentScore:
    right, allowed, total, gold = (int(count) for count in counts)
    error_rate = 1 - (right + allowed) / (total + gold) if total + gold else 0.0
    return AlignmentScore(error_rate, allowed / total if total else 0.0, right / gold if gold else 0.0)


def _membership(words: Sequence[int]) -> Float[np.ndarray, "words pieces"]:
    """1 where a piece is of a word."""
    numbers = np.arange(max(words, default=NO_WORD) + 1)
    return np.asarray(numbers[:, None] == np.asarray(words, dtype=int), dtype=np.float64)


def _word_at(begin: int, end: int, words: Sequence[tuple[int, int]]) -> int:
    shared = [min(end, stop) - max(begin, start) for start, stop in words]
    most = max(shared, default=0)
    return shared.index(most) if most > 0 else NO_WORD
