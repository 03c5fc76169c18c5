"""Models and attention weights for tests of what shows them."""

from typing import Any

import torch

from regard.config import SpecialIds
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.attention_maps import Attention, AttentionMap
from regard.decoding.logit_lens import LogitLens
from regard.decoding.text_model import Model
from regard.model.transformer import build
from tests.support.oracles import randomise, small

TEXTS = ["le chat noir dort sur le tapis", "the black cat sleeps on the mat", "une fille chante"] * 4
TOKENIZER = train_tokenizer(TEXTS, 320)
TRANSLATING = TOKENIZER.with_template(after=[TOKENIZER.end])
SPECIAL = SpecialIds(end=(TOKENIZER.end,), start=TOKENIZER.pad, separator=TOKENIZER.separator)
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "{{data}}",
    "\x1b[2J",
    "$\\frac{",
    "&lt;b&gt;",
    "[red]",
]


def stored(tokenizer: Tokenizer = TRANSLATING, special: SpecialIds = SPECIAL, **changes: Any) -> Model:
    """A small model with random weights."""
    network = build(small(vocab_size=TOKENIZER.size, max_length=64, **changes)).eval()
    randomise([network])
    return Model(network, tokenizer, special)


def language_model(**changes: Any) -> Model:
    """A small language model with random weights."""
    return stored(TOKENIZER, SpecialIds(end=(TOKENIZER.end,)), kind="decoder", **changes)


def made(tokens: list[str], layers: int = 2, heads: int = 3) -> Attention:
    """Random weights between these tokens, sharp enough to tell them apart."""
    t = len(tokens)
    weights = {kind: (torch.randn(layers, heads, t, t) * 2).softmax(-1) for kind in ("encoder", "decoder", "cross")}
    weights["decoder"] = weights["decoder"].tril() / weights["decoder"].tril().sum(-1, keepdim=True)
    names, writes = tuple(tokens), (*tokens[1:], "</s>")
    maps = {
        kind: AttentionMap(each, names, names, () if kind == "encoder" else writes) for kind, each in weights.items()
    }
    return Attention("made", " ".join(tokens), "target", maps, ("</s>",))  # type: ignore[arg-type]


def made_lens(tokens: list[str], layers: int = 2) -> LogitLens:
    """Predictions of each layer: at position t, in state i, the tokens from t + i, at 50, 25, 12.5%."""
    t = len(tokens)
    top = tuple(
        tuple(tuple((tokens[(row + state + n) % t], 0.5 ** (n + 1)) for n in range(3)) for row in range(t))
        for state in range(layers + 1)
    )
    return LogitLens(tuple(tokens), (*tokens[1:], "</s>"), top)
