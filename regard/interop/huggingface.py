"""Reading and writing Hugging Face model folders."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor

from regard.config import ModelConfig, did_you_mean
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import END, PAD, SEPARATOR, Tokenizer
from regard.data.tokenizer_pair import check_vocabularies
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.formatting import quoted, shorten
from regard.interop import bert, gpt2, llama, marian, t5
from regard.interop.architecture import Architecture, FolderTensors
from regard.interop.generation_config import read_generation, write_generation
from regard.interop.setting_types import check_settings
from regard.interop.weight_rules import StateDict, WeightRule, apply_rules, float32_state, refuse_export
from regard.storage.model_folder import (
    assign_weights,
    build_empty,
    load_tokenizer,
    special_ids,
    why_no_tokenizer,
    with_mask_of,
    write_json,
)
from regard.storage.weights import WEIGHT_DTYPES, open_weights, round_weights, write_weights
from regard.untrusted_files import is_regular_file, read_json

ARCHITECTURES = {
    **bert.ARCHITECTURES,
    "gpt2": gpt2.ARCHITECTURE,
    **llama.ARCHITECTURES,
    **marian.ARCHITECTURES,
    "t5": t5.ARCHITECTURE,
}
OVERRIDABLE_SETTINGS = ("dropout", "attention_dropout", "feed_forward_dropout")
"""Config settings that may be overridden when a model is loaded, because its weights do not depend on them."""


def load_huggingface(folder: Path, **overrides: Any) -> Model:
    """Load a folder with `config.json`, safetensors and a tokenizer as an ordinary Regard model.

    `overrides` replaces its dropout rates, for fine-tuning with other values than its config has.
    """
    path = folder / "config.json"
    settings = read_json(path)
    model_type = settings.get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        short_type = shorten(str(model_type), 40)
        raise RegardError(
            f"{path}: Regard does not support model_type {short_type!r}: {did_you_mean(short_type, ARCHITECTURES)}"
        )
    for name in overrides:
        if name not in OVERRIDABLE_SETTINGS:
            raise RegardError(
                f"{name} cannot be overridden when a model is loaded: {did_you_mean(name, OVERRIDABLE_SETTINGS)}"
            )
    architecture = ARCHITECTURES[model_type]
    with _naming_file_in_errors(path, model_type):
        check_settings(settings, str(path))
        config = replace(architecture.read_config(settings, str(path)), **overrides)
    generation = _read_generation_file(folder)
    special = special_ids(settings | generation, config, folder)
    with _naming_file_in_errors(path, model_type):
        architecture.check_special(config, special)
    generation_settings = read_generation(generation or settings, str(folder)) if config.kind != "encoder" else {}
    tensors = FolderTensors(open_weights(folder), architecture.prefix)
    network = build_empty(config, tensors.weights)
    expected_shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assign_weights(network, read_state(tensors, architecture, config, expected_shapes))
    with _naming_file_in_errors(path, model_type):
        about: dict[str, Any] = {"origin": f"a Hugging Face folder of the type {model_type}", "model_type": model_type}
        about |= architecture.about(settings, config, tensors)
    tokenizer = load_tokenizer(folder)
    try:
        check_vocabularies(config, tokenizer)
    except RegardError as error:
        tokenizer, about["tokenizer"] = None, str(error)
    model = Model(network, tokenizer, with_mask_of(tokenizer, special, config, about), about)
    if model.tokenizer is None:
        about.setdefault("tokenizer", why_no_tokenizer(folder))
    if generation_settings:
        about["generation"] = generation_settings
    if warning := architecture.converter_warning(config, special, network.state_dict()):
        about.setdefault("notes", []).append(warning)
    return model


def _read_generation_file(folder: Path) -> dict[str, Any]:
    path = folder / "generation_config.json"
    return read_json(path) if is_regular_file(path) else {}


@contextmanager
def _naming_file_in_errors(path: Path, model_type: str) -> Iterator[None]:
    """Turn any error caused by the content of a config into a RegardError that names the file."""
    try:
        yield
    except KeyError as error:
        raise RegardError(f"{path} has no {error.args[0]}: is it the config of a {model_type} model?") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise RegardError(shorten(str(error) if str(path.parent) in str(error) else f"{path}: {error}")) from None


def read_state(
    tensors: FolderTensors, architecture: Architecture, config: ModelConfig, expected_shapes: dict[str, tuple[int, ...]]
) -> StateDict:
    """Convert a folder's tensors to ours, after checking that all of them fit."""
    rules, tied_copies = architecture.rules(config), architecture.tied_copies(config)
    _check_names(tensors, architecture, {name for rule in rules for name in rule.theirs} | set(tied_copies))
    for rule in rules:
        _check_shapes(tensors, rule, expected_shapes)
    architecture.check_tensors(tensors, config)
    for name, original in tied_copies.items():
        _check_copy(tensors, name, original)
    state: StateDict = {}
    for rule in rules:
        state.update(zip(rule.ours, rule.read(*_read_tensors(tensors, rule)), strict=True))
    return architecture.reorder(state, config)


def _check_names(tensors: FolderTensors, architecture: Architecture, known: set[str]) -> None:
    """Raise RegardError for a tensor that is not part of the model that the config describes."""
    used = {tensors.stored_name(name) for name in known}
    for name in set(tensors.weights.entries) - used:
        spellings = (name, architecture.prefix + name)
        if not any(re.fullmatch(pattern, full) for pattern in architecture.ignored_patterns for full in spellings):
            raise RegardError(f"{tensors.weights.where} has a tensor {quoted(name)} that its config does not describe")


def _read_tensors(tensors: FolderTensors, rule: WeightRule) -> list[Tensor]:
    if rule.default is not None and tensors.stored_name(rule.theirs[0]) is None:
        return [rule.default()]
    return [tensors.read(name) for name in rule.theirs]


def _check_shapes(tensors: FolderTensors, rule: WeightRule, expected_shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise RegardError unless their tensors convert to the expected shapes. Meta tensors make this free of memory."""
    entries = {name: entry for name in rule.theirs if (entry := tensors.entry(name)) is not None}
    for name, entry in entries.items():
        if entry.dtype not in WEIGHT_DTYPES:
            raise RegardError(
                f"{entry.file}: {name} has type {entry.dtype}; supported types: {', '.join(sorted(WEIGHT_DTYPES))}"
            )
    if len(entries) < len(rule.theirs):
        if rule.default is not None:
            return  # the default has the right shape
        missing = next(name for name in rule.theirs if name not in entries)
        raise RegardError(f"{tensors.weights.where} has no tensor {missing}, which its config requires")
    try:
        converted = rule.read(*(torch.empty(entry.shape, device="meta") for entry in entries.values()))
        fits = [tuple(tensor.shape) for tensor in converted] == [expected_shapes[name] for name in rule.ours]
    except (RuntimeError, IndexError):
        fits = False
    if not fits:
        actual = ", ".join(f"{name} {list(entry.shape)}" for name, entry in entries.items())
        expected = ", ".join(f"{name} {list(expected_shapes[name])}" for name in rule.ours)
        raise RegardError(f"{tensors.weights.where}: {actual} does not fit its config, which requires {expected}")


def _check_copy(tensors: FolderTensors, name: str, original: str) -> None:
    """Raise RegardError if a tensor that should be a copy of another differs, because `transformers` would use it."""
    entry, first = tensors.entry(name), tensors.entry(original)
    if entry is None or first is None:
        return
    comparable = entry.shape == first.shape and entry.dtype in WEIGHT_DTYPES
    if not comparable or not torch.equal(tensors.read(name), tensors.read(original)):
        reason = (
            "Regard reads this config as one embedding for encoder and decoder"
            if "embed_tokens" in name
            else "its config ties them: is tie_word_embeddings right?"
        )
        raise RegardError(f"{tensors.weights.where}: {name} differs from {original}, but {reason}")


@dataclass(frozen=True)
class HuggingFaceExport:
    """The format of an exported folder."""

    model_type: str
    architecture: str
    """Name of the `transformers` class that loads it."""
    notes: tuple[str, ...] = ()
    """Warnings for the users of the folder."""


def export_huggingface(model: Model, folder: Path, dtype: str = "float32") -> HuggingFaceExport:
    """Write a folder that `transformers` loads with its Auto classes."""
    architecture = architecture_for(model)
    architecture.check_special(model.config, model.special)
    state = float32_state(model.network)
    warning = architecture.converter_warning(model.config, model.special, state)
    if warning is not None and _trained_by_regard(model.tokenizer):
        raise RegardError(f"this model cannot be exported. {warning} Start its targets with <pad> (special.start)")
    config, state = architecture.adapt(model.config, state)
    generation = write_generation(model, config)
    settings = architecture.write_config(config) | _labels(model)
    settings |= {"torch_dtype": dtype, "pad_token_id": _pad_token_id(config)}
    ids = ("eos_token_id", "bos_token_id", "decoder_start_token_id", "sep_token_id")
    settings |= {name: generation.get(name) for name in ids if name in generation or name in ids[:2]}
    write_json(folder / "config.json", settings)
    if config.kind != "encoder":
        write_json(folder / "generation_config.json", generation)
    exported = apply_rules(architecture.rules(config), state)
    exported |= architecture.extra_tensors(config, exported)
    write_weights(folder / "model.safetensors", round_weights(exported, dtype))
    if model.tokenizer is not None:
        tokenizer_for(model, config, generation).save(folder)
    dropout_note = _dropout_note(config, architecture.read_config(settings, str(folder / "config.json")))
    notes = [note for note in (warning, dropout_note) if note is not None]
    return HuggingFaceExport(str(settings["model_type"]), str(settings["architectures"][0]), tuple(notes))


def _dropout_note(config: ModelConfig, exported: ModelConfig) -> str | None:
    """Return a note on the dropout rates that the exported `config.json` cannot express, if there are any."""
    rates = {name: (getattr(config, name), getattr(exported, name)) for name in OVERRIDABLE_SETTINGS}
    changed = [f"{name} is {theirs} instead of {ours}" for name, (ours, theirs) in rates.items() if ours != theirs]
    if not changed:
        return None
    return f"This format cannot store all dropout rates of the model. In further training, {', '.join(changed)}."


def architecture_for(model: Model) -> Architecture:
    """Return the architecture in which a model is exported: that of the folder it was loaded from, or else the one that
    has its shape."""
    config = model.config
    is_llama_like = config.kind == "decoder" and config.norm_kind == "rms"
    is_t5_like = config.kind == "encoder-decoder" and config.positions == "t5"
    refuse_export(
        "a Hugging Face model",
        {
            "its source tokens attend to later ones (prefix), and other engines have no such mask": config.prefix,
            "its final norm is missing, or follows post-norm layers (final_norm)": not config.has_usual_final_norm,
            f"its attention_scale is {config.attention_scale}": config.attention_scale is not None and not is_t5_like,
            f"each position sees only {config.window} positions (window)": config.window is not None
            and not is_llama_like,
            "it normalises queries and keys (qk_norm)": config.qk_norm and not is_llama_like,
            "it is a decoder with classes": config.kind == "decoder" and config.classes > 0,
            "it is a decoder with an output_bias or output_transform": config.kind == "decoder"
            and (config.output_bias or config.output_transform),
        },
    )
    loaded_as = model.about.get("model_type")  # read from a file, so of any type
    architecture = ARCHITECTURES.get(loaded_as) if isinstance(loaded_as, str) else None
    if architecture is None or architecture.kind != config.kind:
        architecture = ARCHITECTURES[_model_type(config)]
    has_no_head = config.tied and not (config.classes or config.output_bias or config.output_transform)
    if config.kind == "encoder" and model.about.get("head") == "none" and has_no_head:
        return replace(architecture, adapt=bert.adapt_without_head)
    return architecture


def _model_type(config: ModelConfig) -> str:
    """Return the architecture that has the shape of a config."""
    if config.kind == "encoder":
        return "distilbert" if config.is_classifier and config.classifier_activation == "relu" else "bert"
    if config.kind == "encoder-decoder":
        if config.positions == "t5":
            return "t5"
        if config.positions == "learned" and config.embedding_norm:
            return "bart" if config.norm == "post" else "mbart"
        if config.sinusoids == "fairseq":
            return "m2m_100"
        return "marian" if config.norm == "post" else "pegasus"
    if config.norm_kind != "rms":
        return "gpt2"
    if config.qk_norm:
        return "qwen3"
    if config.attention_bias == "qkv":
        return "qwen2"
    return "llama" if config.window is None else "mistral"


def _labels(model: Model) -> dict[str, Any]:
    """Return the settings that name a model's classes, if it has any."""
    names = model.about.get("classes")
    if not isinstance(names, list) or model.config.classes != len(names) or not all(isinstance(n, str) for n in names):
        return {}
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise RegardError(f"{times} classes are named {name!r}: give each its own name in about['classes']")
    return {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}


def _pad_token_id(config: ModelConfig) -> int | None:
    """Return the one id of <pad> in a `config.json`, which must exist in both vocabularies if they are separate."""
    pads = [id_ for id_ in (config.pad_id, config.output_pad_id) if id_ is not None]
    return min(pads, default=None)


def _trained_by_regard(tokenizer: Tokenizer | None) -> bool:
    """Return whether a tokenizer has the special ids of those that Regard trains."""
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return False
    ids = [tokenizer.engine.token_to_id(token) for token in (END, SEPARATOR, PAD)]
    return ids == [0, 1, tokenizer.size - 1]


def tokenizer_for(model: Model, written: ModelConfig, generation: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer for an exported model: it always has a padding token, but lacks ids that were not exported.

    `written` is the config of the exported model.
    """
    tokenizer = model.tokenizer
    assert tokenizer is not None
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return tokenizer
    engine, settings = tokenizer.engine, dict(tokenizer.settings)
    if written.vocab_size < model.config.vocab_size:
        description = json.loads(engine.to_str())
        added_tokens = description["added_tokens"]
        description["added_tokens"] = [token for token in added_tokens if token["id"] < written.vocab_size]
        engine = tokenizers.Tokenizer.from_str(json.dumps(description))
        settings = {name: value for name, value in settings.items() if value != tokenizer.token(written.vocab_size)}
    roles = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "pad_token": "pad_token_id"}
    for role, name in roles.items():
        if isinstance(id_ := generation.get(name), int) and written.kind != "encoder":
            settings.setdefault(role, tokenizer.token(id_))
    if written.kind == "encoder" and written.pad_id is not None:
        settings.setdefault("pad_token", tokenizer.token(written.pad_id))
    if written.kind == "encoder-decoder":  # CTranslate2's converter requires one; byte-level BPE never uses it
        settings.setdefault("unk_token", settings.get("pad_token"))
    return HuggingFaceTokenizer(engine, settings)
