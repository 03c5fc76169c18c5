"""Hugging Face folders: other people's models in, ours out."""

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tokenizers import Tokenizer as Engine
from torch import Tensor

from regard.config import ModelConfig, did_you_mean
from regard.files import is_there, quoted, read_json, shorten
from regard.interop import bert, gpt2, llama, marian
from regard.interop.rules import Rule, interleaved, refuse, state_of, to_theirs
from regard.store import Stored, empty, fill, generation_config, load_tokenizer, special_ids, write_json
from regard.text.tokenizer import Tokenizer
from regard.weights import REAL, Weights, open_weights, write_weights

SHAPES: dict[str, ModuleType] = {"bert": bert, "gpt2": gpt2, "llama": llama, "marian": marian, "pegasus": marian}
"""each has read_config, write_config, adapt, rules, and the names it may ignore"""

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def load_huggingface(folder: Path) -> Stored:
    """The model of a folder with `config.json`, safetensors and a tokenizer, as an ordinary Regard model."""
    path = folder / "config.json"
    told = read_json(path)
    kind = told.get("model_type")
    if not isinstance(kind, str) or kind not in SHAPES:
        named = shorten(str(kind), 40)
        raise ValueError(f"{path}: Regard has no model of the type {named!r}: {did_you_mean(named, SHAPES)}")
    shape = SHAPES[kind]
    generation = folder / "generation_config.json"
    ids = told | (read_json(generation) if is_there(generation) else {})
    try:
        config: ModelConfig = shape.read_config(told, str(path))
    except KeyError as error:
        raise ValueError(f"{path} has no {error.args[0]}: is it a {kind} model's?") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(shorten(str(error) if str(path) in str(error) else f"{path}: {error}")) from None
    special = special_ids(ids, config, folder)
    weights = open_weights(folder)
    network = empty(config, weights)
    rules = shape.rules(config)
    found = _find(weights, rules, shape)
    _check_shapes(weights, rules, found, {name: tuple(x.shape) for name, x in network.state_dict().items()})
    state: dict[str, Tensor] = {}
    for rule in rules:
        state.update(zip(rule.ours, rule.read(*_tensors(weights, rule, found)), strict=True))
    if shape is marian:
        _check_sinusoids(weights, config.d_model)
        state = interleaved(state, config.d_model)
    fill(network, state)
    return Stored(network, load_tokenizer(folder), special, {"origin": f"a Hugging Face folder of the type {kind}"})


def _find(weights: Weights, rules: list[Rule], shape: ModuleType) -> dict[str, str]:
    """The name under which a folder holds each tensor: the full one, one without the base's name, or an older one."""
    found = {}
    for name in (name for rule in rules for name in rule.theirs if rule.default is None or name in weights.entries):
        older = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        options = [name, name.removeprefix(shape.BASE), older, older.removeprefix(shape.BASE)]
        there = [option for option in options if option in weights.entries]
        if not there:
            raise ValueError(f"{weights.where} has no tensor {name}, which its config asks for")
        found[name] = there[0]
    ignored = [*shape.IGNORED, r"lm_head\.weight"]
    ignored += [re.escape(name) for name in getattr(shape, "POSITIONS", ())]
    for name in set(weights.entries) - set(found.values()):
        if not any(re.fullmatch(each, full) for each in ignored for full in (name, shape.BASE + name)):
            raise ValueError(f"{weights.where} has a tensor {quoted(name)} that a model of its config has not")
    return found


def _tensors(weights: Weights, rule: Rule, found: dict[str, str]) -> list[Tensor]:
    if rule.default is not None and rule.theirs[0] not in found:
        return [rule.default()]
    return [weights.read(found[name]) for name in rule.theirs]


def _check_shapes(
    weights: Weights, rules: list[Rule], found: dict[str, str], wanted: dict[str, tuple[int, ...]]
) -> None:
    """A ValueError unless each tensor will fit where it goes: tried on tensors that take no memory."""
    for rule in rules:
        entries = {name: weights.entries[found[name]] for name in rule.theirs if name in found}
        for name, entry in entries.items():
            if entry.dtype not in REAL:
                raise ValueError(
                    f"{entry.file}: {name} is of type {entry.dtype}: weights are {', '.join(sorted(REAL))}"
                )
        if len(entries) < len(rule.theirs):
            continue  # a default, of the right shape by itself
        told = ", ".join(f"{name} {list(entry.shape)}" for name, entry in entries.items())
        try:
            got = rule.read(*(torch.empty(entry.shape, device="meta") for entry in entries.values()))
            right = [tuple(each.shape) for each in got] == [wanted[name] for name in rule.ours]
        except (RuntimeError, IndexError):
            right = False
        if not right:
            needs = ", ".join(f"{name} {list(wanted[name])}" for name in rule.ours)
            raise ValueError(f"{weights.where}: {told} does not fit its config, which makes {needs}")


def _check_sinusoids(weights: Weights, width: int) -> None:
    """A folder may hold the position tables; if they are anything but sinusoids, this is another model."""
    for name in marian.POSITIONS:
        entry = weights.entries.get(name)
        if entry is None:
            continue
        if len(entry.shape) != 2 or entry.shape[1] != width or entry.dtype not in REAL:
            raise ValueError(f"{weights.where}: {name} is no table of positions: {entry.dtype} {list(entry.shape)}")
        table = weights.read(name)
        if not torch.allclose(table.float(), marian.sines_then_cosines(*table.shape), atol=1e-3):
            raise ValueError(f"{weights.where}: {name} holds other positions than the paper's sinusoids")


def export_huggingface(stored: Stored, folder: Path, dtype: str = "float32") -> str:
    """Write into a folder what `transformers` loads with its Auto classes; the shape it was written in."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not a choice: {did_you_mean(dtype, DTYPES)}")
    shape = shape_for(stored.config)
    config, state = shape.adapt(stored.config, state_of(stored.network))
    told = shape.write_config(config)
    ids = generation_config(Stored(stored.network, None, stored.special)) | {"pad_token_id": config.pad_id}
    if stored.config.kind == "encoder-decoder":
        suppressed = dict.fromkeys([*stored.special.suppressed, *([config.pad_id] if config.pad_is_last else [])])
        ids |= {"suppress_tokens": list(suppressed) or None, "max_length": min(512, config.max_length)}
    elif config.pad_id is None and stored.special.end:
        ids["pad_token_id"] = stored.special.end[0]
    ids = {name: value for name, value in ids.items() if value is not None}
    told |= {"torch_dtype": dtype, "eos_token_id": None, "bos_token_id": None}
    told |= {name: value for name, value in ids.items() if name.endswith("_token_id")}
    labels = stored.about.get("classes")
    if labels and stored.config.classes == len(labels):
        told |= {"id2label": {str(i): name for i, name in enumerate(labels)}}
        told |= {"label2id": {name: i for i, name in enumerate(labels)}}
    write_json(folder / "config.json", told)
    if stored.config.kind != "encoder":
        write_json(folder / "generation_config.json", ids)
    theirs = to_theirs(shape.rules(config), state)
    if shape is marian:
        theirs |= marian.repeated(config, theirs)
    write_weights(folder / "model.safetensors", {name: tensor.to(DTYPES[dtype]) for name, tensor in theirs.items()})
    if stored.tokenizer is not None:
        _tokenizer_for(stored.tokenizer, stored.config, config).save(folder)
    return str(told["model_type"])


def shape_for(config: ModelConfig) -> ModuleType:
    """Which shape a model is written in."""
    refuse(
        "any shape that others run",
        {
            "its source sees itself whole (prefix), and other engines have no such mask": config.prefix,
            "it is a decoder with classes": config.kind == "decoder" and config.classes > 0,
            "it is a decoder with an output_bias or output_transform": config.kind == "decoder"
            and (config.output_bias or config.output_transform),
        },
    )
    if config.kind == "decoder":
        return llama if config.norm_kind == "rms" else gpt2
    return marian if config.kind == "encoder-decoder" else bert


def _tokenizer_for(tokenizer: Tokenizer, ours: ModelConfig, written: ModelConfig) -> Tokenizer:
    """The tokenizer without the <pad> that a decoder was written without; padding is then done with the end token."""
    if written.vocab_size == ours.vocab_size or type(tokenizer) is not Tokenizer:
        return tokenizer
    told = json.loads(tokenizer.engine.to_str())
    told["added_tokens"] = [token for token in told["added_tokens"] if token["id"] < written.vocab_size]
    settings: dict[str, Any] = tokenizer.settings | {"pad_token": tokenizer.settings["eos_token"]}
    return Tokenizer(Engine.from_str(json.dumps(told)), settings)
