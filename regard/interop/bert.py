"""BERT and its relatives: post-norm encoders with learned positions, normalised embeddings and one of four heads.

RoBERTa, XLM-R and DistilBERT differ from BERT in names, in the first position and in details of their heads.
`BertShape` describes each of them; the code is the same for all.
"""

import re
from dataclasses import dataclass, field, replace
from functools import partial
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
    renamed_layers,
    require_settings,
    uneven_heads_reason,
    with_pad_row,
    with_position_table,
)

HEAD_KINDS = {
    "Model": "none",
    "ForMaskedLM": "words",
    "ForPreTraining": "words",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}
"""The head of a class of `transformers`, by the end of its name."""
BERT_SETTINGS = {
    "d_model": "hidden_size",
    "heads": "num_attention_heads",
    "layers": "num_hidden_layers",
    "d_ff": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
DISTILBERT_SETTINGS = {
    "d_model": "dim",
    "heads": "n_heads",
    "layers": "n_layers",
    "d_ff": "hidden_dim",
    "activation": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
BERT_LAYER = {
    "attention.q": "attention.self.query",
    "attention.k": "attention.self.key",
    "attention.v": "attention.self.value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
DISTILBERT_LAYER = {
    "attention.q": "attention.q_lin",
    "attention.k": "attention.k_lin",
    "attention.v": "attention.v_lin",
    "attention.out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed_forward.up": "ffn.lin1",
    "feed_forward.down": "ffn.lin2",
    "feed_forward_norm": "output_layer_norm",
}


@dataclass(frozen=True)
class BertShape:
    """What one of these architectures calls its classes, settings and tensors, and where it differs from BERT."""

    title: str
    """Its name in messages."""
    class_prefix: str
    """Start of the names of its classes in `transformers`."""
    model_type: str
    prefix: str
    """Prefix of all tensors outside its heads."""
    words: dict[str, str]
    """Modules of the masked-language-model head, and its output layer and bias, by our names."""
    sequence: dict[str, str]
    """Modules of the head over classes, by our names."""
    settings: dict[str, str] = field(default_factory=lambda: BERT_SETTINGS)
    layers: str = "encoder.layer"
    layer: dict[str, str] = field(default_factory=lambda: BERT_LAYER)
    token_types: bool = True
    """Whether it distinguishes the two texts of a pair."""
    norm_eps: float | None = None
    """The value added to the variance where it cannot be set; None if layer_norm_eps sets it."""
    default_pad: int = 0
    positions_after_pad: bool = False
    """Whether the first position is the one after the id of <pad>, which stands for the position of <pad>."""
    head_activation: str | None = None
    """The only activation of the masked-language-model head; None if it is that of the layers."""
    classifier_activation: str = "tanh"
    classes: tuple[str, ...] = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    """Ends of the names of the supported classes."""


BERT = BertShape(
    title="BERT",
    class_prefix="Bert",
    model_type="bert",
    prefix="bert.",
    words={
        "transform.dense": "cls.predictions.transform.dense",
        "transform.norm": "cls.predictions.transform.LayerNorm",
        "output": "cls.predictions.decoder",
        "output_bias": "cls.predictions.bias",
    },
    sequence={"classifier.pool": "bert.pooler.dense", "classifier.classes": "classifier"},
    classes=tuple(HEAD_KINDS),
)
ROBERTA = BertShape(
    title="RoBERTa",
    class_prefix="Roberta",
    model_type="roberta",
    prefix="roberta.",
    words={
        "transform.dense": "lm_head.dense",
        "transform.norm": "lm_head.layer_norm",
        "output": "lm_head.decoder",
        "output_bias": "lm_head.bias",
    },
    sequence={"classifier.pool": "classifier.dense", "classifier.classes": "classifier.out_proj"},
    default_pad=1,
    positions_after_pad=True,
    head_activation="gelu",
)
XLM_ROBERTA = replace(ROBERTA, title="XLM-R", class_prefix="XLMRoberta", model_type="xlm-roberta")
DISTILBERT = BertShape(
    title="DistilBERT",
    class_prefix="DistilBert",
    model_type="distilbert",
    prefix="distilbert.",
    words={
        "transform.dense": "vocab_transform",
        "transform.norm": "vocab_layer_norm",
        "output": "vocab_projector",
        "output_bias": "vocab_projector.bias",
    },
    sequence={"classifier.pool": "pre_classifier", "classifier.classes": "classifier"},
    settings=DISTILBERT_SETTINGS,
    layers="transformer.layer",
    layer=DISTILBERT_LAYER,
    token_types=False,
    norm_eps=1e-12,
    classifier_activation="relu",
)


def read_config(shape: BertShape, settings: dict[str, Any], where: str) -> ModelConfig:
    """Return the ModelConfig of a `config.json`."""
    require_settings(settings, where, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    head = _head_of(shape, settings, where)
    theirs, vocabulary = shape.settings, settings["vocab_size"]
    if head == "words" and shape.head_activation is not None:
        require_settings(settings, where, **{theirs["activation"]: shape.head_activation})
    labels = len(settings.get("id2label") or range(settings.get("num_labels", 2)))
    is_tagger = head == "token" and not _predicts_ids(settings, labels)
    pad = settings.get("pad_token_id", shape.default_pad)
    max_length = settings.get("max_position_embeddings", 512)
    if shape.positions_after_pad:
        if type(pad) is not int or not 0 <= pad < min(vocabulary - 1, max_length - 1):
            raise RegardError(f"{where}: pad_token_id={quoted(pad)}, but positions are counted from it")
        max_length -= pad + 1
    return ModelConfig(
        kind="encoder",
        vocab_size=vocabulary,
        pad=None if pad == vocabulary - 1 and head != "token" else pad,
        d_model=settings[theirs["d_model"]],
        heads=settings[theirs["heads"]],
        layers=settings[theirs["layers"]],
        d_ff=settings[theirs["d_ff"]],
        activation=regard_activation(settings.get(theirs["activation"], "gelu"), where),
        norm_eps=shape.norm_eps or settings.get("layer_norm_eps", 1e-12),
        positions="learned",
        max_length=max_length,
        scale_embeddings=False,
        embedding_norm=True,
        tied=head == "none" or ((head != "token" or is_tagger) and settings.get("tie_word_embeddings", True)),
        output_bias=head == "words" or (head == "token" and not is_tagger),
        output_transform=head == "words",
        dropout=settings.get(theirs["dropout"], 0.1),
        attention_dropout=settings.get(theirs["attention_dropout"], 0.1),
        classes=labels if head == "sequence" or is_tagger else 0,
        classes_per="token" if is_tagger else "sequence",
        classifier_activation=shape.classifier_activation if head == "sequence" else "tanh",  # type: ignore[arg-type]
    )


def _predicts_ids(settings: dict[str, Any], labels: int) -> bool:
    """Return whether the labels of a token classifier are the ids of the vocabulary: see `adapt`."""
    named = not _are_default(settings.get("id2label") or {})
    ids = settings["vocab_size"] - (settings.get("pad_token_id") == settings["vocab_size"] - 1)
    return labels == ids and not named


def _head_of(shape: BertShape, settings: dict[str, Any], where: str) -> str:
    supported = [shape.class_prefix + end for end in shape.classes]
    name = (settings.get("architectures") or supported)[0]
    if name not in supported:
        raise RegardError(f"{where}: Regard does not support {name}; supported: {', '.join(supported)}")
    return HEAD_KINDS[name.removeprefix(shape.class_prefix)]


def about(shape: BertShape, settings: dict[str, Any], config: ModelConfig, tensors: FolderTensors) -> dict[str, Any]:
    """Return what the config and tensors say about the model: a missing head, the names of its classes, limitations."""
    metadata: dict[str, Any] = {"head": "none"} if _head_of(shape, settings, "") == "none" else {}
    labels = settings.get("id2label")
    if config.classes and labels and not _are_default(labels):
        numbers = [str(i) for i in range(config.classes)]
        if sorted(labels) != sorted(numbers) or not all(isinstance(label, str) for label in labels.values()):
            raise RegardError(f"id2label must number the classes from 0, but is {quoted(labels)}")
        metadata["classes"] = [labels[number] for number in numbers]
    notes = []
    if shape.token_types:
        token_types = tensors.read(_token_types(shape))
        if not torch.equal(token_types, token_types[:1].expand_as(token_types)):
            notes.append(
                "Regard gives every text token type 0, so the model cannot distinguish the two texts of a pair."
            )
    pooler = f"{shape.prefix}pooler.dense"
    is_read = config.is_classifier and shape.sequence["classifier.pool"] == pooler
    if tensors.entry(f"{pooler}.weight") is not None and not is_read:
        notes.append("The pooler of the original folder (pooler_output) was dropped because no head reads it.")
    return metadata | ({"notes": notes} if notes else {})


def _default_labels(count: int) -> list[str]:
    return [f"LABEL_{i}" for i in range(count)]


def _are_default(labels: dict[str, Any]) -> bool:
    return list(labels.values()) == _default_labels(len(labels))


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


def write_config(shape: BertShape, config: ModelConfig) -> dict[str, Any]:
    """Return the `config.json` of a model."""
    title, theirs = shape.title, shape.settings
    head = _written_head(config)
    refuse_export(
        title,
        uneven_heads_reason(config)
        | {
            "its norms are not LayerNorm after each sub-layer": config.norm != "post" or config.norm_kind != "layer",
            f"its embeddings are not normalised, as {title}'s are (embedding_norm)": not config.embedding_norm,
            f"its positions are {config.positions}, but {title}'s are learned": config.positions != "learned",
            f"its norm_eps is {config.norm_eps}, but there it is always {shape.norm_eps}": shape.norm_eps
            not in (None, config.norm_eps),
            f"its activation is {config.activation}, but that of {title}'s head is always {shape.head_activation}": (
                head == "words" and shape.head_activation not in (None, config.activation)
            ),
            f"its classifier_activation is {config.classifier_activation}, but {title}'s is "
            f"{shape.classifier_activation}": head == "sequence"
            and config.classifier_activation != shape.classifier_activation,
            f"it has no <pad>, and {title} counts positions from its id": shape.positions_after_pad
            and config.pad_id is None,
        },
    )
    labels = {"sequence": config.classes, "token": config.outputs}.get(head, 2)
    norm_eps = {"layer_norm_eps": config.norm_eps} if shape.norm_eps is None else {}
    # One type makes the second text of a pair an error there, instead of reading it as a first.
    token_types = {"type_vocab_size": 1} if shape.token_types else {}
    return {
        "architectures": [shape.class_prefix + next(end for end, kind in HEAD_KINDS.items() if kind == head)],
        "model_type": shape.model_type,
        "vocab_size": config.vocab_size,
        theirs["d_model"]: config.d_model,
        theirs["heads"]: config.heads,
        theirs["layers"]: config.layers,
        theirs["d_ff"]: config.d_ff,
        theirs["activation"]: huggingface_activation(config, title),
        **norm_eps,
        "max_position_embeddings": config.max_length + _first_position(shape, config),
        **token_types,
        "tie_word_embeddings": config.tied,
        theirs["dropout"]: config.dropout,
        theirs["attention_dropout"]: config.attention_dropout,
        "id2label": {str(i): name for i, name in enumerate(_default_labels(labels))},
        "label2id": {name: i for i, name in enumerate(_default_labels(labels))},
    }


def _written_head(config: ModelConfig) -> str:
    if config.classes:
        return "token" if config.is_tagger else "sequence"
    return "words" if config.output_transform else "none" if config.tied else "token"


def _first_position(shape: BertShape, config: ModelConfig) -> int:
    """Return the row of their table for the first token of a text."""
    return config.pad_id + 1 if shape.positions_after_pad and config.pad_id is not None else 0


def rules(shape: BertShape, config: ModelConfig) -> list[WeightRule]:
    """Return the rules that map Regard's tensors to theirs."""
    embeddings = f"{shape.prefix}embeddings"
    weight_rules = renamed("embedding.tokens", f"{embeddings}.word_embeddings", ["weight"])
    weight_rules += [_position_rule(shape, config), *renamed("embedding.norm", f"{embeddings}.LayerNorm")]
    weight_rules += renamed_layers("encoder.layers", shape.prefix + shape.layers, config.layers, shape.layer)
    return weight_rules + _head_rules(shape, config)


def _token_types(shape: BertShape) -> str:
    return f"{shape.prefix}embeddings.token_type_embeddings.weight"


def _position_rule(shape: BertShape, config: ModelConfig) -> WeightRule:
    """Return the rule of the positions. Regard gives every text token type 0, whose vector is added to them."""
    first = _first_position(shape, config)

    def read(table: Tensor, token_types: Tensor | None = None) -> tuple[Tensor, ...]:
        positions = table[first:]
        return (positions if token_types is None else positions + token_types[0],)

    def write(positions: Tensor) -> tuple[Tensor, ...]:
        table = torch.cat([positions.new_zeros(first, positions.size(1)), positions])
        return (table, torch.zeros(1, positions.size(1))) if shape.token_types else (table,)

    tables = (f"{shape.prefix}embeddings.position_embeddings.weight", _token_types(shape))
    return WeightRule(("embedding.positions.weight",), tables[: 1 + shape.token_types], read, write)


def _head_rules(shape: BertShape, config: ModelConfig) -> list[WeightRule]:
    if config.is_classifier:
        return [rule for ours, theirs in shape.sequence.items() for rule in renamed(ours, theirs)]
    if config.output_transform:
        words = shape.words
        transform = [rule for ours in ("transform.dense", "transform.norm") for rule in renamed(ours, words[ours])]
        outputs = [WeightRule(("output_bias",), (words["output_bias"],))]
        if not config.tied:  # then transformers uses the bias of the output layer
            outputs = [
                *renamed("output", words["output"], ["weight"]),
                WeightRule(("output_bias",), (f"{words['output']}.bias",)),
            ]
        return transform + [with_pad_row(rule) if config.pad_is_last else rule for rule in outputs]
    if config.is_tagger or config.output_bias:  # a head over ids is a token classifier there
        return [*renamed("output", "classifier", ["weight"]), WeightRule(("output_bias",), ("classifier.bias",))]
    return []


def tied_copies(shape: BertShape, config: ModelConfig) -> dict[str, str]:
    """Return the copies of the embedding and the bias that some folders store in the masked-language-model head."""
    if not (config.tied and config.output_transform):
        return {}
    copies = {f"{shape.words['output']}.weight": f"{shape.prefix}embeddings.word_embeddings.weight"}
    bias = f"{shape.words['output']}.bias"
    return copies | ({bias: shape.words["output_bias"]} if bias != shape.words["output_bias"] else {})


def architecture(shape: BertShape) -> Architecture:
    """Return the architecture of this shape."""
    prefix, output, bias = map(re.escape, (shape.prefix, shape.words["output"], shape.words["output_bias"]))
    return Architecture(
        kind="encoder",
        prefix=shape.prefix,
        ignored_patterns=(
            rf"{prefix}embeddings\.position_ids",
            rf"{prefix}pooler\.dense\.(weight|bias)",  # present but unused without a sequence classifier
            r"cls\.seq_relationship\.(weight|bias)",
            rf"{output}\.(weight|bias)|{bias}",  # unused without this head, or copies
        ),
        read_config=partial(read_config, shape),
        write_config=partial(write_config, shape),
        adapt=adapt,
        rules=partial(rules, shape),
        tied_copies=partial(tied_copies, shape),
        about=partial(about, shape),
    )


ARCHITECTURES = {shape.model_type: architecture(shape) for shape in (BERT, ROBERTA, XLM_ROBERTA, DISTILBERT)}
