"""What explains the attention of a text: the pattern of each head, and the vectors that give its weights."""

from collections.abc import Sequence
from typing import Any

from regard.data.tokenizer import Tokenizer
from regard.decoding.attention_maps import Observation
from regard.decoding.head_patterns import PATTERN_RULES, map_patterns
from regard.decoding.head_vectors import all_head_vectors
from regard.decoding.token_labels import token_labels

MAX_EXPLAINED_NUMBERS = 600_000
"""Maximum number of vector components and scores in a file: about 5 million bytes. A longer text gets none of them."""


def explanation_data(observed: Observation, tokenizer: Tokenizer, ends: Sequence[int]) -> dict[str, Any]:
    """Patterns and vectors of all heads as JSON data, in addition to `Attention.to_json`. `ends` are the end tokens."""
    attention = observed.attention
    patterns = {
        kind: [[vars(head) for head in layer] for layer in map_patterns(kind, each, attention.special)]
        for kind, each in attention.maps.items()
    }
    labels = token_labels(tokenizer.target_side, ends)
    return {"patterns": patterns, "pattern_rules": PATTERN_RULES, "ends": list(labels), **vectors_data(observed)}


def vectors_data(observed: Observation) -> dict[str, Any]:
    """The vectors of all heads as JSON data, by names such as "cross.1.2"; nothing if there are too many."""
    if _count_numbers(observed) > MAX_EXPLAINED_NUMBERS:
        return {}
    stored = {
        f"{name.kind}.{name.layer}.{name.head}": {
            key: value for key, value in vectors.to_json().items() if key not in ("weights", "output")
        }
        for name, vectors in all_head_vectors(observed.forward).items()
        if name.kind in observed.attention.maps
    }
    return {"head_vectors": stored}


def _count_numbers(observed: Observation) -> int:
    config = observed.forward.network.config
    width = 3 * config.d_model // config.heads
    return sum(
        map_.weights.shape[0]
        * map_.weights.shape[1]
        * (len(map_.keys) * width + 2 * len(map_.queries) * len(map_.keys))
        for map_ in observed.attention.maps.values()
    )
