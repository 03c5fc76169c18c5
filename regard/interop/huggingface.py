"""Hugging Face folders: other people's models in, ours out."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Engine
from torch import Tensor

from regard.config import ModelConfig, did_you_mean
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer import END, PAD, SEPARATOR, Tokenizer
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.formatting import quoted, shorten
from regard.interop import bert, gpt2, llama, marian
from regard.interop.architecture import Held, Shape
from regard.interop.generation_config import read_generation, write_generation
from regard.interop.weight_rules import Rule, State, refuse, state_of, to_theirs
from regard.storage.model_folder import empty, fill, load_tokenizer, special_ids, why_no_tokenizer, write_json
from regard.storage.weights import REAL, open_weights, rounded, write_weights
from regard.untrusted_files import is_there, read_json

SHAPES = {
    "bert": bert.SHAPE,
    "gpt2": gpt2.SHAPE,
    "llama": llama.SHAPE,
    "marian": marian.SHAPE,
    "pegasus": marian.SHAPE,
}
CHANGES = ("dropout", "attention_dropout")
"""what a model may be loaded with that is not in its weights"""


def load_huggingface(folder: Path, **changes: Any) -> Model:
    """The model of a folder with `config.json`, safetensors and a tokenizer, as an ordinary Regard model.

    `changes` are its dropout and attention_dropout, if it is to learn with others than its config tells.
    """
    path = folder / "config.json"
    told = read_json(path)
    kind = told.get("model_type")
    if not isinstance(kind, str) or kind not in SHAPES:
        named = shorten(str(kind), 40)
        raise RegardError(f"{path}: Regard has no model of the type {named!r}: {did_you_mean(named, SHAPES)}")
    for name in changes:
        if name not in CHANGES:
            raise RegardError(f"{name} cannot be changed as a model is loaded: {did_you_mean(name, CHANGES)}")
    shape = SHAPES[kind]
    with _named(path, kind):
        config = replace(shape.read_config(told, str(path)), **changes)
    generation = _generation(folder)
    special = special_ids(told | generation, config, folder)
    kept = read_generation(generation or told, str(folder)) if config.kind != "encoder" else {}
    held = Held(open_weights(folder), shape.base)
    network = empty(config, held.weights)
    fill(network, read_state(held, shape, config, {name: tuple(x.shape) for name, x in network.state_dict().items()}))
    with _named(path, kind):
        about = {"origin": f"a Hugging Face folder of the type {kind}"} | shape.about(told, config, held)
    stored = Model(network, load_tokenizer(folder), special, about)
    if stored.tokenizer is None:
        about["tokenizer"] = why_no_tokenizer(folder)
    if kept:
        about["generation"] = kept
    if trap := shape.trap(config, special, network.state_dict()):
        about.setdefault("notes", []).append(trap)
    return stored


def _generation(folder: Path) -> dict[str, Any]:
    path = folder / "generation_config.json"
    return read_json(path) if is_there(path) else {}


@contextmanager
def _named(path: Path, kind: str) -> Iterator[None]:
    """Whatever is wrong with a config is a ValueError that names it."""
    try:
        yield
    except KeyError as error:
        raise RegardError(f"{path} has no {error.args[0]}: is it a {kind} model's?") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise RegardError(shorten(str(error) if str(path.parent) in str(error) else f"{path}: {error}")) from None


def read_state(held: Held, shape: Shape, config: ModelConfig, wanted: dict[str, tuple[int, ...]]) -> State:
    """Our tensors from a folder's, once all of these are known to fit."""
    rules, copies = shape.rules(config), shape.copies(config)
    _check_names(held, shape, {name for rule in rules for name in rule.theirs} | set(copies))
    for rule in rules:
        _check_shapes(held, rule, wanted)
    shape.check(held, config)
    for name, original in copies.items():
        _check_copy(held, name, original)
    state: State = {}
    for rule in rules:
        state.update(zip(rule.ours, rule.read(*_tensors(held, rule)), strict=True))
    return shape.arrange(state, config)


def _check_names(held: Held, shape: Shape, known: set[str]) -> None:
    """A ValueError for a tensor that a model of the config has not."""
    used = {held.spelled(name) for name in known}
    for name in set(held.weights.entries) - used:
        if not any(re.fullmatch(each, full) for each in shape.ignored for full in (name, shape.base + name)):
            raise RegardError(f"{held.weights.where} has a tensor {quoted(name)} that a model of its config has not")


def _tensors(held: Held, rule: Rule) -> list[Tensor]:
    if rule.default is not None and held.spelled(rule.theirs[0]) is None:
        return [rule.default()]
    return [held.read(name) for name in rule.theirs]


def _check_shapes(held: Held, rule: Rule, wanted: dict[str, tuple[int, ...]]) -> None:
    """A ValueError unless their tensors will fit where they go: tried on tensors that take no memory."""
    entries = {name: entry for name in rule.theirs if (entry := held.entry(name)) is not None}
    for name, entry in entries.items():
        if entry.dtype not in REAL:
            raise RegardError(f"{entry.file}: {name} is of type {entry.dtype}: weights are {', '.join(sorted(REAL))}")
    if len(entries) < len(rule.theirs):
        if rule.default is not None:
            return  # of the right shape by itself
        missing = next(name for name in rule.theirs if name not in entries)
        raise RegardError(f"{held.weights.where} has no tensor {missing}, which its config asks for")
    try:
        got = rule.read(*(torch.empty(entry.shape, device="meta") for entry in entries.values()))
        right = [tuple(each.shape) for each in got] == [wanted[name] for name in rule.ours]
    except (RuntimeError, IndexError):
        right = False
    if not right:
        told = ", ".join(f"{name} {list(entry.shape)}" for name, entry in entries.items())
        needs = ", ".join(f"{name} {list(wanted[name])}" for name in rule.ours)
        raise RegardError(f"{held.weights.where}: {told} does not fit its config, which makes {needs}")


def _check_copy(held: Held, name: str, original: str) -> None:
    """A ValueError if a folder holds under a second name something else: `transformers` would use it."""
    entry, first = held.entry(name), held.entry(original)
    if entry is None or first is None:
        return
    if entry.shape != first.shape or entry.dtype not in REAL or not torch.equal(held.read(name), held.read(original)):
        raise RegardError(
            f"{held.weights.where}: {name} is another tensor than {original}, and by its config should be the same: "
            "Regard's model has one for both (is tie_word_embeddings right?)"
        )


@dataclass(frozen=True)
class Written:
    """What a folder was written as."""

    shape: str
    architecture: str
    notes: tuple[str, ...] = ()
    """what to beware of"""


def export_huggingface(stored: Model, folder: Path, dtype: str = "float32") -> Written:
    """Write into a folder what `transformers` loads with its Auto classes."""
    shape = shape_for(stored)
    ours = state_of(stored.network)
    trap = shape.trap(stored.config, stored.special, ours)
    if trap is not None and _trained_here(stored.tokenizer):
        raise RegardError(
            f"this model cannot be written for others. {trap} Start its targets with <pad> (special.start)"
        )
    config, state = shape.adapt(stored.config, ours)
    generation = write_generation(stored, config)
    told = shape.write_config(config) | _labels(stored)
    told |= {"torch_dtype": dtype, "pad_token_id": config.pad_id}
    ids = ("eos_token_id", "bos_token_id", "decoder_start_token_id", "sep_token_id")
    told |= {name: generation.get(name) for name in ids if name in generation or name in ids[:2]}
    write_json(folder / "config.json", told)
    if config.kind != "encoder":
        write_json(folder / "generation_config.json", generation)
    theirs = to_theirs(shape.rules(config), state)
    theirs |= shape.more(config, theirs)
    write_weights(folder / "model.safetensors", rounded(theirs, dtype))
    if stored.tokenizer is not None:
        tokenizer_for(stored, config, generation).save(folder)
    return Written(str(told["model_type"]), str(told["architectures"][0]), () if trap is None else (trap,))


def shape_for(stored: Model) -> Shape:
    """Which shape a model is written in."""
    config = stored.config
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
        return llama.SHAPE if config.norm_kind == "rms" else gpt2.SHAPE
    if config.kind == "encoder-decoder":
        return marian.SHAPE
    bare = config.tied and not (config.classes or config.output_bias or config.output_transform)
    return bert.HEADLESS if stored.about.get("head") == "none" and bare else bert.SHAPE


def _labels(stored: Model) -> dict[str, Any]:
    """The names of a model's classes, if it has any."""
    names = stored.about.get("classes")
    if not isinstance(names, list) or stored.config.classes != len(names) or not all(isinstance(n, str) for n in names):
        return {}
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise RegardError(f"{times} classes are called {name!r}: give each its own name in about['classes']")
    return {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}


def _trained_here(tokenizer: Tokenizer | None) -> bool:
    """Whether a tokenizer is laid out as those that Regard trains."""
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return False
    ids = [tokenizer.engine.token_to_id(token) for token in (END, SEPARATOR, PAD)]
    return ids == [0, 1, tokenizer.size - 1]


def tokenizer_for(stored: Model, written: ModelConfig, generation: dict[str, Any]) -> Tokenizer:
    """The tokenizer as others need it: with a token to pad with, and without the <pad> that a decoder was written
    without."""
    tokenizer = stored.tokenizer
    assert tokenizer is not None
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return tokenizer
    engine, settings = tokenizer.engine, dict(tokenizer.settings)
    if written.vocab_size < stored.config.vocab_size:
        told = json.loads(engine.to_str())
        told["added_tokens"] = [token for token in told["added_tokens"] if token["id"] < written.vocab_size]
        engine = Engine.from_str(json.dumps(told))
        settings = {name: value for name, value in settings.items() if value != tokenizer.token(written.vocab_size)}
    roles = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "pad_token": "pad_token_id"}
    for role, name in roles.items():
        if isinstance(id_ := generation.get(name), int) and written.kind != "encoder":
            settings.setdefault(role, tokenizer.token(id_))
    if written.kind == "encoder" and written.pad_id is not None:
        settings.setdefault("pad_token", tokenizer.token(written.pad_id))
    if written.kind == "encoder-decoder":  # CTranslate2's converter does not do without; nothing is unknown to bytes
        settings.setdefault("unk_token", settings.get("pad_token"))
    return HuggingFaceTokenizer(engine, settings)
