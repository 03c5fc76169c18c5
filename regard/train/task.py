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

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch

from regard import __version__
from regard.api import load
from regard.config import ModelConfig, SpecialIds
from regard.decode.options import Decoding
from regard.decode.text import BROKEN
from regard.decode.translate import tokenizer_of
from regard.files import digest, new_folder
from regard.model.transformer import Network, build
from regard.store import Stored
from regard.text import batches as lay
from regard.text.batches import Batches
from regard.text.corpus import Corpus, Problems
from regard.text.petit.files import write_petit
from regard.text.prepared import Prepared, _texts, prepare
from regard.text.tokenizer import Tokenizer
from regard.train.recipe import CHANGEABLE, Data, Recipe, TaskKind, TokenizerSection, check_kind, located

PETIT_SEED = 0
"""of Petit's text, whatever `train.seed` is: runs that differ in their seed differ in nothing else"""
PLAIN = "plain"
"""the class of a sentence of Petit that shows no phenomenon"""
OPENINGS, OPENING_TOKENS, PROMPT = 8, 256, 120
"""examples of a language model's text, tokens of each with its prompt, characters of the prompt at most"""


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
    """for `Stored.about`: name, recipe, data, languages, classes; of translators "longest", the tokens of the longest
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

    def stored(self) -> Stored:
        """The model as it is saved."""
        return Stored(self.network, self.tokenizer, self.special, self.about)


@dataclass(frozen=True)
class Reading:
    """How the model reads text."""

    tokenizer: Tokenizer
    special: SpecialIds
    end: int
    """stands behind each text; for language between them"""
    pad: int
    """fills rows; in an encoder-decoder it is what targets start with"""


@dataclass(frozen=True)
class Text:
    """What is learned from, and what is only tried."""

    train: Prepared
    validation: Prepared | None
    examples: list[tuple[str, str]]


def make_task(recipe: Recipe, cache: Path, packed: bool, rank: int = 0, ranks: int = 1) -> Task:
    """All that a recipe's run needs; what takes long (tokenizer, ids) is kept in the folder `cache` for the next one.

    `packed` lays sentences end to end where the task allows it: translations into rows of `train.max_length`, rounded
    up to a multiple of 64; texts of a language model that are lines or paragraphs into blocks, where they do not see
    each other. One text as long as a file is cut into blocks either way, and classification is always padded.
    """
    data = _petit(recipe.data, cache) if recipe.data.petit else located(recipe.data)
    base = None if recipe.start is None else _base(recipe.start, data.task)
    reading = _fresh_reading(recipe, data, cache) if base is None else _own_reading(base, data.task)
    problems = Problems(data.skip_bad)
    text = _begun(_prepared(data, reading.tokenizer, cache, problems), data, reading)
    classes = text.train.classes
    network = _fresh(recipe, reading, len(classes)) if base is None else _further(base, recipe, classes)
    reading.special.check(network.config)
    alone = data.task == "classification" or (data.task == "language" and data.documents == "file")
    if recipe.train.packed and not alone and network.config.attention_dropout:
        told = f"attention_dropout={network.config.attention_dropout}, the model's own"
        raise ValueError(f"train.packed=true is not possible with {told}: set model.attention_dropout=0")
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
        count=len(text.train) - batches.left_out,
        left_out=batches.left_out,
        problems=dict(problems.counts),
        digest=_digest(text),
        packed=packed,
        fixed=data.task == "language" or packed,
    )


def cache_folder() -> Path:
    """Where prepared text is kept: $REGARD_CACHE, or `regard` in the user's folder for such things."""
    if own := os.environ.get("REGARD_CACHE"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache") / "regard"


# Text


def _petit(data: Data, cache: Path) -> Data:
    """Petit as files. Its dev split is the validation text.

    A language model learns the French: no sentence of it is in two splits, while two French sentences may have one
    English. The class of a sentence is its rarest phenomenon: of "Marie ne leur donne jamais de bijoux", which shows
    three, negative-de. So a model must find all of them and know which is rarer, among some 40 classes.
    """
    folder = cache / f"petit-{__version__}-{data.petit}-{PETIT_SEED}"
    if not folder.is_dir():
        with new_folder(folder, keep_other=True) as temporary:  # another run may write the same
            write_petit(data.petit, temporary / "text", PETIT_SEED)
            _write_rarest(temporary / "text")
    sides = {"translation": ("fr", "en"), "language": ("fr",), "classification": ("fr", "rarest")}[data.task]
    train, dev = (
        Corpus(tuple(str(folder / "text" / f"{split}.{side}") for side in sides)) for split in ("train", "dev")
    )
    return replace(data, petit=0, train=(train,), validation=dev, skip_bad=True)  # a class may be rarer than the text


def _write_rarest(folder: Path) -> None:
    """The rarest phenomenon of each sentence, counted in the training text, into `NAME.rarest`."""
    tags = {split: [line.split() for line in _lines(folder / f"{split}.tags")] for split in ("train", "dev")}
    counts = Counter(chain.from_iterable(tags["train"]))
    for split, sentences in tags.items():
        known = ([tag for tag in sentence if tag in counts] for sentence in sentences)
        rarest = (min(tags, key=lambda tag: (counts[tag], tag)) if tags else PLAIN for tags in known)
        (folder / f"{split}.rarest").write_text("".join(f"{tag}\n" for tag in rarest), encoding="utf-8")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _trained_tokenizer(data: Data, section: TokenizerSection, cache: Path) -> Tokenizer:
    """A tokenizer of all training text, what is held out of it included; or the one that an earlier run has trained."""
    origin = {
        "library": tokenizers.__version__,
        "files": [[(digest(Path(file)), Path(file).suffix) for file in corpus.files] for corpus in data.train],
        "read": [[corpus.columns, corpus.keys] for corpus in data.train],
        "data": [data.task, data.documents, data.skip_bad],
        "tokenizer": asdict(section),
    }
    folder = cache / "tokenizers" / hashlib.sha256(json.dumps(origin).encode()).hexdigest()[:24]
    if not folder.is_dir():
        with new_folder(folder, keep_other=True) as temporary:  # another run may train the same
            Tokenizer.train(_training_texts(data), section.vocab_size, section.kind).save(temporary)
    return Tokenizer.load(folder)


def _training_texts(data: Data) -> Iterator[str]:
    """Every text of the training files, of both sides; a class is no text."""
    sides = 1 if data.task == "classification" else None
    for corpus in data.train:
        for fields, _ in _texts(corpus, Problems(data.skip_bad), data.documents):
            yield from fields[:sides]


def _prepared(data: Data, tokenizer: Tokenizer, cache: Path, problems: Problems) -> Text:
    """The text as ids, parted into what is learned from and what is not."""
    labelled = data.task == "classification"
    how: dict[str, Any] = {"documents": data.documents, "labelled": labelled}
    train = prepare(data.train, tokenizer, cache / "prepared", problems, **how)
    if data.validation is not None:
        validation = prepare([data.validation], tokenizer, cache / "prepared", problems, classes=train.classes, **how)
    elif data.held_out:
        train, validation = split(train, data.held_out, anywhere=data.documents == "file")
    else:
        return Text(train, None, [])
    if data.task == "language":
        return Text(train, validation, _openings(validation, tokenizer))
    corpora = data.train if data.validation is None else (data.validation,)
    return Text(train, validation, _last_rows(corpora, len(validation), data.skip_bad, train.classes))


def split(data: Prepared, share: float, anywhere: bool = False) -> tuple[Prepared, Prepared]:
    """The text without its last share, and that share: whole examples or, if it may be cut `anywhere`, tokens."""
    total = len(data.tokens[0]) if anywhere else len(data)
    cut = int(total * (1 - share))
    if not 0 < cut < total:
        what = "tokens" if anywhere else "examples"
        raise ValueError(f"data.held_out={share} of {total} {what} leaves nothing on one side: it needs more text")
    if anywhere:
        (offsets,) = data.offsets
        parts = np.append(offsets[offsets < cut], cut), np.insert(offsets[offsets > cut], 0, cut)
        return _part(data, (parts[0],), slice(None)), _part(data, (parts[1],), slice(None))
    first, last = slice(None, cut), slice(cut, None)
    return (
        _part(data, tuple(offsets[: cut + 1] for offsets in data.offsets), first),
        _part(data, tuple(offsets[cut:] for offsets in data.offsets), last),
    )


def _part(data: Prepared, offsets: Sequence[Any], rows: slice) -> Prepared:
    """The examples between these offsets, and nothing beside them."""
    tokens = tuple(ids[each[0] : each[-1]] for ids, each in zip(data.tokens, offsets, strict=True))
    labels = None if data.labels is None else data.labels[rows]
    return replace(data, tokens=tokens, offsets=tuple(each - each[0] for each in offsets), labels=labels)


def _last_rows(
    corpora: Sequence[Corpus], count: int, skip_bad: bool, classes: tuple[str, ...]
) -> list[tuple[str, str]]:
    """The last rows as they stand in the files: those that `split` holds out, or all."""
    rows = chain.from_iterable(corpus.rows(Problems(skip_bad)) for corpus in corpora)
    pairs = ((row.fields[0], row.fields[1]) for row in rows)
    if classes:
        pairs = ((text, label.strip()) for text, label in pairs if label.strip() in classes)
    return list(deque(pairs, maxlen=count))


def _openings(data: Prepared, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Prompts and what follows them: the beginnings of some texts or, of a few long ones, passages from a line on."""
    (tokens,), (offsets,) = data.tokens, data.offsets
    many = len(data) >= OPENINGS
    places = offsets[np.linspace(0, len(data) - 1, OPENINGS).astype(int)] if many else ()
    spread = range(0, max(1, len(tokens) - OPENING_TOKENS), max(1, len(tokens) // OPENINGS))
    found = []
    for place in places if many else spread:
        stop = min(place + OPENING_TOKENS, offsets[np.searchsorted(offsets, place, "right")])
        text = tokenizer.decode(tokens[place:stop].tolist()).strip(BROKEN)
        within = place not in offsets and "\n" in text[:-1]
        found.append(_parted(text.partition("\n")[2] if within else text))
    return [pair for pair in found if all(pair)]


def _parted(text: str) -> tuple[str, str]:
    """A text in two, at the last space within its first third; the space goes to the second part, as BPE wants it."""
    third = min(PROMPT, max(1, len(text) // 3))
    cut = max(text.rfind(" ", 1, third), text.rfind("\n", 1, third))
    cut = cut if cut > 0 else third
    return text[:cut], text[cut:]


def _digest(text: Text) -> str:
    """SHA-256 of the ids, of where each example begins, and of classes."""
    found = hashlib.sha256()
    for part in (text.train, text.validation):
        if part is not None:
            for numbers in (*part.tokens, *part.offsets, *([] if part.labels is None else [part.labels])):
                found.update(f"{numbers.dtype} {len(numbers)} ".encode())
                found.update(np.ascontiguousarray(numbers).data)
    return found.hexdigest()


# How a model reads it


def _fresh_reading(recipe: Recipe, data: Data, cache: Path) -> Reading:
    """A new tokenizer of the training text, in the frame of the task."""
    tokenizer = _trained_tokenizer(data, recipe.tokenizer, cache)
    end, pad = tokenizer.end, tokenizer.pad
    special = SpecialIds(end=(end,))
    if data.task == "language":
        return Reading(tokenizer.frame(before=(end,)), special, end, pad)
    if data.task == "translation" and recipe.config(tokenizer.size).kind == "decoder":
        return Reading(tokenizer.frame(), replace(special, separator=tokenizer.separator), end, pad)
    if data.task == "translation":
        special = replace(special, start=pad)
    return Reading(tokenizer.frame(after=(end,)), special, end, pad)


def _own_reading(base: Stored, task: TaskKind) -> Reading:
    """The tokenizer and ids of a model that is there, in the frame of the task; what stands before a text stays."""
    tokenizer, special, config = tokenizer_of(base), base.special, base.config
    before = tokenizer.before
    ends = tokenizer.after if task == "classification" and tokenizer.after else special.end or tokenizer.after
    if not ends and not (task == "language" and before):
        raise ValueError("the model to start from has no id that ends a text (eos_token_id): give its folder one")
    end, after = ends[0] if ends else before[0], (ends[0],) if ends else ()
    if task == "language":
        end, after = (before or ends)[0], ()
        before = (*before, *([end] if not before else []))
        special = replace(special, separator=None, end=tuple(dict.fromkeys([*special.end, end])))
    elif config.kind == "decoder" and task == "translation":
        after, special = (), replace(special, separator=_separator(tokenizer, special))
    if len(before) > (0 if config.kind == "encoder-decoder" else 1) or len(tokenizer.after) > 1:
        framed = [*map(tokenizer.token, tokenizer.before), "text", *map(tokenizer.token, tokenizer.after)]
        raise ValueError(f"the model to start from reads {' '.join(framed)}, and cannot be trained so: use another")
    if (before, after) != (tokenizer.before, tokenizer.after):
        tokenizer = tokenizer.frame(before, after)
    pad = special.start if config.kind == "encoder-decoder" else config.pad_id
    return Reading(tokenizer, special, end, end if pad is None else pad)


def _separator(tokenizer: Tokenizer, special: SpecialIds) -> int:
    """What parts a source from its target in a decoder that may have learned to translate, or not yet."""
    if special.separator is not None:
        return special.separator
    named = tokenizer.engine.token_to_id(str(tokenizer.settings.get("sep_token", "")))
    if named is not None:
        return int(named)
    line_feed = tokenizer.encode("\n")
    if len(line_feed) != 1:
        raise ValueError(
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


def begin_with(data: Prepared, before: Sequence[int]) -> Prepared:
    """The same text with these ids before each example of the first side."""
    offsets, tokens = data.offsets[0], np.asarray(data.tokens[0])
    longer = np.insert(tokens, np.repeat(offsets[:-1], len(before)), np.tile(before, len(data)).astype(tokens.dtype))
    moved = offsets + len(before) * np.arange(len(offsets))
    return replace(data, tokens=(longer, *data.tokens[1:]), offsets=(moved, *data.offsets[1:]))


# The network


def _base(start: str, task: TaskKind) -> Stored:
    """The model to go on from, if it can do the task."""
    base = load(start)
    check_kind(task, base.config.kind)
    if base.config.classes and task != "classification":
        raise ValueError(f"model.start={start!r} names classes, and has no output over tokens: start from another")
    return base


def _fresh(recipe: Recipe, reading: Reading, classes: int) -> Network:
    torch.manual_seed(recipe.train.seed)
    return build(recipe.config(reading.tokenizer.size, classes))


def _further(base: Stored, recipe: Recipe, classes: tuple[str, ...]) -> Network:
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
        learned = data.lengths(0)[self.lengths(data) <= self.limit]
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
            raise ValueError(
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


def _about(recipe: Recipe, text: Text, base: Stored | None) -> dict[str, Any]:
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
        return {"petit": data.petit, "seed": PETIT_SEED, "train": len(text.train), "validation": validation}
    told: dict[str, Any] = {"train": {"files": [list(each.files) for each in data.train], "examples": len(text.train)}}
    if data.validation is not None:
        told["validation"] = {"files": list(data.validation.files), "examples": validation}
    elif validation is not None:
        told["validation"] = {"held_out": data.held_out, "examples": validation}
    return told
