"""Networks of every kind, and ways to decode with them, for tests of copies made for decoding."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.config import SpecialIds
from regard.decoding.options import Decoding
from regard.model.transformer import Decoder, EncoderDecoder, build
from tests.support.oracles import randomise, small

KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm, grouped, no bias": {"norm": "pre", "kv_heads": 2, "bias": False, "activation": "gelu"},
    "the paper's biases": {"attention_bias": False},
    "biases in attention only": {"bias": False, "attention_bias": True, "activation": "gelu-tanh"},
    "norms and biases of queries and keys": {"qk_norm": True, "bias": False, "attention_bias": "qkv"},
    "untied, output bias": {"tied": False, "output_bias": True, "activation": "silu"},
    "separate vocabularies": {"vocab_size": 23, "target_vocab_size": 37, "output_bias": True},
    "bart": {"positions": "learned", "embedding_norm": True, "separate_positions": True},
    "m2m100": {"norm": "pre", "sinusoids": "fairseq"},
    "gpt2": {"kind": "decoder", "norm": "pre", "positions": "learned", "scale_embeddings": False},
    "llama": {
        "kind": "decoder",
        "norm": "pre",
        "norm_kind": "rms",
        "positions": "rotary",
        "activation": "swiglu",
        "kv_heads": 2,
        "bias": False,
    },
    "qwen": {
        "kind": "decoder",
        "norm": "pre",
        "norm_kind": "rms",
        "positions": "rotary",
        "activation": "swiglu",
        "kv_heads": 2,
        "bias": False,
        "attention_bias": "qkv",
        "qk_norm": True,
    },
    "window": {"kind": "decoder", "positions": "rotary", "kv_heads": 2, "window": 4},
    "t5": {
        "positions": "t5",
        "activation": "geglu-tanh",
        "relative_buckets": 8,
        "relative_distance": 10,
        "attention_scale": 1.0,
        "norm": "pre",
        "norm_kind": "rms",
        "bias": False,
    },
    "alibi": {"kind": "decoder", "positions": "alibi", "kv_heads": 2, "window": 6},
    "prefix": {"kind": "decoder", "prefix": True, "d_k": 6, "d_v": 10},
    "final norm, adjacent pairs": {
        "final_norm": True,
        "positions": "rotary",
        "rotary_pairs": "adjacent",
        "rotary_scaling": {"kind": "yarn", "factor": 4.0, "original_length": 16},
    },
}
INPUTS = [[3, 4, 5], [6, 7, 8, 9, 10, 11], [12], [13, 14, 15, 16], [3, 9]]
SPECIAL = SpecialIds(start=30, end=(0,), separator=1)
WAYS = {
    "greedy": Decoding(max_tokens=9),
    "beam": Decoding(beam=4, n_best=3, max_tokens=9),
    "drawn": Decoding(temperature=1.0, top_k=9, seed=3, max_tokens=9),
    "without repetition": Decoding(beam=3, repetition_penalty=1.4, no_repeat_ngram=2, min_tokens=4, max_tokens=9),
}


def pairs_of(networks: Iterable[str], ways: Iterable[str], main_way: str) -> list[Any]:
    """Test cases (network, way): two networks in every way, and every network in the main way; the others are long."""

    def case(network: str, way: str) -> Any:
        common = network in ("paper", "llama")
        if common and way == main_way:
            return pytest.param(network, way)
        mark = pytest.mark.slow if common or way == main_way else pytest.mark.long
        return pytest.param(network, way, marks=mark)

    ways = list(ways)
    return [case(network, way) for network in networks for way in ways]


def special_of(kind: str) -> SpecialIds:
    """The special ids of a network of this kind."""
    return replace(SPECIAL, first=5) if kind == "m2m100" else SPECIAL


def network_of(kind: str) -> Decoder | EncoderDecoder:
    """A small network of this kind, with random weights."""
    torch.manual_seed(1)
    network = build(small(**{"max_length": 64} | KINDS[kind]))
    randomise([network])
    assert isinstance(network, Decoder | EncoderDecoder)
    return network.eval()
