"""Small networks of every shape."""

import torch
from torch import Tensor

from regard.config import ModelConfig
from regard.model.transformer import Transformer, build
from tests.support.oracles import small

SHAPES: dict[str, ModelConfig] = {
    "paper": small(),
    "pre-norm": small(norm="pre", activation="gelu", decoder_layers=3),
    "uneven": small(d_k=5, d_v=7, kv_heads=2, positions="learned", tied=False),
    "rotary": small(positions="rotary", activation="silu"),
    "separate vocabularies": small(target_vocab_size=37, positions="learned", embedding_norm=True),
    "gpt2": small(
        kind="decoder", norm="pre", activation="gelu-tanh", positions="learned", pad=None, scale_embeddings=False
    ),
    "llama": small(
        kind="decoder",
        norm="pre",
        norm_kind="rms",
        activation="swiglu",
        positions="rotary",
        kv_heads=2,
        bias=False,
        pad=None,
        scale_embeddings=False,
    ),
    "window": small(kind="decoder", norm="pre", positions="rotary", kv_heads=2, window=3),
    "t5": small(
        norm="pre",
        norm_kind="rms",
        positions="t5",
        relative_buckets=8,
        relative_distance=6,
        attention_scale=1.0,
        d_k=8,
        d_v=8,
        bias=False,
        scale_embeddings=False,
    ),
    "alibi": small(kind="decoder", positions="alibi", kv_heads=2),
    "tagger": small(kind="encoder", norm="pre", positions="rotary", classes=5, classes_per="token"),
    "alibi encoder": small(kind="encoder", positions="alibi"),
    "post-norm decoder": small(kind="decoder"),
    "bert": small(
        kind="encoder", activation="gelu", positions="learned", pad=0, scale_embeddings=False, embedding_norm=True
    ),
}
"""Small models of every shape that Regard supports."""
DECODERS = [name for name, config in SHAPES.items() if config.kind == "decoder"]
PAIRS = [name for name, config in SHAPES.items() if config.kind == "encoder-decoder"]


def model_of(name: str) -> Transformer:
    """A model of this shape in float64, with random norms and biases."""
    model = build(SHAPES[name]).double().eval()
    with torch.no_grad():  # norms and biases start at one and zero, which would hide mistakes
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) / 3)
    return model


def ids(*shape: int) -> Tensor:
    """Random token ids."""
    return torch.randint(1, 30, shape)
