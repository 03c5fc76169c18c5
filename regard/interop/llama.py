"""Llama: a pre-norm decoder with RMSNorm, rotary positions, SwiGLU, grouped heads and optional biases."""

from typing import Any

from regard.config import ModelConfig
from regard.interop.architecture import Architecture
from regard.interop.rope_settings import read_rope, write_rope
from regard.interop.weight_rules import (
    StateDict,
    WeightRule,
    drop_pad_row,
    fold_embedding_scale,
    refuse_export,
    renamed,
    require_settings,
    rotate_halves,
)


def read_config(settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a Llama `config.json`."""
    require_settings(settings, where, hidden_act="silu", architectures=["LlamaForCausalLM"])
    base, scaling = read_rope(settings, where)
    attention_bias, bias = (settings.get(name, False) for name in ("attention_bias", "mlp_bias"))
    return ModelConfig(
        kind="decoder",
        vocab_size=settings["vocab_size"],
        pad=None,
        d_model=settings["hidden_size"],
        heads=settings["num_attention_heads"],
        kv_heads=settings.get("num_key_value_heads"),
        d_k=settings.get("head_dim"),
        d_v=settings.get("head_dim"),
        layers=settings["num_hidden_layers"],
        d_ff=settings["intermediate_size"],
        activation="swiglu",
        bias=bias,
        attention_bias=None if attention_bias is bias else attention_bias,
        norm="pre",
        norm_kind="rms",
        norm_eps=settings.get("rms_norm_eps", 1e-6),
        positions="rotary",
        max_length=settings.get("max_position_embeddings", 2048),
        rotary_base=base,
        rotary_scaling=scaling,
        scale_embeddings=False,
        tied=settings.get("tie_word_embeddings", False),
        dropout=0.0,
        attention_dropout=settings.get("attention_dropout", 0.0),
    )


def adapt(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model into an equivalent one that Llama can represent."""
    return drop_pad_row(*fold_embedding_scale(*rotate_halves(config, state)))


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Return the Llama `config.json` of a model."""
    d_k, d_v, groups = config.widths
    refuse_export(
        "Llama",
        {
            "its heads have keys and values of different widths": d_k != d_v,
            "its activation is not swiglu": config.activation != "swiglu",
            "its norms are not RMSNorm before each sub-layer": config.norm != "pre" or config.norm_kind != "rms",
            "it normalises its embeddings": config.embedding_norm,
            f"its positions are {config.positions}, but Llama's are rotary": config.positions != "rotary",
        },
    )
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.heads,
        "num_key_value_heads": groups,
        "head_dim": d_k,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.d_ff,
        "hidden_act": "silu",
        "attention_bias": config.projection_bias,
        "mlp_bias": config.bias,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_length,
        **write_rope(config),
        "tie_word_embeddings": config.tied,
        "attention_dropout": config.attention_dropout,
    }


def rules(config: ModelConfig) -> list[WeightRule]:
    """Return the rules that map Regard's tensors to those of Llama."""
    feed_forward_parts = ("weight", "bias") if config.bias else ("weight",)
    attention_parts = ("weight", "bias") if config.projection_bias else ("weight",)
    weight_rules = renamed("embedding.tokens", "model.embed_tokens", ["weight"]) + renamed(
        "decoder.norm", "model.norm", ["weight"]
    )
    for i in range(config.layers):
        ours, theirs = f"decoder.layers.{i}", f"model.layers.{i}"
        for our_name, their_name in {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "o_proj"}.items():
            weight_rules += renamed(f"{ours}.attention.{our_name}", f"{theirs}.self_attn.{their_name}", attention_parts)
        for our_name, their_name in {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}.items():
            weight_rules += renamed(f"{ours}.feed_forward.{our_name}", f"{theirs}.mlp.{their_name}", feed_forward_parts)
        weight_rules += renamed(f"{ours}.attention_norm", f"{theirs}.input_layernorm", ["weight"])
        weight_rules += renamed(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm", ["weight"])
    return weight_rules if config.tied else weight_rules + renamed("output", "lm_head", ["weight"])


ARCHITECTURE = Architecture(
    kind="decoder",
    prefix="model.",
    ignored_patterns=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"model\.rotary_emb\.inv_freq"),
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    tied_copies=lambda config: {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {},
)
