"""The shape of BERT: post-norm encoder, learned positions, normalised embeddings, one of four heads."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.formatting import quoted
from regard.interop.activation_names import activation_in, activation_out
from regard.interop.architecture import Held, Shape
from regard.interop.weight_rules import (
    Rule,
    State,
    plain,
    refuse,
    require,
    same,
    uneven_heads,
    unscaled,
    with_pad_row,
    with_table,
)

TYPES = "bert.embeddings.token_type_embeddings.weight"
HEADS = {
    "BertModel": "none",
    "BertForMaskedLM": "words",
    "BertForPreTraining": "words",
    "BertForSequenceClassification": "sequence",
    "BertForTokenClassification": "token",
}


def read_config(told: dict[str, Any], where: str) -> ModelConfig:
    """What its `config.json` tells."""
    require(told, where, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    head = _head_of(told, where)
    labels = len(told.get("id2label") or range(told.get("num_labels", 2)))
    pad = told.get("pad_token_id", 0)
    config = ModelConfig(
        kind="encoder",
        vocab_size=told["vocab_size"],
        pad=None if pad == told["vocab_size"] - 1 and head != "token" else pad,
        d_model=told["hidden_size"],
        heads=told["num_attention_heads"],
        layers=told["num_hidden_layers"],
        d_ff=told["intermediate_size"],
        activation=activation_in(told.get("hidden_act", "gelu"), where),
        norm_eps=told.get("layer_norm_eps", 1e-12),
        positions="learned",
        max_length=told.get("max_position_embeddings", 512),
        scale_embeddings=False,
        embedding_norm=True,
        tied=head == "none" or (head != "token" and told.get("tie_word_embeddings", True)),
        output_bias=head in ("words", "token"),
        output_transform=head == "words",
        dropout=told.get("hidden_dropout_prob", 0.1),
        attention_dropout=told.get("attention_probs_dropout_prob", 0.1),
        classes=labels if head == "sequence" else 0,
    )
    if head == "token" and labels != config.outputs:
        raise RegardError(
            f"{where}: {labels} labels for each token, and Regard's heads per token are over its ids alone"
        )
    return config


def _head_of(told: dict[str, Any], where: str) -> str:
    name = (told.get("architectures") or ["BertModel"])[0]
    if name not in HEADS:
        raise RegardError(f"{where}: of BERT's heads Regard has those of {', '.join(HEADS)}, and not {name}'s")
    return HEADS[name]


def about(told: dict[str, Any], config: ModelConfig, held: Held) -> dict[str, Any]:
    """Whether it has a head, what its classes are called, that it cannot tell the texts of a pair apart, or
    lost its pooler."""
    found: dict[str, Any] = {"head": "none"} if _head_of(told, "") == "none" else {}
    names = told.get("id2label")
    if config.classes and names and list(names.values()) != _unnamed(config.classes):
        wanted = [str(i) for i in range(config.classes)]
        if sorted(names) != sorted(wanted) or not all(isinstance(name, str) for name in names.values()):
            raise RegardError(f"id2label must name each class by its number from 0 on, and is {quoted(names)}")
        found["classes"] = [names[number] for number in wanted]
    types, notes = held.read(TYPES), []
    if not torch.equal(types, types[:1].expand_as(types)):
        notes.append(
            "Every text is of token type 0 here: it cannot tell the second text of a pair, as cross-encoders read it."
        )
    if held.entry("bert.pooler.dense.weight") is not None and not config.classes:
        notes.append("Its folder held a pooler that no head of it reads: it was left out (pooler_output elsewhere).")
    return found | ({"notes": notes} if notes else {})


def _unnamed(count: int) -> list[str]:
    return [f"LABEL_{i}" for i in range(count)]


def adapt(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model in the terms of this shape: a head per token is BERT's for labels."""
    config, state = adapt_without_head(config, state)
    if config.classes:
        return config, state
    state = {"output_bias": torch.zeros(config.outputs)} | state
    if config.tied and not config.output_transform:
        state["output.weight"] = state["embedding.tokens.weight"][: config.outputs]
    return replace(config, output_bias=True, tied=config.tied and config.output_transform), state


def adapt_without_head(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The same model for those who want its vectors."""
    return with_table(*unscaled(*plain(config, state)))


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Its `config.json`."""
    refuse(
        "BERT",
        uneven_heads(config)
        | {
            "its norms are not LayerNorm after each sub-layer": config.norm != "post" or config.norm_kind != "layer",
            "its embeddings are not normalised, and BERT's are (embedding_norm)": not config.embedding_norm,
            "its positions are rotary, and BERT's are in a table": config.positions == "rotary",
        },
    )
    head = "sequence" if config.classes else "words" if config.output_transform else "none" if config.tied else "token"
    labels = {"sequence": config.classes, "token": config.outputs}.get(head, 2)
    return {
        "architectures": [next(name for name, kind in HEADS.items() if kind == head)],
        "model_type": "bert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.d_ff,
        "hidden_act": activation_out(config, "BERT"),
        "layer_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": 1,  # so that a pair's second text is an error there, and not read as if it were a first
        "tie_word_embeddings": config.tied,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "id2label": {str(i): name for i, name in enumerate(_unnamed(labels))},
        "label2id": {name: i for i, name in enumerate(_unnamed(labels))},
    }


def rules(config: ModelConfig) -> list[Rule]:
    """Which tensor is which."""
    found = same("embedding.tokens", "bert.embeddings.word_embeddings", ["weight"])
    # Every text is of type 0 here: its vector is part of each position's.
    places = ("bert.embeddings.position_embeddings.weight", TYPES)
    found += [Rule(("embedding.positions.weight",), places, lambda x, kinds: (x + kinds[0],), _no_types)]
    found += same("embedding.norm", "bert.embeddings.LayerNorm")
    for i in range(config.layers):
        ours, theirs = f"encoder.layers.{i}", f"bert.encoder.layer.{i}"
        for mine, other in {"q": "query", "k": "key", "v": "value"}.items():
            found += same(f"{ours}.attention.{mine}", f"{theirs}.attention.self.{other}")
        found += same(f"{ours}.attention.out", f"{theirs}.attention.output.dense")
        found += same(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        found += same(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        found += same(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        found += same(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return found + _head(config)


def _no_types(positions: Tensor) -> tuple[Tensor, Tensor]:
    return positions, torch.zeros(1, positions.size(1))


def _head(config: ModelConfig) -> list[Rule]:
    if config.classes:
        return same("classifier.pool", "bert.pooler.dense") + same("classifier.classes", "classifier")
    if config.output_transform:
        found = same("transform.dense", "cls.predictions.transform.dense")
        found += same("transform.norm", "cls.predictions.transform.LayerNorm")
        decoder = "cls.predictions.decoder"
        outputs = [Rule(("output_bias",), ("cls.predictions.bias",))]
        if not config.tied:  # then the bias of the decoder is the one that counts
            outputs = [*same("output", decoder, ["weight"]), Rule(("output_bias",), (f"{decoder}.bias",))]
        return found + [with_pad_row(rule) if config.pad_is_last else rule for rule in outputs]
    if config.output_bias:  # a head per token over the ids: BERT's for labels
        return [*same("output", "classifier", ["weight"]), Rule(("output_bias",), ("classifier.bias",))]
    return []


def copies(config: ModelConfig) -> dict[str, str]:
    """The embedding and the bias, which some folders hold a second time in the head over the vocabulary."""
    if not (config.tied and config.output_transform):
        return {}
    decoder = "cls.predictions.decoder"
    return {
        f"{decoder}.weight": "bert.embeddings.word_embeddings.weight",
        f"{decoder}.bias": "cls.predictions.bias",
    }


SHAPE = Shape(
    base="bert.",
    ignored=(
        r"bert\.embeddings\.position_ids",
        r"bert\.pooler\.dense\.(weight|bias)",  # where no head per sequence reads it
        r"cls\.seq_relationship\.(weight|bias)",
        r"cls\.predictions\.(decoder\.weight|decoder\.bias|bias)",  # where there is no such head, or another bias
    ),
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    copies=copies,
    about=about,
)
HEADLESS = replace(SHAPE, adapt=adapt_without_head)
"""for a model that came without a head, and is to go without"""
