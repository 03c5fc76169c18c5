"""Marian and Pegasus: the paper's encoder–decoder, post-norm and pre-norm, with all sines before all cosines."""

import re
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch

from regard.config import ModelConfig, SpecialIds
from regard.errors import RegardError
from regard.interop.activation_names import huggingface_activation, regard_activation
from regard.interop.architecture import Architecture, FolderTensors
from regard.interop.weight_rules import (
    StateDict,
    WeightRule,
    expand_biases_and_heads,
    refuse_export,
    renamed,
    renamed_layers,
    require_settings,
    sinusoids_in_halves,
    sinusoids_interleaved,
    uneven_heads_reason,
    with_pad_row,
)
from regard.model.positions import sinusoids
from regard.storage.weights import WEIGHT_DTYPES

EMBEDDING_COPIES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Position tables that some folders contain. They are read only to check that they are sinusoids."""
CLASS_NAMES = {"marian": "MarianMTModel", "pegasus": "PegasusForConditionalGeneration"}
NORM_EPS = 1e-5
LAYER_NAMES = {
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
CROSS_NAMES = {
    ours.replace("attention", "cross_attention"): theirs.replace("self_attn", "encoder_attn")
    for ours, theirs in LAYER_NAMES.items()
    if "attention" in ours
}


def read_config(settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a Marian or Pegasus `config.json`."""
    require_settings(settings, where, architectures=[CLASS_NAMES[settings["model_type"]]])
    require_settings(settings, where, share_encoder_decoder_embeddings=True, decoder_vocab_size=settings["vocab_size"])
    norm: Literal["post", "pre"] = "post" if settings["model_type"] == "marian" else "pre"
    require_settings(
        settings, where, static_position_embeddings=True, normalize_embedding=False, normalize_before=norm == "pre"
    )
    heads, d_ff = settings["encoder_attention_heads"], settings["encoder_ffn_dim"]
    require_settings(settings, where, decoder_attention_heads=heads, decoder_ffn_dim=d_ff)
    return ModelConfig(
        vocab_size=settings["vocab_size"],
        pad=settings["pad_token_id"],
        d_model=settings["d_model"],
        heads=heads,
        layers=settings["encoder_layers"],
        decoder_layers=settings["decoder_layers"],
        d_ff=d_ff,
        activation=regard_activation(settings.get("activation_function", "gelu"), where),
        norm=norm,
        norm_eps=NORM_EPS,
        max_length=settings.get("max_position_embeddings", 1024),
        scale_embeddings=settings.get("scale_embedding", False),
        tied=settings.get("tie_word_embeddings", True),
        output_bias=True,
        dropout=settings.get("dropout", 0.1),
        attention_dropout=settings.get("attention_dropout", 0.0),
        feed_forward_dropout=settings.get("activation_dropout", 0.0),
    )


def adapt(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model into an equivalent one that Marian or Pegasus can represent."""
    config, state = expand_biases_and_heads(config, state)
    if not config.output_bias:
        state = state | {"output_bias": torch.zeros(config.outputs)}
    return replace(config, output_bias=True), sinusoids_in_halves(state, config.d_model)


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Return the `config.json` of a model: Marian's if it is post-norm, Pegasus's if it is pre-norm."""
    kind = "marian" if config.norm == "post" else "pegasus"
    refuse_export(
        kind.title(),
        uneven_heads_reason(config)
        | {
            "its norms are not LayerNorm": config.norm_kind != "layer",
            f"its norm_eps is {config.norm_eps}, but there it is always {NORM_EPS}": config.norm_eps != NORM_EPS,
            "it normalises its embeddings": config.embedding_norm,
            f"its positions are {config.positions}, but there they are sinusoidal": config.positions != "sinusoidal",
            "it has an output_transform": config.output_transform,
            "source and target have separate vocabularies": config.target_vocab_size is not None,
        },
    )
    return {
        "architectures": [CLASS_NAMES[kind]],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": config.tied,
        "d_model": config.d_model,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_depth,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": huggingface_activation(config, kind.title()),
        "scale_embedding": config.scale_embeddings,
        "static_position_embeddings": True,
        "normalize_before": config.norm == "pre",
        "normalize_embedding": False,
        "add_final_layer_norm": config.norm == "pre",
        "max_position_embeddings": config.max_length,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward_dropout,
        "forced_eos_token_id": None,
    }


def rules(config: ModelConfig) -> list[WeightRule]:
    """Return the rules for a model whose width is already ordered by `sinusoids_in_halves`."""
    weight_rules = renamed("embedding.tokens", "model.shared", ["weight"])
    for side in ("encoder", "decoder"):
        count, names = (
            (config.layers, LAYER_NAMES) if side == "encoder" else (config.decoder_depth, LAYER_NAMES | CROSS_NAMES)
        )
        weight_rules += renamed_layers(f"{side}.layers", f"model.{side}.layers", count, names)
        if config.norm == "pre":
            weight_rules += renamed(f"{side}.norm", f"model.{side}.layer_norm")
    none = partial(torch.zeros, 1, config.vocab_size)
    outputs = [WeightRule(("output_bias",), ("final_logits_bias",), lambda x: (x[0],), lambda x: (x[None],), none)]
    outputs += [] if config.tied else renamed("output", "lm_head", ["weight"])
    return weight_rules + [with_pad_row(rule) if config.pad_is_last else rule for rule in outputs]


def tied_copies(config: ModelConfig) -> dict[str, str]:
    """Return the names under which some folders store the one embedding again."""
    names = (*EMBEDDING_COPIES, "lm_head.weight") if config.tied else EMBEDDING_COPIES
    return dict.fromkeys(names, "model.shared.weight")


def extra_tensors(config: ModelConfig, theirs: StateDict) -> StateDict:
    """Return the tensors that their folders store twice: an untied embedding and, in Pegasus, the sinusoids."""
    extra = {} if config.tied else {name: theirs["model.shared.weight"].clone() for name in EMBEDDING_COPIES}
    if config.norm == "pre":
        extra |= {name: sines_then_cosines(config.max_length, config.d_model) for name in POSITION_TABLES}
    return extra


SINUSOID_TOLERANCES = {"F64": 1e-3, "F32": 1e-3, "F16": 1e-3, "BF16": 4e-3}
"""Maximum difference between a stored sinusoid and the exact one, by type. Rounding to bfloat16 costs 0.002."""


def check_tensors(tensors: FolderTensors, config: ModelConfig) -> None:
    """Raise RegardError if the folder contains position tables that are not sinusoids."""
    for name in POSITION_TABLES:
        entry = tensors.entry(name)
        if entry is None:
            continue
        where = f"{tensors.weights.where}: {name}"
        if len(entry.shape) != 2 or entry.shape[1] != config.d_model or entry.dtype not in WEIGHT_DTYPES:
            raise RegardError(f"{where} is not a table of positions: {entry.dtype} {list(entry.shape)}")
        table = tensors.read(name)
        off = (table - sines_then_cosines(*table.shape)).abs().max() if len(table) else 0.0
        if not off <= SINUSOID_TOLERANCES[entry.dtype]:  # also rejects NaN
            raise RegardError(f"{where} contains positions other than the paper's sinusoids")


def sines_then_cosines(length: int, width: int) -> torch.Tensor:
    """Return the sinusoids as Marian and Pegasus order them, [length, width]."""
    table = sinusoids(torch.arange(length), width, torch.float32)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def converter_warning(config: ModelConfig, special: SpecialIds, state: StateDict) -> str | None:
    """Return a warning if CTranslate2's own converter would misread the model.

    It assumes that Marian's targets start with a zero vector and drops the last id, and that Pegasus's targets start
    with <pad>.
    """
    if config.norm == "post":
        zero = config.pad_is_last and not state["embedding.tokens.weight"][-1].any()
        safe = special.start == config.pad_id and zero
    else:
        safe = special.start == config.pad_id
    if safe:
        return None
    last = ", the last id, with a row of zeros" if config.norm == "post" else ""
    return (
        f"Its targets do not start with <pad>{last}, so `ct2-transformers-converter` would silently misread it. "
        "Regard's own export to CTranslate2 is correct."
    )


ARCHITECTURE = Architecture(
    kind="encoder-decoder",
    prefix="model.",
    ignored_patterns=tuple(map(re.escape, POSITION_TABLES)),
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    tied_copies=tied_copies,
    check_tensors=check_tensors,
    reorder=lambda state, config: sinusoids_interleaved(state, config.d_model),
    extra_tensors=extra_tensors,
    converter_warning=converter_warning,
)
"""Marian for post-norm models, Pegasus for pre-norm models."""
