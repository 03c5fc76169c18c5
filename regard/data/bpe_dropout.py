"""BPE dropout (Provilkov and others, 2020): the same text in other pieces, so that a model sees what words are made of.

A word is cut up as BPE does it, except that at each turn every merge that could be made is passed over with some
probability. Each variant of a text decodes to the very same characters. Variants are drawn once, by the run's seed:
what it learns from stays a function of its recipe. All of them are held in memory, sixteen times the text.
"""

import json
from collections.abc import Sequence
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
"""ways in which each example is written; an epoch takes one of them, at random"""
MAX_WORD_VARIANTS = 32
"""ways to cut up a word, at most; fewer for one that is rarer than that"""
BYTE_LEVEL_SPACE = "Ġ"
"""how byte-level BPE spells the space that begins a word"""
MAX_WORD_PIECES, MAX_WORD_LETTERS = 8, 64
"""of what is cut up at one time: a script without spaces goes in parts, and a longer piece stays as it is"""
MIN_WORDS_TO_JUDGE = 100
"""words that are too few to tell whether a tokenizer's can be cut up"""

NEEDS = "BPE dropout needs a tokenizer of the kind bpe"

WordIds = tuple[int, ...]


class BpeMerges:
    """The merges of a tokenizer, and how they cut up a word."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        model = json.loads(tokenizer.engine.to_str())["model"] if isinstance(tokenizer, HuggingFaceTokenizer) else {}
        if model.get("type") != "BPE" or not model["merges"]:
            raise RegardError(f"{NEEDS}, and this one merges nothing: set tokenizer.dropout=0")
        self.ids: dict[str, int] = model["vocab"]
        self.spelled = {id_: piece for piece, id_ in self.ids.items()}
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self.rank = {tuple(pair): rank for rank, pair in enumerate(pairs)}

    def starts(self, size: int) -> NDArray[np.bool_]:
        """For each id, whether a word begins with it."""
        return np.array(
            [
                self.spelled.get(id_, BYTE_LEVEL_SPACE).startswith((BYTE_LEVEL_SPACE, *punctuation))
                for id_ in range(size)
            ]
        )

    def cut(self, word: str, rate: float, random: Random) -> WordIds:
        """A word's pieces when each possible merge is passed over, at each turn, with probability `rate`."""
        pieces = list(word)
        while len(pieces) > 1:
            ranks = ((self.rank.get(pair), i) for i, pair in enumerate(pairwise(pieces)))
            there = [(rank, i) for rank, i in ranks if rank is not None and random.random() >= rate]
            if not there:
                break
            _, i = min(there)
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        return tuple(self.ids[piece] for piece in pieces)

    def draws(self, word: WordIds, count: int, rate: float, random: Random) -> list[WordIds]:
        """So many ways to write a word; a special id, or what is no plain BPE, stays as it is."""
        if not all(id_ in self.spelled for id_ in word):
            return [word]
        spelled = "".join(self.spelled[id_] for id_ in word)
        plain = len(spelled) <= MAX_WORD_LETTERS and set(spelled) <= self.ids.keys()
        if not plain or self.cut(spelled, 0.0, random) != word:
            return [word]
        return [self.cut(spelled, rate, random) for _ in range(count)]


def add_bpe_variants(
    data: TokenizedCorpus, tokenizer: Tokenizer, rate: float, variants: int = VARIANTS_PER_EXAMPLE, seed: int = 0
) -> TokenizedCorpus:
    """The text written in `variants` ways, one behind the other; the first is the text as it is."""
    check_probability("dropout", rate)
    require_at_least(1, variants=variants)
    merges = BpeMerges(tokenizer)
    sides = [_Words(data, side, merges.starts(tokenizer.size)) for side in range(len(data.tokens))]
    found: dict[WordIds, int] = {}
    numbers = [words.numbered(found) for words in sides]
    counts = np.bincount(np.concatenate(numbers), minlength=len(found))
    random = Random(seed)  # many single numbers, where numpy's is slow
    drawn = [
        merges.draws(word, min(MAX_WORD_VARIANTS, int(count) * variants), rate, random)
        for word, count in zip(found, counts, strict=True)
    ]
    _check_varied(drawn, counts)
    table, choice = _Table(drawn), np.random.default_rng(seed)
    written = [words.written(table, number, variants, choice) for words, number in zip(sides, numbers, strict=True)]
    tokens, offsets = (tuple(each) for each in zip(*written, strict=True))
    return replace(data, tokens=tokens, offsets=offsets, variants=variants)


def _check_varied(drawn: Sequence[Sequence[WordIds]], counts: NDArray[np.int64]) -> None:
    """A ValueError if most words stayed as they are: a vocabulary that spells them in its own way."""
    free = sum(int(count) for ways, count in zip(drawn, counts, strict=True) if len(ways) > 1)
    total = int(counts.sum())
    if total >= MIN_WORDS_TO_JUDGE and free < total / 2:
        raise RegardError(
            f"{NEEDS} whose pieces are bytes, and {total - free:,} of {total:,} words of this one's cannot be cut up "
            "otherwise: set tokenizer.dropout=0"
        )


class _Words:
    """A side's text as words: each begins with an example, a space or a mark, and has no more than a few pieces."""

    def __init__(self, data: TokenizedCorpus, side: int, starts: NDArray[np.bool_]) -> None:
        self.tokens, self.offsets = np.asarray(data.tokens[side]), data.offsets[side]
        begins = starts[self.tokens]
        begins[self.offsets[:-1][np.diff(self.offsets) > 0]] = True
        whole = np.flatnonzero(begins)
        within = np.arange(len(self.tokens)) - np.repeat(whole, np.diff(whole, append=len(self.tokens)))
        self.places = np.append(np.flatnonzero(within % MAX_WORD_PIECES == 0), len(self.tokens))
        self.before = np.searchsorted(self.places, self.offsets)  # words before each example

    def numbered(self, found: dict[WordIds, int]) -> NDArray[np.int64]:
        """The number of each word; new ones get the next."""
        ids, places = self.tokens.tolist(), self.places.tolist()
        words = (tuple(ids[begin:end]) for begin, end in pairwise(places))
        return np.array([found.setdefault(word, len(found)) for word in words], np.int64)

    def written(
        self, table: "_Table", words: NDArray[np.int64], variants: int, random: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Tokens and offsets of all variants of the text."""
        tokens, lengths = [self.tokens], [np.diff(self.offsets)]
        for _ in range(variants - 1):
            chosen = table.choose(words, random)
            tokens.append(
                table.values[index_ranges(table.starts[chosen], table.lengths[chosen])].astype(self.tokens.dtype)
            )
            behind = np.append(0, np.cumsum(table.lengths[chosen]))[self.before]
            lengths.append(np.diff(behind))
        return np.concatenate(tokens), np.append(0, np.cumsum(np.concatenate(lengths)))


class _Table:
    """All drawn ways to write all words, end to end: those of word w are `first[w]` up to `first[w + 1]`."""

    def __init__(self, drawn: Sequence[Sequence[WordIds]]) -> None:
        self.first = np.append(0, np.cumsum([len(each) for each in drawn]))
        flat = [way for each in drawn for way in each]
        self.lengths = np.array([len(way) for way in flat], np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.values = np.array([id_ for way in flat for id_ in way], np.int64)

    def choose(self, words: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """One of each word's ways."""
        first = self.first[words]
        way: NDArray[np.int64] = (random.random(len(words)) * (self.first[words + 1] - first)).astype(np.int64)
        return first + way
