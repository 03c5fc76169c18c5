"""Probes of a byte-pair tokenizer: pairs and merges as tables of ids, texts as their bytes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Names
from regard.course.probe_values import accepts, padded, text_value, token_row, written_parts

SMALL = "low low low lower newest new newest wide"
TEXT = "the cat and the hat: that cat sat on the mat, the fat cat ate the rat.\nThe é of café, naïve aaaa aaa banana"
WORDS = {(1, 2, 1, 2, 3): 4, (2, 1): 3, (1, 1, 1): 2, (5,): 9, (2, 3, 2): 1}
"""Words of ids with their counts."""
MERGES = [(97, 116), (104, 101), (32, 256), (97, 97), (32, 116), (260, 257), (259, 97), (256, 256), (195, 169)]
"""Merges that overlap: `at`, `he`, ` at`, `aa`, ` t`, ` the`, `aaa`, `atat` and `é`."""


def _pairs(value: Any, name: str) -> Tensor:
    """A list of pairs as rows of two ids."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} returned {type(value).__name__}, but a list of pairs was expected")
    return padded([token_row(pair, f"a pair of {name}") for pair in value], 2)


def _counts(value: Any) -> Tensor:
    """Pairs with their counts, in the order of the pairs."""
    if not isinstance(value, Mapping):
        raise TypeError(f"count_pairs returned {type(value).__name__}, but a dictionary was expected")
    return padded(sorted([*token_row(pair, "a pair"), int(count)] for pair, count in value.items() if count), 3)


def _ids(value: Any, name: str) -> Tensor:
    return torch.tensor(token_row(value, name), dtype=torch.long)


def example(names: Names) -> dict[str, Tensor]:
    """A short text: the pairs of two words, one merge, three merges of the text, and ids."""
    merges = [(108, 111), (256, 119), (32, 257)]
    return written_parts(
        {
            "pairs": lambda: _counts(names["count_pairs"]({(1, 2, 3): 2, (2, 3): 1})),
            "merged": lambda: _ids(names["merge"]([1, 2, 3, 2, 3], (2, 3), 9), "merge"),
            "merges": lambda: _pairs(names["train"](SMALL, 3), "train"),
            "ids": lambda: _ids(names["encode"]("low lower", merges), "encode"),
            "text": lambda: text_value(names["decode"]([257, 258, 101, 114], merges), "decode"),
        }
    )


def pairs(names: Names) -> dict[str, Tensor]:
    """The pairs of words that occur several times, with repeated ids."""
    words = {"all": dict(WORDS), "one word": {(7, 8, 8, 8, 7): 1}}
    return {name: _counts(names["count_pairs"](ids)) for name, ids in words.items()}


def merging(names: Names) -> dict[str, Tensor]:
    """Merges at the beginning, in the middle and at the end, of repeated ids, of a tuple, and of none."""
    ids = [1, 2, 3, 1, 2, 1, 2]
    cases: dict[str, tuple[Any, tuple[int, int]]] = {
        "a list": (ids, (1, 2)),
        "a tuple": (tuple(ids), (1, 2)),
        "repeated": ([1] * 5, (1, 1)),
        "the other order": ([2, 1, 2, 1], (2, 1)),
        "none": ([3, 1, 3], (1, 2)),
        "empty": ([], (1, 2)),
    }
    values = {name: _ids(names["merge"](word, pair, 9), "merge") for name, (word, pair) in cases.items()}
    return values | {"ids are unchanged": torch.tensor(ids == [1, 2, 3, 1, 2, 1, 2])}


def training(names: Names) -> dict[str, Tensor]:
    """The merges of two texts, with ties, accents and repeated letters."""
    return {
        "eight merges": _pairs(names["train"](SMALL, 8), "train"),
        "thirty merges": _pairs(names["train"](TEXT, 30), "train"),
        "accents": _pairs(names["train"]("é éé éé 語語 語", 6), "train"),
    }


def short_texts(names: Names) -> dict[str, Tensor]:
    """Texts in which there is nothing left to merge."""
    accepted = {text: accepts(partial(names["train"], text, 9)) for text in ("ab ab", "a", "")}
    values = {f"{text!r} accepted": value for text, value in accepted.items()}
    values |= {f"{text!r}": _pairs(names["train"](text, 9), "train") for text, works in accepted.items() if works}
    return values | {"no merges": _pairs(names["train"](SMALL, 0), "train")}


def encoding(names: Names) -> dict[str, Tensor]:
    """Texts with merges that overlap, with spaces, and with letters that were never merged."""
    texts = ["that atat at", "the  hat\n\n the", "aaaaa aaa aat", "café é 語", "theat xyz", "The hAT", ""]
    values = {repr(text): _ids(names["encode"](text, list(MERGES)), "encode") for text in texts}
    return values | {"without merges": _ids(names["encode"]("the hat", []), "encode")}


def decoding(names: Names) -> dict[str, Tensor]:
    """Ids of merges, characters of several bytes, and bytes that are not valid UTF-8."""

    def text(*ids: int) -> Tensor:
        return text_value(names["decode"](list(ids), list(MERGES)), "decode")

    values = {
        "merges": text(261, 258, 32, 262, 263, 32),
        "accents": text(99, 264, 195, 169, 232, 170, 158),
        "no ids": text(),
        "invalid bytes accepted": accepts(lambda: text(97, 195, 98, 255)),
    }
    return values | ({"invalid bytes": text(97, 195, 98, 255)} if values["invalid bytes accepted"] else {})
