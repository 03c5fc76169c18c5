"""Probes of BLEU: counts of n-grams as tables of word numbers, matches, lengths, penalties and scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Names
from regard.course.probe_values import accepts, items_from, number_from, padded, written_parts


def _words(text: str) -> list[str]:
    return text.split()


WORDS = _words("the The cat cats sat on mat a dog saw there is was big red")
UNKNOWN = -2
"""The number of what is not a word of the sentences."""

CAT = _words("the cat sat on the mat")
REFERENCES = [_words("The cat sat on the red mat"), _words("there is a cat on the mat")]
DOG = _words("the dog saw the big dog")
DOGS = [_words("the big dog saw the cat"), _words("the the dog saw a cat there"), _words("a dog")]
LONG = _words("there was a cat on the big red mat and the dog saw the cat on the mat")
LONGS = [_words("there was a big cat on the red mat and the dog saw the cat on the mat there")]
Corpus = tuple[list[list[str]], list[list[list[str]]]]


def _table(names: Names, tokens: Sequence[str], n: int) -> Tensor:
    """N-grams in a fixed order, each as the numbers of its words followed by its count."""
    counts = names["count_ngrams"](list(tokens), n)
    if not isinstance(counts, Mapping):
        raise TypeError(f"count_ngrams returned {type(counts).__name__}, but a dictionary was expected")
    rows = [[*_numbers(ngram), int(count)] for ngram, count in counts.items() if count]
    return padded(sorted(rows), n + 1)


def _numbers(ngram: Any) -> list[int]:
    words = ngram if isinstance(ngram, tuple | list) else [ngram]
    return [WORDS.index(word) if word in WORDS else UNKNOWN for word in words]


def _number(names: Names, function: str, *inputs: Any) -> Tensor:
    """The number that a function returns."""
    return number_from(names[function](*inputs), function)


def _pair(names: Names, hypothesis: Sequence[str], references: Sequence[Sequence[str]], n: int) -> Tensor:
    """Matches and total."""
    found = names["clipped_matches"](list(hypothesis), _copy(references), n)
    return torch.stack([number_from(value, "clipped_matches") for value in items_from(found, "clipped_matches", 2)])


def _copy(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """A copy, so that a solution that changes its input does not change the next probe's."""
    return [list(sentence) for sentence in sentences]


def example(names: Names) -> dict[str, Tensor]:
    """A sentence of six words with two references: its bigrams, matches, lengths and scores."""
    return written_parts(
        {
            "bigrams": lambda: _table(names, CAT, 2),
            "matches": lambda: _pair(names, CAT, REFERENCES, 2),
            "closest length": lambda: _number(names, "closest_length", list(CAT), _copy(REFERENCES)),
            "penalty": lambda: _number(names, "brevity_penalty", 6, 7),
            "mean": lambda: _number(names, "geometric_mean", [0.5, 0.125]),
            "corpus": lambda: _number(names, "corpus_bleu", [list(CAT)], [_copy(REFERENCES)], 2),
            "sentence": lambda: _number(names, "sentence_bleu", list(CAT), _copy(REFERENCES)),
        }
    )


def ngrams(names: Names) -> dict[str, Tensor]:
    """count_ngrams of sentences with repeated words, and of one that is shorter than n."""
    sentences = {"the dog": DOG, "twice": _words("the the the the cat"), "capital": ["The", "cat", "the", "cat"]}
    values = {f"{name}, n={n}": _table(names, words, n) for name, words in sentences.items() for n in (1, 2, 3)}
    return values | {"too short": _table(names, ["cat", "sat"], 3)}


def matches(names: Names) -> dict[str, Tensor]:
    """clipped_matches with one and with several references, repeated words, and an empty hypothesis."""
    values = {f"seven times the, n={n}": _pair(names, ["the"] * 7, [CAT, DOG], n) for n in (1, 2)}
    values |= {f"the dog, n={n}": _pair(names, DOG, DOGS, n) for n in (1, 2, 3)}
    values |= {f"one reference, n={n}": _pair(names, DOG, DOGS[1:2], n) for n in (1, 2)}
    values |= {f"reversed references, n={n}": _pair(names, DOG, DOGS[::-1], n) for n in (1, 2)}
    return values | {"empty": _pair(names, [], DOGS, 1)}


def lengths(names: Names) -> dict[str, Tensor]:
    """closest_length where the closest is neither the first nor the shortest, and where two are equally close."""
    cases = {5: (9, 4, 7), 8: (9, 4, 7), 6: (8, 4, 1), 3: (6, 20), 7: (5, 9), 12: (4, 9, 7), 10: (10, 3), 9: (10, 2)}
    return {
        f"{length} words, references {others}": _number(
            names, "closest_length", ["a"] * length, [["a"] * other for other in others]
        )
        for length, others in cases.items()
    }


def penalties(names: Names) -> dict[str, Tensor]:
    """brevity_penalty of hypotheses that are too short, too long, equal and empty."""
    cases = [(6, 7), (3, 12), (7, 7), (9, 7), (19, 20)]
    values = {f"{short} of {long} words": _number(names, "brevity_penalty", short, long) for short, long in cases}
    return values | {"empty": _number_or_nan(names, "brevity_penalty", 0, 7)}


def means(names: Names) -> dict[str, Tensor]:
    """geometric_mean of two, three and four numbers, and with a zero."""
    cases = ([0.5, 0.125], [0.9, 0.5, 0.2], [0.8, 0.6, 0.3, 0.1], [1.0, 1.0])
    values = {str(numbers): _number(names, "geometric_mean", list(numbers)) for numbers in cases}
    return values | {"with zero": _number_or_nan(names, "geometric_mean", [0.5, 0.0])}


def _number_or_nan(names: Names, function: str, *inputs: Any) -> Tensor:
    """The number that a function returns, or NaN if it raises an error."""
    is_accepted = accepts(lambda: names[function](*inputs))
    return _number(names, function, *inputs) if is_accepted else torch.tensor(float("nan"), dtype=torch.float64)


def corpora(names: Names) -> dict[str, Tensor]:
    """corpus_bleu of several sentences with several references, for several max_n."""
    corpora: dict[str, Corpus] = {
        "all": ([CAT, DOG, LONG], [REFERENCES, DOGS[::-1], LONGS]),
        "short": ([LONG[:9], ["the", "cat"], DOG], [LONGS, [CAT], DOGS[:1]]),
        "too long": ([LONG, CAT], [[LONG[:12]], [CAT]]),
        "no 4-grams": ([DOG], [DOGS]),
    }
    values = {
        f"{name}, max_n={max_n}": _number(
            names, "corpus_bleu", _copy(hypotheses), [_copy(many) for many in references], max_n
        )
        for name, (hypotheses, references) in corpora.items()
        for max_n in (2, 3, 4)
    }
    few_words = _number_or_nan(names, "corpus_bleu", [["the", "cat"], ["dog"]], [[["the", "cat"]], [["a", "dog"]]])
    return values | {"no sentence of four words": few_words}


def sentences(names: Names) -> dict[str, Tensor]:
    """sentence_bleu of sentences with and without matching 4-grams, and of one that is shorter than four words."""
    cases = {
        "the cat": (CAT, REFERENCES),
        "the dog": (DOG, DOGS),
        "other references": (CAT, [*LONGS, CAT]),
        "long": (LONG, LONGS),
        "two words": (["the", "cat"], [CAT]),
        "too long": (LONG, [LONG[:12]]),
        "equal": (CAT, [CAT]),
        "no match": (["big"], [["cat", "sat"]]),
    }
    values = {name: _number(names, "sentence_bleu", list(one), _copy(many)) for name, (one, many) in cases.items()}
    return values | {"max_n=2": _number(names, "sentence_bleu", list(DOG), _copy(DOGS), 2)}
