"""T5, original and version 1.1: a pre-norm encoder–decoder with RMSNorm, no biases, and a relative bias on the scores.

T5 does not scale its attention scores. The original multiplies the vectors for its tied output layer by 1 / √d_model;
here that factor is part of the decoder's final norm. Version 1.1 has an output layer of its own, without the factor.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.config import ModelConfig
from regard.interop.activation_names import huggingface_activation, regard_activation
from regard.interop.architecture import Architecture
from regard.interop.weight_rules import (
    StateDict,
    WeightRule,
    fold_embedding_scale,
    refuse_export,
    renamed,
    renamed_layers,
    require_settings,
)

GATED_ACTIVATIONS: dict[str, Any] = {"gated-gelu": "geglu-tanh", "gated-gelu_new": "geglu-tanh", "gated-silu": "swiglu"}
"""Our names of the activations with a gate, by the values of feed_forward_proj."""
SELF_ATTENTION = {f"attention.{part}": f"layer.0.SelfAttention.{part}" for part in "qkv"}
SELF_ATTENTION |= {"attention.out": "layer.0.SelfAttention.o", "attention_norm": "layer.0.layer_norm"}
CROSS_ATTENTION = {
    f"cross_{ours}": theirs.replace("layer.0", "layer.1").replace("SelfAttention", "EncDecAttention")
    for ours, theirs in SELF_ATTENTION.items()
}
EMBEDDING_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def read_config(settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a T5 `config.json`."""
    require_settings(settings, where, architectures=["T5ForConditionalGeneration"], is_decoder=False)
    activation = settings.get("feed_forward_proj", "relu")
    # Recent versions of transformers write tie_word_embeddings = true for version 1.1 too.
    tied = settings.get("tie_word_embeddings", True) and settings.get("scale_decoder_outputs", True)
    dropout = settings.get("dropout_rate", 0.1)
    return ModelConfig(
        vocab_size=settings["vocab_size"],
        pad=settings.get("pad_token_id", 0),
        d_model=settings["d_model"],
        heads=settings["num_heads"],
        d_k=settings["d_kv"],
        d_v=settings["d_kv"],
        layers=settings["num_layers"],
        decoder_layers=settings.get("num_decoder_layers"),
        d_ff=settings["d_ff"],
        activation=GATED_ACTIVATIONS.get(activation) or regard_activation(activation, where),
        bias=False,
        norm="pre",
        norm_kind="rms",
        norm_eps=settings.get("layer_norm_epsilon", 1e-6),
        positions="t5",
        relative_buckets=settings.get("relative_attention_num_buckets", 32),
        relative_distance=settings.get("relative_attention_max_distance", 128),
        attention_scale=1.0,
        scale_embeddings=False,
        tied=tied,
        dropout=dropout,
        attention_dropout=dropout,
        feed_forward_dropout=dropout,
    )


def adapt(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model into an equivalent one that T5 can represent: the scale of the scores moves to the queries."""
    config, state = fold_embedding_scale(config, state)
    d_k, _, _ = config.widths
    scale = d_k**-0.5 if config.attention_scale is None else config.attention_scale
    queries = {name: tensor * scale for name, tensor in state.items() if name.endswith("attention.q.weight")}
    return replace(config, attention_scale=1.0), state | queries


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Return the T5 `config.json` of a model."""
    d_k, d_v, groups = config.widths
    refuse_export(
        "T5",
        {
            "its heads have keys and values of different widths": d_k != d_v,
            "its query heads share keys and values (kv_heads)": groups != config.heads,
            "its linear layers have biases": config.bias or config.projection_bias,
            "its norms are not RMSNorm before each sub-layer": config.norm != "pre" or config.norm_kind != "rms",
            "it normalises its embeddings": config.embedding_norm,
            f"its positions are {config.positions}, but T5's are a relative bias": config.positions != "t5",
            "it has an output_bias or output_transform": config.output_bias or config.output_transform,
            "<pad> is the last id, which is never predicted, but T5 predicts all ids": config.pad_is_last,
            "source and target have separate vocabularies": config.target_vocab_size is not None,
        },
    )
    gated = {ours: theirs for theirs, ours in reversed(GATED_ACTIVATIONS.items())}
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": d_k,
        "d_ff": config.d_ff,
        "num_layers": config.layers,
        "num_decoder_layers": config.decoder_depth,
        "num_heads": config.heads,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "feed_forward_proj": gated.get(config.activation) or huggingface_activation(config, "T5"),
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.tied,
        "dropout_rate": config.dropout,
    }


def rules(config: ModelConfig) -> list[WeightRule]:
    """Return the rules that map Regard's tensors to those of T5."""
    weight_rules = renamed("embedding.tokens", "shared", ["weight"])
    for side, attentions in (("encoder", SELF_ATTENTION), ("decoder", SELF_ATTENTION | CROSS_ATTENTION)):
        count = config.layers if side == "encoder" else config.decoder_depth
        names = attentions | _feed_forward(config, f"layer.{1 if side == 'encoder' else 2}")
        weight_rules += renamed_layers(f"{side}.layers", f"{side}.block", count, names, ["weight"])
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        weight_rules += renamed(f"{side}.score_bias.table", table, ["weight"])
    weight_rules += renamed("encoder.norm", "encoder.final_layer_norm", ["weight"])
    if not config.tied:
        weight_rules += renamed("output", "lm_head", ["weight"])
        return weight_rules + renamed("decoder.norm", "decoder.final_layer_norm", ["weight"])
    factor = config.d_model**-0.5

    def read(weight: Tensor) -> tuple[Tensor]:
        return (weight * factor,)

    def write(weight: Tensor) -> tuple[Tensor]:
        return (weight / factor,)

    norm = ("decoder.norm.weight",), ("decoder.final_layer_norm.weight",)
    return [*weight_rules, WeightRule(*norm, read, write)]


def _feed_forward(config: ModelConfig, layer: str) -> dict[str, str]:
    inner = {"up": "wi_1", "gate": "wi_0"} if config.is_gated else {"up": "wi"}
    names = {f"feed_forward.{ours}": f"{layer}.DenseReluDense.{theirs}" for ours, theirs in inner.items()}
    names["feed_forward.down"] = f"{layer}.DenseReluDense.wo"
    return names | {"feed_forward_norm": f"{layer}.layer_norm"}


def tied_copies(config: ModelConfig) -> dict[str, str]:
    """Return the names under which some folders store the one embedding again."""
    return dict.fromkeys((*EMBEDDING_COPIES, "lm_head.weight") if config.tied else EMBEDDING_COPIES, "shared.weight")


ARCHITECTURE = Architecture(
    kind="encoder-decoder",
    prefix="",
    # saved by early versions, which did not use it
    ignored_patterns=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    tied_copies=tied_copies,
)
