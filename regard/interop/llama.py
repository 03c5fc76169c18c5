"""The shape of Llama: pre-norm decoder, RMSNorm, rotary positions, SwiGLU, grouped heads, biases only if asked for."""

from typing import Any

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.interop.architecture import Shape
from regard.interop.weight_rules import Rule, State, refuse, require, same, unscaled, without_pad


def read_config(told: dict[str, Any], where: str) -> ModelConfig:
    """What its `config.json` tells."""
    require(told, where, hidden_act="silu", architectures=["LlamaForCausalLM"])
    attention_bias, bias = (told.get(name, False) for name in ("attention_bias", "mlp_bias"))
    return ModelConfig(
        kind="decoder",
        vocab_size=told["vocab_size"],
        pad=None,
        d_model=told["hidden_size"],
        heads=told["num_attention_heads"],
        kv_heads=told.get("num_key_value_heads"),
        d_k=told.get("head_dim"),
        d_v=told.get("head_dim"),
        layers=told["num_hidden_layers"],
        d_ff=told["intermediate_size"],
        activation="swiglu",
        bias=bias,
        attention_bias=None if attention_bias is bias else attention_bias,
        norm="pre",
        norm_kind="rms",
        norm_eps=told.get("rms_norm_eps", 1e-6),
        positions="rotary",
        max_length=told.get("max_position_embeddings", 2048),
        rotary_base=_rotary_base(told, where),
        scale_embeddings=False,
        tied=told.get("tie_word_embeddings", False),
        dropout=0.0,
        attention_dropout=told.get("attention_dropout", 0.0),
    )


def _rotary_base(told: dict[str, Any], where: str) -> Any:
    """The base of the rotary wavelengths, which stands in one of three places, or in several and is the same."""
    places = [told, *(told.get(name) or {} for name in ("rope_parameters", "rope_scaling"))]
    for place in places:
        require(place, where, rope_type="default", type="default", partial_rotary_factor=1.0)
    bases = {place["rope_theta"] for place in places if place.get("rope_theta") is not None} or {10_000.0}
    if len(bases) > 1:
        raise RegardError(f"{where}: it tells several values of rope_theta: {sorted(bases)}")
    base = bases.pop()
    return float(base) if type(base) is int else base  # all else is for the config to judge


def adapt(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model in the terms of this shape."""
    return without_pad(*unscaled(config, state))


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Its `config.json`."""
    d_k, d_v, groups = config.widths
    refuse(
        "Llama",
        {
            "its heads have values of another width than their keys": d_k != d_v,
            "its activation is not swiglu": config.activation != "swiglu",
            "its norms are not RMSNorm before each sub-layer": config.norm != "pre" or config.norm_kind != "rms",
            "it normalises its embeddings": config.embedding_norm,
            f"its positions are {config.positions}, and Llama's are rotary": config.positions != "rotary",
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
        "rope_theta": config.rotary_base,
        "tie_word_embeddings": config.tied,
        "attention_dropout": config.attention_dropout,
    }


def rules(config: ModelConfig) -> list[Rule]:
    """Which tensor is which."""
    feed_forward_parts = ("weight", "bias") if config.bias else ("weight",)
    attention_parts = ("weight", "bias") if config.projection_bias else ("weight",)
    found = same("embedding.tokens", "model.embed_tokens", ["weight"]) + same("decoder.norm", "model.norm", ["weight"])
    for i in range(config.layers):
        ours, theirs = f"decoder.layers.{i}", f"model.layers.{i}"
        for mine, other in {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "o_proj"}.items():
            found += same(f"{ours}.attention.{mine}", f"{theirs}.self_attn.{other}", attention_parts)
        for mine, other in {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}.items():
            found += same(f"{ours}.feed_forward.{mine}", f"{theirs}.mlp.{other}", feed_forward_parts)
        found += same(f"{ours}.attention_norm", f"{theirs}.input_layernorm", ["weight"])
        found += same(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm", ["weight"])
    return found if config.tied else found + same("output", "lm_head", ["weight"])


SHAPE = Shape(
    base="model.",
    ignored=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"model\.rotary_emb\.inv_freq"),
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    copies=lambda config: {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {},
)
