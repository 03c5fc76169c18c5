"""Names for what a head does, by measured rules: previous token, first token, aligned, broad …

Dimensions: L layers, H heads, T queries (rows), S keys (columns).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.decoding.attention_maps import AttentionKind, AttentionMap

MOST = 0.4
"""Share of the weight from which a head has a pattern."""
ALIGNED_ROWS = 0.5
"""Minimum number of different keys that the rows of an aligned head have their largest weight on, per row."""
BROAD_ENTROPY = 0.75
"""Share of the largest possible entropy from which a head is broad."""

PATTERN_RULES = {
    "previous token": f"at least {MOST:.0%} of the weight is on the token before the query's",
    "next token": f"at least {MOST:.0%} of the weight is on the token after the query's",
    "same token": f"at least {MOST:.0%} of the weight is on the query's own token",
    "first token": f"at least {MOST:.0%} of the weight is on the first token, often a sink for unused attention",
    "sink": f"for words, at least {MOST:.0%} of the weight is on special tokens and punctuation",
    "aligned": f"for words, the largest weight is {MOST:.0%} or more on average, and they have it on different source "
    f"tokens: at least {ALIGNED_ROWS:.0%} as many as words, special tokens not counted",
    "broad": f"the entropy of a row is at least {BROAD_ENTROPY:.0%} of the largest possible one, on average",
    "mixed": "none of the other rules applies",
}
"""The rule that gives each label. The first one that applies does."""


@dataclass(frozen=True)
class HeadPattern:
    """The label of a head, and the measured share that gave it the label (0 for a mixed head)."""

    label: str
    share: float


def map_patterns(kind: AttentionKind, attention_map: AttentionMap, special: Sequence[str]) -> list[list[HeadPattern]]:
    """The pattern of every head, by layer. `special` has the labels of special tokens."""
    tokens = [write or read for read, write in zip_longest(attention_map.queries, attention_map.writes, fillvalue="")]
    words, keys = (
        torch.tensor([label not in special and any(c.isalnum() for c in label) for label in labels])
        for labels in (tokens, attention_map.keys)
    )
    named = torch.tensor([key in special for key in attention_map.keys])
    rows = words if words.any() else torch.ones_like(words)
    return [[head_pattern(kind, head, rows, ~keys, named) for head in layer] for layer in attention_map.weights]


def head_pattern(
    kind: AttentionKind,
    weights: Float[Tensor, "T S"],
    words: Bool[Tensor, " T"],
    sinks: Bool[Tensor, " S"],
    special: Bool[Tensor, " S"],
) -> HeadPattern:
    """The pattern of one head. `words` are the rows of words; `sinks` are special tokens and punctuation.

    Other rows do not count for sinks and alignments: the end of a text may well attend to the end of another.
    """
    shares: dict[str, float] = {}
    if kind != "cross":
        shares["previous token"] = _average(weights.diagonal(-1))
        if kind == "encoder":
            shares["next token"] = _average(weights.diagonal(1))
        rows = weights[1:]  # in a decoder, the first row has no choice
        shares["same token"] = _average(rows.diagonal(1))
        shares["first token"] = _average(rows[:, 0])
    shares["sink"] = _average(weights[words][:, sinks].sum(-1))
    for label, share in shares.items():
        if share >= MOST:
            return HeadPattern(label, share)
    largest, columns = weights[words].max(-1)
    different = len(set(columns[~special[columns]].tolist())) / max(1, len(largest))
    if kind == "cross" and _average(largest) >= MOST and different >= ALIGNED_ROWS:
        return HeadPattern("aligned", _average(largest))
    if (entropy := _relative_entropy(weights)) >= BROAD_ENTROPY:
        return HeadPattern("broad", entropy)
    return HeadPattern("mixed", 0.0)


def _average(values: Float[Tensor, " N"]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _relative_entropy(weights: Float[Tensor, "T S"]) -> float:
    """The mean entropy of the rows, relative to that of equal weights on the keys that each row may attend to."""
    possible = (weights > 0).sum(-1)  # [T]
    rows, counts = weights[possible > 1], possible[possible > 1]
    return _average(torch.special.entr(rows).sum(-1) / counts.log())
