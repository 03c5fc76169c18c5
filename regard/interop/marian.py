"""The shapes of Marian and Pegasus: the paper's encoder–decoder, post-norm and pre-norm, sinusoids in halves."""

import re
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch

from regard.config import ModelConfig, SpecialIds
from regard.errors import RegardError
from regard.interop.activation_names import activation_in, activation_out
from regard.interop.architecture import Held, Shape
from regard.interop.weight_rules import (
    Rule,
    State,
    in_halves,
    interleaved,
    plain,
    refuse,
    require,
    same,
    uneven_heads,
    with_pad_row,
)
from regard.model.positions import sinusoids
from regard.storage.weights import REAL

EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""sinusoids that some folders hold: read only to see that they are none but those"""
ARCHITECTURES = {"marian": "MarianMTModel", "pegasus": "PegasusForConditionalGeneration"}
NORM_EPS = 1e-5


def read_config(told: dict[str, Any], where: str) -> ModelConfig:
    """What the `config.json` of either tells."""
    require(told, where, architectures=[ARCHITECTURES[told["model_type"]]])
    require(told, where, share_encoder_decoder_embeddings=True, decoder_vocab_size=told["vocab_size"])
    norm: Literal["post", "pre"] = "post" if told["model_type"] == "marian" else "pre"
    require(told, where, static_position_embeddings=True, normalize_embedding=False, normalize_before=norm == "pre")
    heads, d_ff = told["encoder_attention_heads"], told["encoder_ffn_dim"]
    require(told, where, decoder_attention_heads=heads, decoder_ffn_dim=d_ff)
    return ModelConfig(
        vocab_size=told["vocab_size"],
        pad=told["pad_token_id"],
        d_model=told["d_model"],
        heads=heads,
        layers=told["encoder_layers"],
        decoder_layers=told["decoder_layers"],
        d_ff=d_ff,
        activation=activation_in(told.get("activation_function", "gelu"), where),
        norm=norm,
        norm_eps=NORM_EPS,
        max_length=told.get("max_position_embeddings", 1024),
        scale_embeddings=told.get("scale_embedding", False),
        tied=told.get("tie_word_embeddings", True),
        output_bias=True,
        dropout=told.get("dropout", 0.1),
        attention_dropout=told.get("attention_dropout", 0.0),
    )


def adapt(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model in the terms of this shape."""
    config, state = plain(config, state)
    if not config.output_bias:
        state = state | {"output_bias": torch.zeros(config.outputs)}
    return replace(config, output_bias=True), in_halves(state, config.d_model)


def write_config(config: ModelConfig) -> dict[str, Any]:
    """The `config.json` of Marian for a post-norm model, of Pegasus for a pre-norm one."""
    kind = "marian" if config.norm == "post" else "pegasus"
    refuse(
        kind.title(),
        uneven_heads(config)
        | {
            "its norms are not LayerNorm": config.norm_kind != "layer",
            f"its norm_eps is {config.norm_eps}, and there it is always {NORM_EPS}": config.norm_eps != NORM_EPS,
            "it normalises its embeddings": config.embedding_norm,
            f"its positions are {config.positions}, and there they are sinusoidal": config.positions != "sinusoidal",
            "it has an output_transform": config.output_transform,
        },
    )
    return {
        "architectures": [ARCHITECTURES[kind]],
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
        "activation_function": activation_out(config, kind.title()),
        "scale_embedding": config.scale_embeddings,
        "static_position_embeddings": True,
        "normalize_before": config.norm == "pre",
        "normalize_embedding": False,
        "add_final_layer_norm": config.norm == "pre",
        "max_position_embeddings": config.max_length,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "forced_eos_token_id": None,
    }


def rules(config: ModelConfig) -> list[Rule]:
    """Which tensor is which, of a model whose width is in halves already."""
    found = same("embedding.tokens", "model.shared", ["weight"])
    for side in ("encoder", "decoder"):
        count = config.layers if side == "encoder" else config.decoder_depth
        for i in range(count):
            found += _layer(f"{side}.layers.{i}", f"model.{side}.layers.{i}", cross=side == "decoder")
        if config.norm == "pre":
            found += same(f"{side}.norm", f"model.{side}.layer_norm")
    none = partial(torch.zeros, 1, config.vocab_size)
    outputs = [Rule(("output_bias",), ("final_logits_bias",), lambda x: (x[0],), lambda x: (x[None],), none)]
    outputs += [] if config.tied else same("output", "lm_head", ["weight"])
    return found + [with_pad_row(rule) if config.pad_is_last else rule for rule in outputs]


def _layer(ours: str, theirs: str, cross: bool) -> list[Rule]:
    attentions = {"attention": "self_attn"} | ({"cross_attention": "encoder_attn"} if cross else {})
    found = []
    for mine, other in attentions.items():
        for part in "qkv":
            found += same(f"{ours}.{mine}.{part}", f"{theirs}.{other}.{part}_proj")
        found += same(f"{ours}.{mine}.out", f"{theirs}.{other}.out_proj")
        found += same(f"{ours}.{mine}_norm", f"{theirs}.{other}_layer_norm")
    found += same(f"{ours}.feed_forward.up", f"{theirs}.fc1") + same(f"{ours}.feed_forward.down", f"{theirs}.fc2")
    return found + same(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm")


def copies(config: ModelConfig) -> dict[str, str]:
    """The one embedding, which some folders hold under several names."""
    names = (*EMBEDDINGS, "lm_head.weight") if config.tied else EMBEDDINGS
    return dict.fromkeys(names, "model.shared.weight")


def more(config: ModelConfig, theirs: State) -> State:
    """What their folders hold twice: with an untied output the embedding, and in Pegasus the sinusoids."""
    twice = {} if config.tied else {name: theirs["model.shared.weight"].clone() for name in EMBEDDINGS}
    if config.norm == "pre":
        twice |= {name: sines_then_cosines(config.max_length, config.d_model) for name in POSITIONS}
    return twice


TOLERANCES = {"F64": 1e-3, "F32": 1e-3, "F16": 1e-3, "BF16": 4e-3}
"""by type, how far a sinusoid may be from ours: what is rounded to eight bits is off by two thousandths"""


def check(held: Held, config: ModelConfig) -> None:
    """A folder may hold the position tables; if they are anything but sinusoids, this is another model."""
    for name in POSITIONS:
        entry = held.entry(name)
        if entry is None:
            continue
        where = f"{held.weights.where}: {name}"
        if len(entry.shape) != 2 or entry.shape[1] != config.d_model or entry.dtype not in REAL:
            raise RegardError(f"{where} is no table of positions: {entry.dtype} {list(entry.shape)}")
        table = held.read(name)
        off = (table - sines_then_cosines(*table.shape)).abs().max() if len(table) else 0.0
        if not off <= TOLERANCES[entry.dtype]:  # which NaN is not
            raise RegardError(f"{where} holds other positions than the paper's sinusoids")


def sines_then_cosines(length: int, width: int) -> torch.Tensor:
    """Their sinusoids, [length, width]."""
    table = sinusoids(torch.arange(length), width, torch.float32)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def trap(config: ModelConfig, special: SpecialIds, state: State) -> str | None:
    """CTranslate2's own converter starts Marian's targets with zeros and drops the last id, whatever they are, and
    starts those of Pegasus with <pad>."""
    if config.norm == "post":
        zero = config.pad_is_last and not state["embedding.tokens.weight"][-1].any()
        right = special.start == config.pad_id and zero
    else:
        right = special.start == config.pad_id
    if right:
        return None
    last = ", the last id, with a row of zeros" if config.norm == "post" else ""
    return (
        f"Its targets do not start with <pad>{last}: `ct2-transformers-converter` would be silently wrong about it. "
        "Regard's own export to CTranslate2 is right."
    )


SHAPE = Shape(
    base="model.",
    ignored=tuple(map(re.escape, POSITIONS)),
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    copies=copies,
    check=check,
    arrange=lambda state, config: interleaved(state, config.d_model),
    more=more,
    trap=trap,
)
"""of Marian where norms come after, of Pegasus where they come before"""
