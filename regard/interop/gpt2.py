"""The shape of GPT-2: pre-norm decoder, LayerNorm, learned positions, matrices kept the other way round."""

from typing import Any

from regard.config import ModelConfig
from regard.interop.activation_names import activation_in, activation_out
from regard.interop.architecture import Shape
from regard.interop.weight_rules import (
    Rule,
    State,
    plain,
    refuse,
    require,
    same,
    transposed,
    uneven_heads,
    unscaled,
    with_table,
    without_pad,
)


def read_config(told: dict[str, Any], where: str) -> ModelConfig:
    """What its `config.json` tells."""
    require(told, where, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    require(told, where, architectures=["GPT2LMHeadModel"])
    width = told["n_embd"]
    return ModelConfig(
        kind="decoder",
        vocab_size=told["vocab_size"],
        pad=None,
        d_model=width,
        heads=told["n_head"],
        layers=told["n_layer"],
        d_ff=told.get("n_inner") or 4 * width,
        activation=activation_in(told.get("activation_function", "gelu_new"), where),
        norm="pre",
        norm_eps=told.get("layer_norm_epsilon", 1e-5),
        positions="learned",
        max_length=told.get("n_positions", 1024),
        scale_embeddings=False,
        tied=told.get("tie_word_embeddings", True),
        dropout=told.get("resid_pdrop", 0.1),
        attention_dropout=told.get("attn_pdrop", 0.1),
    )


def adapt(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model in the terms of this shape."""
    return without_pad(*with_table(*unscaled(*plain(config, state))))


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Its `config.json`."""
    refuse(
        "GPT-2",
        uneven_heads(config)
        | {
            "its norms are not LayerNorm before each sub-layer": config.norm != "pre" or config.norm_kind != "layer",
            "it normalises its embeddings": config.embedding_norm,
            "it has rotary positions, which of decoders those of Llama's shape have": config.positions == "rotary",
        },
    )
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_head": config.heads,
        "n_layer": config.layers,
        "n_inner": config.d_ff,
        "n_positions": config.max_length,
        "activation_function": activation_out(config, "GPT-2"),
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


def rules(config: ModelConfig) -> list[Rule]:
    """Which tensor is which."""
    found = same("embedding.tokens", "transformer.wte", ["weight"])
    found += same("embedding.positions", "transformer.wpe", ["weight"]) + same("decoder.norm", "transformer.ln_f")
    for i in range(config.layers):
        ours, theirs = f"decoder.layers.{i}", f"transformer.h.{i}"
        found += transposed([f"{ours}.attention.{part}" for part in "qkv"], f"{theirs}.attn.c_attn")
        found += transposed([f"{ours}.attention.out"], f"{theirs}.attn.c_proj")
        found += transposed([f"{ours}.feed_forward.up"], f"{theirs}.mlp.c_fc")
        found += transposed([f"{ours}.feed_forward.down"], f"{theirs}.mlp.c_proj")
        found += same(f"{ours}.attention_norm", f"{theirs}.ln_1") + same(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
    return found if config.tied else found + same("output", "lm_head", ["weight"])


SHAPE = Shape(
    base="transformer.",
    ignored=(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",),  # masks that early versions saved
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    copies=lambda config: {"lm_head.weight": "transformer.wte.weight"} if config.tied else {},
)
