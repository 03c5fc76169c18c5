"""BERT: a post-norm encoder with learned positions, normalised embeddings and one of four heads."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.formatting import quoted
from regard.interop.activation_names import huggingface_activation, regard_activation
from regard.interop.architecture import Architecture, FolderTensors
from regard.interop.weight_rules import (
    StateDict,
    WeightRule,
    expand_biases_and_heads,
    fold_embedding_scale,
    refuse_export,
    renamed,
    require_settings,
    uneven_heads_reason,
    with_pad_row,
    with_position_table,
)

TOKEN_TYPES = "bert.embeddings.token_type_embeddings.weight"
HEAD_KINDS = {
    "BertModel": "none",
    "BertForMaskedLM": "words",
    "BertForPreTraining": "words",
    "BertForSequenceClassification": "sequence",
    "BertForTokenClassification": "token",
}


def read_config(settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a BERT `config.json`."""
    require_settings(settings, where, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    head = _head_of(settings, where)
    labels = len(settings.get("id2label") or range(settings.get("num_labels", 2)))
    pad = settings.get("pad_token_id", 0)
    config = ModelConfig(
        kind="encoder",
        vocab_size=settings["vocab_size"],
        pad=None if pad == settings["vocab_size"] - 1 and head != "token" else pad,
        d_model=settings["hidden_size"],
        heads=settings["num_attention_heads"],
        layers=settings["num_hidden_layers"],
        d_ff=settings["intermediate_size"],
        activation=regard_activation(settings.get("hidden_act", "gelu"), where),
        norm_eps=settings.get("layer_norm_eps", 1e-12),
        positions="learned",
        max_length=settings.get("max_position_embeddings", 512),
        scale_embeddings=False,
        embedding_norm=True,
        tied=head == "none" or (head != "token" and settings.get("tie_word_embeddings", True)),
        output_bias=head in ("words", "token"),
        output_transform=head == "words",
        dropout=settings.get("hidden_dropout_prob", 0.1),
        attention_dropout=settings.get("attention_probs_dropout_prob", 0.1),
        classes=labels if head == "sequence" else 0,
    )
    if head == "token" and labels != config.outputs:
        raise RegardError(
            f"{where}: it has {labels} labels per token, but Regard's token heads predict only ids ({config.outputs})"
        )
    return config


def _head_of(settings: dict[str, Any], where: str) -> str:
    name = (settings.get("architectures") or ["BertModel"])[0]
    if name not in HEAD_KINDS:
        raise RegardError(f"{where}: Regard does not support {name}; supported: {', '.join(HEAD_KINDS)}")
    return HEAD_KINDS[name]


def about(settings: dict[str, Any], config: ModelConfig, tensors: FolderTensors) -> dict[str, Any]:
    """Return what the config and tensors say about the model: a missing head, the names of its classes, limitations."""
    metadata: dict[str, Any] = {"head": "none"} if _head_of(settings, "") == "none" else {}
    names = settings.get("id2label")
    if config.classes and names and list(names.values()) != _default_labels(config.classes):
        numbers = [str(i) for i in range(config.classes)]
        if sorted(names) != sorted(numbers) or not all(isinstance(name, str) for name in names.values()):
            raise RegardError(f"id2label must number the classes from 0, but is {quoted(names)}")
        metadata["classes"] = [names[number] for number in numbers]
    token_types, notes = tensors.read(TOKEN_TYPES), []
    if not torch.equal(token_types, token_types[:1].expand_as(token_types)):
        notes.append("Regard gives every text token type 0, so the model cannot distinguish the two texts of a pair.")
    if tensors.entry("bert.pooler.dense.weight") is not None and not config.classes:
        notes.append("The pooler of the original folder (pooler_output) was dropped because no head reads it.")
    return metadata | ({"notes": notes} if notes else {})


def _default_labels(count: int) -> list[str]:
    return [f"LABEL_{i}" for i in range(count)]


def adapt(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model into an equivalent one that BERT can represent; a head over ids becomes a token classifier."""
    config, state = adapt_without_head(config, state)
    if config.classes:
        return config, state
    state = {"output_bias": torch.zeros(config.outputs)} | state
    if config.tied and not config.output_transform:
        state["output.weight"] = state["embedding.tokens.weight"][: config.outputs]
    return replace(config, output_bias=True, tied=config.tied and config.output_transform), state


def adapt_without_head(config: ModelConfig, state: StateDict) -> tuple[ModelConfig, StateDict]:
    """Rewrite a model for export without a head, for uses that need only its vectors."""
    return with_position_table(*fold_embedding_scale(*expand_biases_and_heads(config, state)))


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Return the BERT `config.json` of a model."""
    refuse_export(
        "BERT",
        uneven_heads_reason(config)
        | {
            "its norms are not LayerNorm after each sub-layer": config.norm != "post" or config.norm_kind != "layer",
            "its embeddings are not normalised, as BERT's are (embedding_norm)": not config.embedding_norm,
            f"its positions are {config.positions}, but BERT's are learned": config.positions != "learned",
        },
    )
    head = "sequence" if config.classes else "words" if config.output_transform else "none" if config.tied else "token"
    labels = {"sequence": config.classes, "token": config.outputs}.get(head, 2)
    return {
        "architectures": [next(name for name, kind in HEAD_KINDS.items() if kind == head)],
        "model_type": "bert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.d_ff,
        "hidden_act": huggingface_activation(config, "BERT"),
        "layer_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": 1,  # makes the second text of a pair an error there, instead of reading it as a first
        "tie_word_embeddings": config.tied,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "id2label": {str(i): name for i, name in enumerate(_default_labels(labels))},
        "label2id": {name: i for i, name in enumerate(_default_labels(labels))},
    }


def rules(config: ModelConfig) -> list[WeightRule]:
    """Return the rules that map Regard's tensors to those of BERT."""
    weight_rules = renamed("embedding.tokens", "bert.embeddings.word_embeddings", ["weight"])
    # Regard gives every text token type 0, so the vector of that type is added to the positions.
    tables = ("bert.embeddings.position_embeddings.weight", TOKEN_TYPES)
    weight_rules += [
        WeightRule(("embedding.positions.weight",), tables, lambda x, types: (x + types[0],), _zero_token_types)
    ]
    weight_rules += renamed("embedding.norm", "bert.embeddings.LayerNorm")
    for i in range(config.layers):
        ours, theirs = f"encoder.layers.{i}", f"bert.encoder.layer.{i}"
        for our_name, their_name in {"q": "query", "k": "key", "v": "value"}.items():
            weight_rules += renamed(f"{ours}.attention.{our_name}", f"{theirs}.attention.self.{their_name}")
        weight_rules += renamed(f"{ours}.attention.out", f"{theirs}.attention.output.dense")
        weight_rules += renamed(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        weight_rules += renamed(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        weight_rules += renamed(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        weight_rules += renamed(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return weight_rules + _head_rules(config)


def _zero_token_types(positions: Tensor) -> tuple[Tensor, Tensor]:
    return positions, torch.zeros(1, positions.size(1))


def _head_rules(config: ModelConfig) -> list[WeightRule]:
    if config.classes:
        return renamed("classifier.pool", "bert.pooler.dense") + renamed("classifier.classes", "classifier")
    if config.output_transform:
        transform = renamed("transform.dense", "cls.predictions.transform.dense")
        transform += renamed("transform.norm", "cls.predictions.transform.LayerNorm")
        decoder = "cls.predictions.decoder"
        outputs = [WeightRule(("output_bias",), ("cls.predictions.bias",))]
        if not config.tied:  # then transformers uses the bias of the decoder
            outputs = [*renamed("output", decoder, ["weight"]), WeightRule(("output_bias",), (f"{decoder}.bias",))]
        return transform + [with_pad_row(rule) if config.pad_is_last else rule for rule in outputs]
    if config.output_bias:  # a head over ids: a token classifier in BERT
        return [*renamed("output", "classifier", ["weight"]), WeightRule(("output_bias",), ("classifier.bias",))]
    return []


def tied_copies(config: ModelConfig) -> dict[str, str]:
    """Return the copies of the embedding and the bias that some folders store in the masked-language-model head."""
    if not (config.tied and config.output_transform):
        return {}
    decoder = "cls.predictions.decoder"
    return {
        f"{decoder}.weight": "bert.embeddings.word_embeddings.weight",
        f"{decoder}.bias": "cls.predictions.bias",
    }


ARCHITECTURE = Architecture(
    prefix="bert.",
    ignored_patterns=(
        r"bert\.embeddings\.position_ids",
        r"bert\.pooler\.dense\.(weight|bias)",  # present but unused without a sequence classifier
        r"cls\.seq_relationship\.(weight|bias)",
        r"cls\.predictions\.(decoder\.weight|decoder\.bias|bias)",  # unused without this head, or copies
    ),
    read_config=read_config,
    write_config=write_config,
    adapt=adapt,
    rules=rules,
    tied_copies=tied_copies,
    about=about,
)
WITHOUT_HEAD = replace(ARCHITECTURE, adapt=adapt_without_head)
"""For models that were loaded without a head and are exported without one."""
