"""A recipe to all that a run needs: text as batches, the tokenizer, the network, what is known of them.

How a text is framed decides what a model learns and must be the same when it is used: the tokenizer that is kept with
the model puts the same ids around a text as the batches here.

| task | what the model reads | kept with the tokenizer |
|---|---|---|
| translation, encoder-decoder | source `</s>`; `<pad>` target | `</s>` behind a text |
| translation, decoder | source `<sep>` target | nothing |
| language | `</s>` text `</s>` text | `</s>` before a text |
| classification | text `</s>` | `</s>` behind a text |

A model that is loaded keeps the ids that its own tokenizer puts before a text, [CLS] or <s>.
"""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import ModelConfig, SpecialIds
from regard.data import batches as lay
from regard.data.batches import Batches
from regard.data.corpus import Problems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenized_corpus import Prepared
from regard.data.tokenizer import Tokenizer
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.load import load
from regard.model.transformer import Network, build
from regard.system_memory import available_memory
from regard.training.recipe import CHANGEABLE, Data, Recipe, TaskKind, Train, check_kind, located
from regard.training.training_text import (
    PETIT_SEED,
    Text,
    begin_with,
    petit_files,
    prepared_text,
    text_digest,
    trained_tokenizer,
)


@dataclass(frozen=True)
class Task:
    """What is to be learned, ready to be learned."""

    kind: TaskKind
    network: Network
    """in float32 on the CPU: with fresh weights by `train.seed`, or those of `model.start`"""
    tokenizer: Tokenizer
    """framed as the model reads text"""
    special: SpecialIds
    about: dict[str, Any]
    """for `Model.about`: name, recipe, data, languages, classes; of translators "longest", the tokens of the longest
    source that was learned from, framed"""
    batches: Batches
    """to learn from: this rank's share"""
    validation: Batches | None
    """each example of the validation text once, of any length that fits into a batch and the model's positions"""
    examples: list[tuple[str, str]]
    """of the validation text: source and reference, text and class, or a prompt and what follows it"""
    count: int
    """examples to learn from"""
    left_out: int
    """examples that are too long to be learned from"""
    problems: dict[str, int]
    """lines of the files that could not be used, by kind"""
    packed: bool
    """whether sentences share rows"""
    fixed: bool
    """whether all batches have one shape"""
    digest: str
    """SHA-256 of all the text as ids: a run goes on with the same alone"""

    def stored(self) -> Model:
        """The model as it is saved."""
        return Model(self.network, self.tokenizer, self.special, self.about)


@dataclass(frozen=True)
class Reading:
    """How the model reads text."""

    tokenizer: Tokenizer
    special: SpecialIds
    end: int
    """stands behind each text; for language between them"""
    pad: int
    """fills rows; in an encoder-decoder it is what targets start with"""


def make_task(recipe: Recipe, cache: Path, packed: bool, rank: int = 0, ranks: int = 1) -> Task:
    """All that a recipe's run needs; what takes long (tokenizer, ids) is kept in the folder `cache` for the next one.

    `packed` lays sentences end to end where the task allows it: translations into rows of `train.max_length`, rounded
    up to a multiple of 64; texts of a language model that are lines or paragraphs into blocks, where they do not see
    each other. One text as long as a file is cut into blocks either way, and classification is always padded.
    """
    if recipe.start is None:  # what can never fit is refused before the text is read
        check_memory(recipe.config(vocab_size=2, classes=2 * (recipe.data.task == "classification")), recipe.train)
    data = petit_files(recipe.data, cache) if recipe.data.petit else located(recipe.data)
    base = None if recipe.start is None else _base(recipe.start, data.task)
    reading = _fresh_reading(recipe, data, cache) if base is None else _own_reading(base, data.task)
    problems = Problems(data.skip_bad)
    text = prepared_text(data, reading.tokenizer, cache, problems, recipe.tokenizer.dropout, recipe.train.seed)
    text = _begun(text, data, reading)
    classes = text.train.classes
    network = _fresh(recipe, reading, len(classes)) if base is None else _further(base, recipe, classes)
    reading.special.check(network.config)
    alone = data.task == "classification" or (data.task == "language" and data.documents == "file")
    if recipe.train.packed and not alone and network.config.attention_dropout:
        told = f"attention_dropout={network.config.attention_dropout}, the model's own"
        raise RegardError(f"train.packed=true is not possible with {told}: set model.attention_dropout=0")
    packed = packed and not alone and not network.config.attention_dropout
    laying = _Laying(recipe, network.config, reading, packed, rank, ranks)
    batches = laying.training(text.train)
    trying = laying if data.task == "language" else replace(laying, packed=False)  # a text is tried as it is learned
    about = _about(recipe, text, base) | laying.longest_source(text.train)
    return Task(
        kind=data.task,
        network=network,
        tokenizer=reading.tokenizer,
        special=reading.special,
        about=about,
        batches=batches,
        validation=None if text.validation is None else trying.validation(text.validation),
        examples=laying.readable(text),
        count=text.train.examples - batches.left_out,
        left_out=batches.left_out,
        problems=dict(problems.counts),
        digest=text_digest(text),
        packed=packed,
        fixed=data.task == "language" or packed,
    )


def cache_folder() -> Path:
    """Where prepared text is kept: $REGARD_CACHE, or `regard` in the user's folder for such things."""
    if own := os.environ.get("REGARD_CACHE"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache") / "regard"


# How a model reads it


def _fresh_reading(recipe: Recipe, data: Data, cache: Path) -> Reading:
    """A new tokenizer of the training text, in the frame of the task."""
    tokenizer = trained_tokenizer(data, recipe.tokenizer, cache)
    end, pad = tokenizer.end, tokenizer.pad
    special = SpecialIds(end=(end,))
    if data.task == "language":
        return Reading(tokenizer.with_template(before=(end,)), special, end, pad)
    if data.task == "translation" and recipe.config(tokenizer.size).kind == "decoder":
        return Reading(tokenizer.with_template(), replace(special, separator=tokenizer.separator), end, pad)
    if data.task == "translation":
        special = replace(special, start=pad)
    return Reading(tokenizer.with_template(after=(end,)), special, end, pad)


def _own_reading(base: Model, task: TaskKind) -> Reading:
    """The tokenizer and ids of a model that is there, in the frame of the task; what stands before a text stays."""
    tokenizer, special, config = base.require_tokenizer(), base.special, base.config
    before = tokenizer.before
    ends = tokenizer.after if task == "classification" and tokenizer.after else special.end or tokenizer.after
    if not ends and not (task == "language" and before):
        raise RegardError("the model to start from has no id that ends a text (eos_token_id): give its folder one")
    end, after = ends[0] if ends else before[0], (ends[0],) if ends else ()
    if task == "language":
        end, after = (before or ends)[0], ()
        before = (*before, *([end] if not before else []))
        special = replace(special, separator=None, end=tuple(dict.fromkeys([*special.end, end])))
    elif config.kind == "decoder" and task == "translation":
        after, special = (), replace(special, separator=_separator(tokenizer, special))
    if len(before) > (0 if config.kind == "encoder-decoder" else 1) or len(tokenizer.after) > 1:
        framed = [*map(tokenizer.token, tokenizer.before), "text", *map(tokenizer.token, tokenizer.after)]
        raise RegardError(f"the model to start from reads {' '.join(framed)}, and cannot be trained so: use another")
    if (before, after) != (tokenizer.before, tokenizer.after):
        tokenizer = tokenizer.with_template(before, after)
    pad = special.start if config.kind == "encoder-decoder" else config.pad_id
    return Reading(tokenizer, special, end, end if pad is None else pad)


def _separator(tokenizer: Tokenizer, special: SpecialIds) -> int:
    """What parts a source from its target in a decoder that may have learned to translate, or not yet."""
    if special.separator is not None:
        return special.separator
    if isinstance(tokenizer, HuggingFaceTokenizer):
        named = tokenizer.engine.token_to_id(str(tokenizer.settings.get("sep_token", "")))
        if named is not None:
            return int(named)
    line_feed = tokenizer.encode("\n")
    if len(line_feed) != 1:
        raise RegardError(
            "the model to start from has nothing to part a source from its target: no separator, no sep_token, "
            f"and a line feed is {len(line_feed)} ids; name a sep_token in its tokenizer_config.json"
        )
    return line_feed[0]


def _begun(text: Text, data: Data, reading: Reading) -> Text:
    """The text with the ids that its model reads before each example, where batches do not put them."""
    before = reading.tokenizer.before
    if data.task == "language" or not before:
        return text
    validation = None if text.validation is None else begin_with(text.validation, before)
    return replace(text, train=begin_with(text.train, before), validation=validation)


# The network


def _base(start: str, task: TaskKind) -> Model:
    """The model to go on from, if it can do the task."""
    base = load(start)
    check_kind(task, base.config.kind)
    if base.config.classes and task != "classification":
        raise RegardError(f"model.start={start!r} names classes, and has no output over tokens: start from another")
    return base


def _fresh(recipe: Recipe, reading: Reading, classes: int) -> Network:
    torch.manual_seed(recipe.train.seed)
    config = recipe.config(reading.tokenizer.size, classes)
    check_memory(config, recipe.train)
    return build(config)


def check_memory(config: ModelConfig, train: Train) -> None:
    """A ValueError if there is less memory than the model takes at the least; nothing is allocated for it.

    On a CPU it holds weights, gradients and two moments; for a GPU the weights are made here first.
    """
    on_gpu = train.device != "cpu" and torch.cuda.is_available()
    needed, there = config.least_parameters * (4 if on_gpu else 16), available_memory()
    if there is not None and needed > there:
        raise RegardError(
            f"a model of {config.least_parameters:,} parameters takes {needed / 1e9:,.1f} GB of memory to train, and "
            f"{there / 1e9:,.1f} GB are available: choose a smaller d_model, d_ff, layers or vocab_size"
        )


def _further(base: Model, recipe: Recipe, classes: tuple[str, ...]) -> Network:
    """The loaded weights in a model with another dropout, and for other classes than its own with a fresh head."""
    changes = {key: recipe.model[key] for key in CHANGEABLE if key in recipe.model}
    changes["prefix"] = base.config.prefix and recipe.data.task == "translation"
    if classes:
        changes |= {"classes": len(classes), "output_bias": False, "output_transform": False}
    torch.manual_seed(recipe.train.seed)
    network = build(replace(base.config, **changes))
    same = base.about.get("classes") == list(classes)
    wanted = {name for name in network.state_dict() if same or not name.startswith("classifier.")}
    state = {name: weights for name, weights in base.network.state_dict().items() if name in wanted}
    assert state.keys() == wanted, wanted - state.keys()
    network.load_state_dict(state, strict=False)
    return network


# Batches


@dataclass(frozen=True)
class _Laying:
    """How examples are laid into batches, and which are too long for that."""

    recipe: Recipe
    config: ModelConfig
    reading: Reading
    packed: bool
    rank: int
    ranks: int

    @property
    def task(self) -> TaskKind:
        return self.recipe.data.task

    @property
    def places(self) -> int | None:
        """How many tokens the model can read, where that is bound."""
        return self.config.max_length if self.config.positions == "learned" else None

    @property
    def row(self) -> int:
        """Places of a packed row."""
        return -(-self.recipe.train.max_length // 64) * 64

    @property
    def limit(self) -> int:
        """Tokens of the longest example that is learned from."""
        train = self.recipe.train
        return min(train.max_length, train.batch_tokens, self.places or train.max_length)

    def lengths(self, data: Prepared) -> Any:
        """How many tokens the longer side of each example has, with what is put around it."""
        if self.task == "classification":
            return data.lengths(0) + 1
        if self.config.kind == "decoder":
            return data.lengths(0) + data.lengths(1) + 1
        return np.maximum(data.lengths(0), data.lengths(1)) + 1

    def training(self, data: Prepared) -> Batches:
        """To learn from."""
        return self._language(data) if self.task == "language" else self._examples(data, self.limit, self.row)

    def validation(self, data: Prepared) -> Batches:
        """Each example once, those that are too long to learn from too, as long as a batch holds them."""
        if self.task == "language":
            return self._language(data, covering=True)
        most = self.recipe.train.batch_tokens
        longest = min(int(self.lengths(data).max()), self.places or most)
        row = max(self.row, -(-longest // 64) * 64)
        return self._examples(data, min(longest, most), row if row <= most else self.row)

    def longest_source(self, data: Prepared) -> dict[str, int]:
        """Of a translator, the longest source among what it learns from, framed as its tokenizer does."""
        if self.task != "translation":
            return {}
        plain = slice(data.examples)  # as a user's sentences are written
        learned = data.lengths(0)[plain][self.lengths(data)[plain] <= self.limit]
        return {"longest": int(learned.max()) + len(self.reading.tokenizer.after)}

    def readable(self, text: Text) -> list[tuple[str, str]]:
        """The examples without texts that a classifier has no positions for; a translator reads those in pieces."""
        if self.task != "classification" or self.places is None or text.validation is None:
            return text.examples
        short = self.lengths(text.validation) <= self.places
        return [example for example, fits in zip(text.examples, short, strict=True) if fits]

    def _language(self, data: Prepared, covering: bool = False) -> Batches:
        train, reading = self.recipe.train, self.reading
        if self.places is not None and train.max_length > self.places:
            raise RegardError(
                f"train.max_length={train.max_length} is more than the {self.places} positions that the model has: "
                f"set it to {self.places}" + ("" if self.recipe.start else ", or model.max_length higher")
            )
        share = (train.batch_tokens, train.seed, self.rank, self.ranks)
        if self.packed and self.recipe.data.documents != "file":
            return lay.language_documents(data, reading.end, reading.pad, train.max_length, *share)
        return lay.language_blocks(data, reading.end, train.max_length, *share, covering=covering)

    def _examples(self, data: Prepared, limit: int, row: int) -> Batches:
        train, special, end, pad = self.recipe.train, self.reading.special, self.reading.end, self.reading.pad
        size, share = train.batch_tokens, {"seed": train.seed, "rank": self.rank, "ranks": self.ranks}
        if self.task == "classification":
            return lay.classification(data, end, pad, size, limit, **share)
        if self.config.kind == "encoder-decoder":
            if self.packed:
                return lay.packed_translation(data, end, pad, size, row, limit, **share)
            return lay.translation(data, end, pad, size, limit, **share)
        assert special.separator is not None
        ids, whole = (end, special.separator, pad), self.config.prefix
        if self.packed:
            return lay.packed_decoder_translation(data, *ids, size, row, limit, whole, **share)
        return lay.decoder_translation(data, *ids, size, limit, whole, **share)


def _about(recipe: Recipe, text: Text, base: Model | None) -> dict[str, Any]:
    """What is known of the model before it has learned anything."""
    data = recipe.data
    languages = data.languages or (("fr", "en") if data.task == "translation" else ("fr",)) * bool(data.petit)
    about: dict[str, Any] = {"name": recipe.name, "recipe": asdict(recipe), "data": _told(data, text)}
    if languages:
        about["languages"] = list(languages)
    if text.train.classes:
        about["classes"] = list(text.train.classes)
    if base is not None:
        before = base.about.get("name") or base.about.get("origin")
        about["origin"] = f"trained further from {recipe.start}" + (f" ({before})" if before else "")
        about |= {key: base.about[key] for key in ("generation", "notes") if key in base.about}
    if data.task != "classification":
        about["generation"] = about.get("generation", {}) | _generation(recipe.decode)
    return about


def _generation(decode: Decoding) -> dict[str, Any]:
    """How the recipe asks the model, in the words that its exports are asked in."""
    if not decode.temperature:
        return {"num_beams": decode.beam} if decode.beam > 1 else {}
    return {"do_sample": True, "temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}


def _told(data: Data, text: Text) -> dict[str, Any]:
    """Which text, and how many examples of it."""
    validation = None if text.validation is None else len(text.validation)
    if data.petit:
        return {"petit": data.petit, "seed": PETIT_SEED, "train": text.train.examples, "validation": validation}
    told: dict[str, Any] = {
        "train": {"files": [list(each.files) for each in data.train], "examples": text.train.examples}
    }
    if data.validation is not None:
        told["validation"] = {"files": list(data.validation.files), "examples": validation}
    elif validation is not None:
        told["validation"] = {"held_out": data.held_out, "examples": validation}
    return told
