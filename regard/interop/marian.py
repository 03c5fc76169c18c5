"""Marian and its relatives: the paper's encoder–decoder, post-norm or pre-norm, with sinusoidal or learned positions.

Pegasus, BART, mBART and M2M100 (which NLLB uses) have the same layers as Marian. They differ in where they normalise,
in their positions and in the output bias. `MarianShape` describes each of them; the code is the same for all. Sinusoids
are stored with all sines before all cosines.
"""

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

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


@dataclass(frozen=True)
class MarianShape:
    """What one of these architectures calls itself, and where it differs from Marian."""

    title: str
    """Its name in messages."""
    model_type: str
    class_name: str
    norm: Literal["post", "pre"]
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    sinusoids: Literal["paper", "fairseq"] = "paper"
    embedding_norm: bool = False
    output_bias: bool = True
    stores_sinusoids: bool = False
    """Whether its folders contain the sinusoids."""
    activation: str = "gelu"
    """Activation if the setting is missing."""
    attention_dropout: float = 0.0
    """Dropout of the attention weights if the setting is missing."""
    scale_embedding: bool = False
    """Whether embeddings are scaled if the setting is missing."""


MARIAN = MarianShape("Marian", "marian", "MarianMTModel", "post")
PEGASUS = MarianShape("Pegasus", "pegasus", "PegasusForConditionalGeneration", "pre", stores_sinusoids=True)
BART = MarianShape("BART", "bart", "BartForConditionalGeneration", "post", "learned", embedding_norm=True)
MBART = MarianShape("mBART", "mbart", "MBartForConditionalGeneration", "pre", "learned", embedding_norm=True)
M2M100 = MarianShape(
    "M2M100",
    "m2m_100",
    "M2M100ForConditionalGeneration",
    "pre",
    sinusoids="fairseq",
    output_bias=False,
    activation="relu",
    attention_dropout=0.1,
    scale_embedding=True,
)
LEARNED_FIRST_POSITION = 2
"""The row of a learned table for the first token of a text."""
FAIRSEQ_PAD = 1
"""Id of <pad> in fairseq's vocabularies, after which M2M100 counts positions."""


def read_config(shape: MarianShape, settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a `config.json`."""
    require_settings(settings, where, architectures=[shape.class_name], is_decoder=False)
    target_vocab_size = None
    if shape is MARIAN and settings.get("share_encoder_decoder_embeddings") is False:
        target_vocab_size = settings.get("decoder_vocab_size") or settings["vocab_size"]
    else:
        shared = {"share_encoder_decoder_embeddings": True, "decoder_vocab_size": settings["vocab_size"]}
        require_settings(settings, where, **shared)
    require_settings(
        settings,
        where,
        static_position_embeddings=shape.positions == "sinusoidal",
        normalize_embedding=shape.embedding_norm,
        normalize_before=shape.norm == "pre",
        add_final_layer_norm=shape.norm == "pre",
    )
    heads, d_ff = settings["encoder_attention_heads"], settings["encoder_ffn_dim"]
    require_settings(settings, where, decoder_attention_heads=heads, decoder_ffn_dim=d_ff)
    if shape.sinusoids == "fairseq":
        require_settings(settings, where, pad_token_id=FAIRSEQ_PAD)
    return ModelConfig(
        vocab_size=settings["vocab_size"],
        target_vocab_size=target_vocab_size,
        pad=settings["pad_token_id"],
        d_model=settings["d_model"],
        heads=heads,
        layers=settings["encoder_layers"],
        decoder_layers=settings["decoder_layers"],
        d_ff=d_ff,
        activation=regard_activation(settings.get("activation_function", shape.activation), where),
        norm=shape.norm,
        norm_eps=NORM_EPS,
        positions=shape.positions,
        sinusoids=shape.sinusoids,
        separate_positions=shape.positions == "learned",
        max_length=settings.get("max_position_embeddings", 1024),
        scale_embeddings=settings.get("scale_embedding", shape.scale_embedding),
        embedding_norm=shape.embedding_norm,
        tied=settings.get("tie_word_embeddings", True),
        output_bias=shape.output_bias,
        dropout=settings.get("dropout", 0.1),
        attention_dropout=settings.get("attention_dropout", shape.attention_dropout),
        feed_forward_dropout=settings.get("activation_dropout", 0.0),
    )


def adapt(shape: MarianShape, config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model into an equivalent one that the architecture can represent."""
    config, state = expand_biases_and_heads(config, state)
    if shape.output_bias and not config.output_bias:
        config, state = replace(config, output_bias=True), state | {"output_bias": torch.zeros(config.outputs)}
    if shape.positions == config.positions == "sinusoidal":
        return config, sinusoids_in_halves(state, config.d_model)
    if config.positions == "learned" and not config.separate_positions:
        copies = {f"target_{name}": state[name].clone() for name in state if re.match(r"embedding\.(pos|norm)", name)}
        return replace(config, separate_positions=True), state | copies
    return config, state


def write_config(shape: MarianShape, config: ModelConfig) -> dict[str, Any]:
    """Return the `config.json` of a model."""
    title, positions = shape.title, (shape.positions, shape.sinusoids)
    is_normalised = "its embeddings are not normalised" if shape.embedding_norm else "it normalises its embeddings"
    refuse_export(
        title,
        uneven_heads_reason(config)
        | {
            f"its norms are not LayerNorm {'after' if shape.norm == 'post' else 'before'} each sub-layer": (
                config.norm_kind != "layer" or config.norm != shape.norm
            ),
            f"its norm_eps is {config.norm_eps}, but there it is always {NORM_EPS}": config.norm_eps != NORM_EPS,
            is_normalised: config.embedding_norm != shape.embedding_norm,
            f"its positions are {config.positions}, but there they are {shape.positions}": (
                config.positions != shape.positions
            ),
            f"its sinusoids are of the kind {config.sinusoids!r}, but there they are {shape.sinusoids!r}": (
                (config.positions, config.sinusoids) != positions
            ),
            f"the id of <pad> is {config.pad_id}, but positions are counted from {FAIRSEQ_PAD}": (
                shape.sinusoids == "fairseq" and config.pad_id != FAIRSEQ_PAD
            ),
            f"it has an output_bias, and {title} has none": config.output_bias and not shape.output_bias,
            "it has an output_transform": config.output_transform,
            "source and target have separate vocabularies, which only Marian has, a post-norm model": (
                config.target_vocab_size is not None and shape is not MARIAN
            ),
        },
    )
    return {
        "architectures": [shape.class_name],
        "model_type": shape.model_type,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.output_vocab_size,
        "share_encoder_decoder_embeddings": config.target_vocab_size is None,
        "tie_word_embeddings": config.tied,
        "d_model": config.d_model,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_depth,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": huggingface_activation(config, title),
        "scale_embedding": config.scale_embeddings,
        "static_position_embeddings": shape.positions == "sinusoidal",
        "normalize_before": shape.norm == "pre",
        "normalize_embedding": shape.embedding_norm,
        "add_final_layer_norm": shape.norm == "pre",
        "max_position_embeddings": config.max_length,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward_dropout,
        "forced_eos_token_id": None,
    }


def rules(shape: MarianShape, config: ModelConfig) -> list[WeightRule]:
    """Return the rules for a model whose width is already ordered by `sinusoids_in_halves`, if it has sinusoids."""
    if config.target_vocab_size is None:
        weight_rules = renamed("embedding.tokens", "model.shared", ["weight"])
    else:
        weight_rules = renamed("embedding.tokens", "model.encoder.embed_tokens", ["weight"])
        weight_rules += renamed("target_embedding.tokens", "model.decoder.embed_tokens", ["weight"])
    for side, embedding in (("encoder", "embedding"), ("decoder", "target_embedding")):
        count, layer_names = (
            (config.layers, LAYER_NAMES) if side == "encoder" else (config.decoder_depth, LAYER_NAMES | CROSS_NAMES)
        )
        weight_rules += renamed_layers(f"{side}.layers", f"model.{side}.layers", count, layer_names)
        if shape.positions == "learned":
            weight_rules.append(_position_rule(f"{embedding}.positions", f"model.{side}.embed_positions"))
        if shape.embedding_norm:
            weight_rules += renamed(f"{embedding}.norm", f"model.{side}.layernorm_embedding")
        if shape.norm == "pre":
            weight_rules += renamed(f"{side}.norm", f"model.{side}.layer_norm")
    none = partial(torch.zeros, 1, config.output_vocab_size)
    outputs = [WeightRule(("output_bias",), ("final_logits_bias",), lambda x: (x[0],), lambda x: (x[None],), none)]
    outputs = outputs if shape.output_bias else []
    outputs += [] if config.tied else renamed("output", "lm_head", ["weight"])
    return weight_rules + [with_pad_row(rule) if config.pad_is_last else rule for rule in outputs]


def _position_rule(ours: str, theirs: str) -> WeightRule:
    def write(positions: Tensor) -> tuple[Tensor]:
        return (torch.cat([positions.new_zeros(LEARNED_FIRST_POSITION, positions.size(1)), positions]),)

    def read(table: Tensor) -> tuple[Tensor]:
        return (table[LEARNED_FIRST_POSITION:],)

    return WeightRule((f"{ours}.weight",), (f"{theirs}.weight",), read, write)


def tied_copies(config: ModelConfig) -> dict[str, str]:
    """Return the names under which some folders store an embedding again."""
    if config.target_vocab_size is not None:
        return {"lm_head.weight": "model.decoder.embed_tokens.weight"} if config.tied else {}
    names = (*EMBEDDING_COPIES, "lm_head.weight") if config.tied else EMBEDDING_COPIES
    return dict.fromkeys(names, "model.shared.weight")


def extra_tensors(shape: MarianShape, config: ModelConfig, theirs: StateDict) -> StateDict:
    """Return the tensors that their folders store twice: an untied embedding and, in Pegasus, the sinusoids."""
    copied = () if config.tied or config.target_vocab_size is not None else EMBEDDING_COPIES
    extra = {name: theirs["model.shared.weight"].clone() for name in copied}
    if shape.stores_sinusoids:
        extra |= {name: sines_then_cosines(config.max_length, config.d_model) for name in POSITION_TABLES}
    return extra


SINUSOID_TOLERANCES = {"F64": 1e-3, "F32": 1e-3, "F16": 1e-3, "BF16": 4e-3}
"""Maximum difference between a stored sinusoid and the exact one, by type. Rounding to bfloat16 costs 0.002."""


def check_tensors(shape: MarianShape, tensors: FolderTensors, config: ModelConfig) -> None:
    """Raise RegardError if the folder contains position tables that are not the paper's sinusoids."""
    for name in POSITION_TABLES if (shape.positions, shape.sinusoids) == ("sinusoidal", "paper") else ():
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


def check_special(shape: MarianShape, config: ModelConfig, special: SpecialIds) -> None:
    """Raise RegardError if targets start with an id that the architecture does not count as a position."""
    if shape.sinusoids == "fairseq" and special.start == config.pad_id:
        raise RegardError(
            f"the targets of this model start with <pad> (decoder_start_token_id={special.start}), which has no "
            f"position in {shape.title}, but has one in Regard"
        )


def sines_then_cosines(length: int, width: int) -> torch.Tensor:
    """Return the sinusoids as Marian and Pegasus order them, [length, width]."""
    table = sinusoids(torch.arange(length), width, torch.float32)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def converter_warning(shape: MarianShape, config: ModelConfig, special: SpecialIds, state: StateDict) -> str | None:
    """Return a warning if CTranslate2's own converter would misread the model.

    It assumes that Marian's targets start with a zero vector and drops the last id, and that Pegasus's targets start
    with <pad>. Of two vocabularies it reads only the source's.
    """
    if config.target_vocab_size is not None:
        return (
            "`ct2-transformers-converter` reads only one vocabulary and would silently misread this model. "
            "Regard's own export to CTranslate2 is correct."
        )
    if shape not in (MARIAN, PEGASUS):
        return None
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


def architecture(shape: MarianShape) -> Architecture:
    """Return the architecture of this shape."""

    def reorder(state: StateDict, config: ModelConfig) -> StateDict:
        return sinusoids_interleaved(state, config.d_model) if shape.positions == "sinusoidal" else state

    # fairseq's tables and version numbers are in old folders
    ignored = [r"model\.(encoder|decoder)\.(embed_positions\.weights|version)"]
    if shape.positions == "sinusoidal":
        ignored += map(re.escape, POSITION_TABLES)
    return Architecture(
        kind="encoder-decoder",
        prefix="model.",
        ignored_patterns=tuple(ignored),
        read_config=partial(read_config, shape),
        write_config=partial(write_config, shape),
        adapt=partial(adapt, shape),
        rules=partial(rules, shape),
        tied_copies=tied_copies,
        check_tensors=partial(check_tensors, shape),
        check_special=partial(check_special, shape),
        reorder=reorder,
        extra_tensors=partial(extra_tensors, shape),
        converter_warning=partial(converter_warning, shape),
    )


ARCHITECTURES = {shape.model_type: architecture(shape) for shape in (MARIAN, PEGASUS, BART, MBART, M2M100)}
