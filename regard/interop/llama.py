"""Llama and its relatives: pre-norm decoders with RMSNorm, rotary positions, SwiGLU and grouped heads.

Mistral, Qwen2 and Qwen3 differ from Llama in which biases they have, in norms of queries and keys, and in the window of
attention. `LlamaShape` describes each of them; the code is the same for all.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.formatting import quoted
from regard.interop.architecture import Architecture
from regard.interop.rope_settings import read_rope, write_rope
from regard.interop.weight_rules import (
    StateDict,
    WeightRule,
    drop_pad_row,
    fold_embedding_scale,
    refuse_export,
    renamed,
    renamed_layers,
    require_settings,
    rotate_halves,
)

PROJECTION_NAMES = {f"attention.{part}": f"self_attn.{part}_proj" for part in "qkv"}
OUT_NAMES = {"attention.out": "self_attn.o_proj"}
FEED_FORWARD_NAMES = {
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
NORM_NAMES = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}
QK_NORM_NAMES = {"attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm"}
FULL, SLIDING = "full_attention", "sliding_attention"
"""Names of the two kinds of layers in `layer_types`."""


@dataclass(frozen=True)
class LlamaShape:
    """What one of these architectures calls itself, and where it differs from Llama."""

    title: str
    """Its name in messages."""
    model_type: str
    class_name: str
    attention_bias: bool | Literal["qkv"] | None = False
    """Which projections of attention have biases; None if the setting attention_bias says whether all of them do."""
    feed_forward_bias: bool = False
    """Whether the setting mlp_bias exists; otherwise the feed-forward network has no biases."""
    qk_norm: bool = False
    window: Literal["none", "every layer", "by layer"] = "none"
    """Whether attention may have a window, and whether layers may differ in it."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Values of settings that a `config.json` may omit, where they differ from Llama's."""


LLAMA = LlamaShape("Llama", "llama", "LlamaForCausalLM", attention_bias=None, feed_forward_bias=True)
MISTRAL = LlamaShape(
    "Mistral",
    "mistral",
    "MistralForCausalLM",
    window="every layer",
    defaults={"num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096},
)
QWEN2 = LlamaShape(
    "Qwen2",
    "qwen2",
    "Qwen2ForCausalLM",
    attention_bias="qkv",
    window="by layer",
    defaults={"num_key_value_heads": 32, "max_position_embeddings": 32_768, "sliding_window": 4096},
)
QWEN3 = LlamaShape(
    "Qwen3",
    "qwen3",
    "Qwen3ForCausalLM",
    attention_bias=None,
    qk_norm=True,
    window="by layer",
    defaults={
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
        "head_dim": 128,
        "sliding_window": 4096,
    },
)


def read_config(shape: LlamaShape, settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a `config.json`."""
    settings = shape.defaults | settings
    require_settings(settings, where, hidden_act="silu", architectures=[shape.class_name])
    base, scaling = read_rope(settings, where)
    bias = settings.get("mlp_bias", False) if shape.feed_forward_bias else False
    attention_bias = shape.attention_bias
    if attention_bias is None:
        attention_bias = settings.get("attention_bias", False)
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
        qk_norm=shape.qk_norm,
        norm="pre",
        norm_kind="rms",
        norm_eps=settings.get("rms_norm_eps", 1e-6),
        positions="rotary",
        max_length=settings.get("max_position_embeddings", 2048),
        rotary_base=base,
        rotary_scaling=scaling,
        window=_read_window(shape, settings, where),
        scale_embeddings=False,
        tied=settings.get("tie_word_embeddings", False),
        dropout=0.0,
        attention_dropout=settings.get("attention_dropout", 0.0),
    )


def _read_window(shape: LlamaShape, settings: dict[str, Any], where: str) -> int | None:
    """Return the window of all layers, or None; raise RegardError if layers differ."""
    layers, window = settings["num_hidden_layers"], settings.get("sliding_window")
    if shape.window == "none":
        return None
    if shape.window == "every layer":
        require_settings(settings, where, layer_types=[FULL if window is None else SLIDING] * layers)
        return window
    if not settings.get("use_sliding_window"):
        window = None
    first_with_window = layers if window is None else settings.get("max_window_layers", 28)
    types = settings.get("layer_types") or [SLIDING if i >= first_with_window else FULL for i in range(layers)]
    if not set(types) <= {FULL, SLIDING}:
        raise RegardError(f"{where}: layer_types={quoted(types)}: Regard has only {FULL} and {SLIDING}")
    if len(set(types)) > 1:
        raise RegardError(f"{where}: its layers have different windows (layer_types); Regard has one for all layers")
    return window if SLIDING in types else None


def adapt(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model into an equivalent one that these architectures can represent."""
    return drop_pad_row(*fold_embedding_scale(*rotate_halves(config, state)))


def write_config(shape: LlamaShape, config: ModelConfig) -> dict[str, Any]:
    """Return the `config.json` of a model."""
    d_k, d_v, groups = config.widths
    title, attention_bias = shape.title, config.bias if config.attention_bias is None else config.attention_bias
    biases = "true or false" if shape.attention_bias is None else shape.attention_bias
    refuse_export(
        title,
        {
            "its heads have keys and values of different widths": d_k != d_v,
            "its activation is not swiglu": config.activation != "swiglu",
            "its norms are not RMSNorm before each sub-layer": config.norm != "pre" or config.norm_kind != "rms",
            "it normalises its embeddings": config.embedding_norm,
            f"its positions are {config.positions}, but {title}'s are rotary": config.positions != "rotary",
            f"its feed-forward networks have biases, but {title}'s do not": config.bias and not shape.feed_forward_bias,
            f"its attention_bias is {attention_bias}, but {title}'s is {biases}": attention_bias
            not in ((True, False) if shape.attention_bias is None else (shape.attention_bias,)),
            f"its qk_norm is {config.qk_norm}, but {title}'s is {shape.qk_norm}": config.qk_norm != shape.qk_norm,
            f"its attention has a window, but {title}'s has none": config.window is not None and shape.window == "none",
        },
    )
    return {
        "architectures": [shape.class_name],
        "model_type": shape.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.heads,
        "num_key_value_heads": groups,
        "head_dim": d_k,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.d_ff,
        "hidden_act": "silu",
        **({"attention_bias": attention_bias} if shape.attention_bias is None else {}),
        **({"mlp_bias": config.bias} if shape.feed_forward_bias else {}),
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_length,
        **write_rope(config),
        **_write_window(shape, config),
        "tie_word_embeddings": config.tied,
        "attention_dropout": config.attention_dropout,
    }


def _write_window(shape: LlamaShape, config: ModelConfig) -> dict[str, Any]:
    if shape.window == "none":
        return {}
    if shape.window == "every layer":
        return {"sliding_window": config.window}
    has_window = config.window is not None
    return {
        "use_sliding_window": has_window,
        "sliding_window": config.window,
        "max_window_layers": 0 if has_window else config.layers,
        "layer_types": [SLIDING if has_window else FULL] * config.layers,
    }


def rules(config: ModelConfig) -> list[WeightRule]:
    """Return the rules that map Regard's tensors to theirs."""
    names_with_parts = (
        (PROJECTION_NAMES, config.projection_bias),
        (OUT_NAMES, config.out_projection_bias),
        (FEED_FORWARD_NAMES, config.bias),
        (NORM_NAMES | (QK_NORM_NAMES if config.qk_norm else {}), False),
    )
    weight_rules = renamed("embedding.tokens", "model.embed_tokens", ["weight"]) + renamed(
        "decoder.norm", "model.norm", ["weight"]
    )
    for names, has_bias in names_with_parts:
        parts = ("weight", "bias") if has_bias else ("weight",)
        weight_rules += renamed_layers("decoder.layers", "model.layers", config.layers, names, parts)
    return weight_rules if config.tied else weight_rules + renamed("output", "lm_head", ["weight"])


def architecture(shape: LlamaShape) -> Architecture:
    """Return the architecture of this shape."""
    return Architecture(
        kind="decoder",
        prefix="model.",
        ignored_patterns=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"model\.rotary_emb\.inv_freq"),
        read_config=partial(read_config, shape),
        write_config=partial(write_config, shape),
        adapt=adapt,
        rules=rules,
        tied_copies=lambda config: {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {},
    )


ARCHITECTURES = {shape.model_type: architecture(shape) for shape in (LLAMA, MISTRAL, QWEN2, QWEN3)}
