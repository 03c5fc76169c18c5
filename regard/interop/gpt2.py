"""GPT-2: a pre-norm decoder with LayerNorm and learned positions, whose weight matrices are stored transposed."""

from typing import Any

from regard.config import ModelConfig
from regard.interop.activation_names import huggingface_activation, regard_activation
from regard.interop.architecture import Architecture
from regard.interop.weight_rules import (
    StateDict,
    WeightRule,
    drop_pad_row,
    expand_biases_and_heads,
    fold_embedding_scale,
    refuse_export,
    renamed,
    require_settings,
    transposed_linears,
    uneven_heads_reason,
    with_position_table,
)


def read_config(settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a GPT-2 `config.json`."""
    require_settings(
        settings, where, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False
    )
    require_settings(settings, where, architectures=["GPT2LMHeadModel"])
    width = settings["n_embd"]
    return ModelConfig(
        kind="decoder",
        vocab_size=settings["vocab_size"],
        pad=None,
        d_model=width,
        heads=settings["n_head"],
        layers=settings["n_layer"],
        d_ff=settings.get("n_inner") or 4 * width,
        activation=regard_activation(settings.get("activation_function", "gelu_new"), where),
        norm="pre",
        norm_eps=settings.get("layer_norm_epsilon", 1e-5),
        positions="learned",
        max_length=settings.get("n_positions", 1024),
        scale_embeddings=False,
        tied=settings.get("tie_word_embeddings", True),
        dropout=settings.get("resid_pdrop", 0.1),
        attention_dropout=settings.get("attn_pdrop", 0.1),
    )


def adapt(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model into an equivalent one that GPT-2 can represent."""
    return drop_pad_row(*with_position_table(*fold_embedding_scale(*expand_biases_and_heads(config, state))))


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Return the GPT-2 `config.json` of a model."""
    refuse_export(
        "GPT-2",
        uneven_heads_reason(config)
        | {
            "its norms are not LayerNorm before each sub-layer": config.norm != "pre" or config.norm_kind != "layer",
            "it normalises its embeddings": config.embedding_norm,
            f"its positions are {config.positions}, but GPT-2's are learned (for rotary positions, Llama with "
            'norm_kind = "rms" is exported)': config.positions != "learned",
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
        "activation_function": huggingface_activation(config, "GPT-2"),
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


def rules(config: ModelConfig) -> list[WeightRule]:
    """Return the rules that map Regard's tensors to those of GPT-2."""
    weight_rules = renamed("embedding.tokens", "transformer.wte", ["weight"])
    weight_rules += renamed("embedding.positions", "transformer.wpe", ["weight"]) + renamed(
        "decoder.norm", "transformer.ln_f"
    )
    for i in range(config.layers):
        ours, theirs = f"decoder.layers.{i}", f"transformer.h.{i}"
        weight_rules += transposed_linears([f"{ours}.attention.{part}" for part in "qkv"], f"{theirs}.attn.c_attn")
        weight_rules += transposed_linears([f"{ours}.attention.out"], f"{theirs}.attn.c_proj")
        weight_rules += transposed_linears([f"{ours}.feed_forward.up"], f"{theirs}.mlp.c_fc")
        weight_rules += transposed_linears([f"{ours}.feed_forward.down"], f"{theirs}.mlp.c_proj")
        weight_rules += renamed(f"{ours}.attention_norm", f"{theirs}.ln_1") + renamed(
            f"{ours}.feed_forward_norm", f"{theirs}.ln_2"
        )
    return weight_rules if config.tied else weight_rules + renamed("output", "lm_head", ["weight"])


ARCHITECTURE = Architecture(
    kind="decoder",
    prefix="transformer.",
    ignored_patterns=(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",),  # masks saved by early versions
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    tied_copies=lambda config: {"lm_head.weight": "transformer.wte.weight"} if config.tied else {},
)
