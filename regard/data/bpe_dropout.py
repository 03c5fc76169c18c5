"""BPE dropout (Provilkov et al., 2020): variants of the text with other segmentations, so that a model learns how
words are composed.

A word is segmented as in BPE, except that at each step every possible merge is skipped with some probability. All
variants decode to the same text. Variants are sampled once with the run's seed, so training remains a function of the
recipe. All of them are kept in memory, 16 times the text.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from string import punctuation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import check_probability, require_at_least
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.ragged import index_ranges
from regard.data.tokenized_corpus import TokenizedCorpus
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError

VARIANTS_PER_EXAMPLE = 16
"""Number of variants of each example; each epoch uses one at random."""
MAX_WORD_VARIANTS = 32
"""Maximum number of segmentations sampled for a word; rare words have fewer."""
BYTE_LEVEL_SPACE = "Ġ"
"""Byte-level BPE's symbol for the space that starts a word."""
MAX_WORD_PIECES = 8
"""Maximum number of pieces segmented together; text without spaces is processed in parts of this size."""
MAX_WORD_LETTERS = 64
"""Maximum length of a word that is segmented again, in characters."""
MIN_WORDS_TO_JUDGE = 100
"""Minimum number of words needed to judge whether a tokenizer supports BPE dropout."""

WordIds = tuple[int, ...]


class BpeMerges:
    """The merges of a BPE tokenizer, applied with dropout."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        model = json.loads(tokenizer.engine.to_str())["model"] if isinstance(tokenizer, HuggingFaceTokenizer) else {}
        if model.get("type") != "BPE" or not model["merges"]:
            raise RegardError("BPE dropout needs a BPE tokenizer, but this one has no merges: set tokenizer.dropout=0")
        self.ids: dict[str, int] = model["vocab"]
        self.spelled = {id_: piece for piece, id_ in self.ids.items()}
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self.rank = {tuple(pair): rank for rank, pair in enumerate(pairs)}

    def starts(self, size: int) -> NDArray[np.bool_]:
        """Return, for each id, whether it starts a word."""
        return np.array(
            [
                self.spelled.get(id_, BYTE_LEVEL_SPACE).startswith((BYTE_LEVEL_SPACE, *punctuation))
                for id_ in range(size)
            ]
        )

    def segment(self, word: str, rate: float, random: Random) -> WordIds:
        """Segment a word; at each step, every possible merge is skipped with probability `rate`."""
        pieces = list(word)
        while len(pieces) > 1:
            ranks = ((self.rank.get(pair), i) for i, pair in enumerate(pairwise(pieces)))
            merges = [(rank, i) for rank, i in ranks if rank is not None and random.random() >= rate]
            if not merges:
                break
            _, i = min(merges)
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        return tuple(self.ids[piece] for piece in pieces)

    def sample_segmentations(self, word: WordIds, count: int, rate: float, random: Random) -> list[WordIds]:
        """Sample `count` segmentations of a word; special ids and words that are not plain BPE stay unchanged."""
        if not all(id_ in self.spelled for id_ in word):
            return [word]
        spelled = "".join(self.spelled[id_] for id_ in word)
        is_plain = len(spelled) <= MAX_WORD_LETTERS and set(spelled) <= self.ids.keys()
        if not is_plain or self.segment(spelled, 0.0, random) != word:
            return [word]
        return [self.segment(spelled, rate, random) for _ in range(count)]


def add_bpe_variants(
    data: TokenizedCorpus, tokenizer: Tokenizer, rate: float, variants: int = VARIANTS_PER_EXAMPLE, seed: int = 0
) -> TokenizedCorpus:
    """Return the text in `variants` variants, one after another; the first is the original."""
    check_probability("dropout", rate)
    require_at_least(1, variants=variants)
    random, choice = Random(seed), np.random.default_rng(seed)  # numpy is slow at drawing single numbers
    written: list[tuple[NDArray[Any], NDArray[np.int64]]] = []
    if tokenizer.is_separate:
        for side, one in enumerate((tokenizer.source_side, tokenizer.target_side)):
            written += _side_variants(data, [side], one, rate, variants, random, choice)
    else:
        written = _side_variants(data, range(len(data.tokens)), tokenizer, rate, variants, random, choice)
    tokens, offsets = (tuple(arrays) for arrays in zip(*written, strict=True))
    return replace(data, tokens=tokens, offsets=offsets, variants=variants)


def _side_variants(
    data: TokenizedCorpus,
    side_numbers: Iterable[int],
    tokenizer: Tokenizer,
    rate: float,
    variants: int,
    random: Random,
    choice: np.random.Generator,
) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Return tokens and offsets of all variants of the sides that this tokenizer encoded."""
    merges = BpeMerges(tokenizer)
    sides = [_Words(data, side, merges.starts(tokenizer.size)) for side in side_numbers]
    vocabulary: dict[WordIds, int] = {}
    numbers = [words.numbered(vocabulary) for words in sides]
    counts = np.bincount(np.concatenate(numbers), minlength=len(vocabulary))
    samples = [
        merges.sample_segmentations(word, min(MAX_WORD_VARIANTS, int(count) * variants), rate, random)
        for word, count in zip(vocabulary, counts, strict=True)
    ]
    _check_samples(samples, counts)
    table = _SegmentationTable(samples)
    return [words.written(table, number, variants, choice) for words, number in zip(sides, numbers, strict=True)]


def _check_samples(samples: Sequence[Sequence[WordIds]], counts: NDArray[np.int64]) -> None:
    """Raise a RegardError if most words could not be segmented again: the vocabulary does not spell them in bytes."""
    varied = sum(int(count) for ways, count in zip(samples, counts, strict=True) if len(ways) > 1)
    total = int(counts.sum())
    if total >= MIN_WORDS_TO_JUDGE and varied < total / 2:
        raise RegardError(
            f"BPE dropout needs a byte-level BPE tokenizer, but {total - varied:,} of {total:,} words cannot be "
            "segmented differently with this one: set tokenizer.dropout=0"
        )


class _Words:
    """A side's text as words: a word starts with an example, a space or punctuation, and has at most a few pieces."""

    def __init__(self, data: TokenizedCorpus, side: int, starts: NDArray[np.bool_]) -> None:
        self.tokens, self.offsets = np.asarray(data.tokens[side]), data.offsets[side]
        begins = starts[self.tokens]
        begins[self.offsets[:-1][np.diff(self.offsets) > 0]] = True
        starts_at = np.flatnonzero(begins)
        within = np.arange(len(self.tokens)) - np.repeat(starts_at, np.diff(starts_at, append=len(self.tokens)))
        self.bounds = np.append(np.flatnonzero(within % MAX_WORD_PIECES == 0), len(self.tokens))
        self.before = np.searchsorted(self.bounds, self.offsets)  # words before each example

    def numbered(self, vocabulary: dict[WordIds, int]) -> NDArray[np.int64]:
        """Return the number of each word; new words are added to the vocabulary."""
        ids, bounds = self.tokens.tolist(), self.bounds.tolist()
        words = (tuple(ids[begin:end]) for begin, end in pairwise(bounds))
        return np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words], np.int64)

    def written(
        self, table: "_SegmentationTable", words: NDArray[np.int64], variants: int, random: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the tokens and offsets of all variants of the text."""
        tokens, lengths = [self.tokens], [np.diff(self.offsets)]
        for _ in range(variants - 1):
            chosen = table.choose(words, random)
            tokens.append(
                table.values[index_ranges(table.starts[chosen], table.lengths[chosen])].astype(self.tokens.dtype)
            )
            offsets = np.append(0, np.cumsum(table.lengths[chosen]))[self.before]
            lengths.append(np.diff(offsets))
        return np.concatenate(tokens), np.append(0, np.cumsum(np.concatenate(lengths)))


class _SegmentationTable:
    """All sampled segmentations, concatenated: those of word w are `first[w]` up to `first[w + 1]`."""

    def __init__(self, samples: Sequence[Sequence[WordIds]]) -> None:
        self.first = np.append(0, np.cumsum([len(ways) for ways in samples]))
        flat = [way for ways in samples for way in ways]
        self.lengths = np.array([len(way) for way in flat], np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.values = np.array([id_ for way in flat for id_ in way], np.int64)

    def choose(self, words: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """Choose one random segmentation for each word."""
        first = self.first[words]
        way: NDArray[np.int64] = (random.random(len(words)) * (self.first[words + 1] - first)).astype(np.int64)
        return first + way
