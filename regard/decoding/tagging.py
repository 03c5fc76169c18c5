"""The label of each word of a text.

Dimensions: B rows, T tokens, K classes.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from regard.config import check_token_counts
from regard.data.tokenizer import Tokenizer
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.errors import TextError
from regard.model.transformer import Encoder

TAGGING_BATCH_TOKENS = 4_096
"""Tokens of a batch, padding included."""


class TaggedWord(NamedTuple):
    """A word with its most likely label."""

    word: str
    label: str
    probability: float


def tag_words(
    network: Encoder, tokenizer: Tokenizer, labels: Sequence[str], sentences: Sequence[Sequence[str]]
) -> list[list[TaggedWord]]:
    """The words of each sentence with their labels, which are read at the first token of each word.

    A word that the tokenizer drops, such as one of invisible characters, gets the label of the following token.
    """
    rows: list[list[int]] = []
    firsts: list[list[int]] = []  # position of the first token of each word
    for number, words in enumerate(tokenizer.encode_words(sentences)):
        rows.append([*tokenizer.before, *(id_ for ids in words for id_ in ids), *tokenizer.after])
        if words and not rows[-1]:
            raise TextError(number, len(sentences), "has no tokens: this tokenizer drops all of its words")
        starts = accumulate(map(len, words), initial=len(tokenizer.before))
        firsts.append([min(start, len(rows[-1]) - 1) for start, _ in zip(starts, words, strict=False)])
    check_token_counts([len(ids) for ids in rows], network.config.max_positions)
    tagged: list[list[TaggedWord]] = [[] for _ in sentences]
    lengths = {number: len(ids) for number, ids in enumerate(rows) if firsts[number]}
    for batch in batches_by_length(lengths, TAGGING_BATCH_TOKENS):
        raise_if_cancelled()
        for number, (classes, probabilities) in zip(
            batch, _predictions(network, [rows[n] for n in batch]), strict=True
        ):
            tagged[number] = [
                TaggedWord(word, labels[classes[first]], probabilities[first])
                for word, first in zip(sentences[number], firsts[number], strict=True)
            ]
    return tagged


@torch.inference_mode()
def _predictions(network: Encoder, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], list[float]]]:
    """The most likely class of each token of each row, and its probability."""
    tokens, lengths = pad_rows(rows, network.device)
    best = network(tokens, lengths).float().softmax(-1).max(-1)  # [B, T] each
    return zip(best.indices.tolist(), best.values.tolist(), strict=True)
