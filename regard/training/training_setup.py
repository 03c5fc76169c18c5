"""Turns a recipe into everything a run needs: batches, the tokenizer, the network, and what is known about them.

The ids put around a text decide what a model learns, and must be the same when the model is used. The tokenizer saved
with the model therefore frames text exactly as the batches here do.

| task | the model reads | ids added by the saved tokenizer |
|---|---|---|
| translation, encoder-decoder | source `</s>`; `<pad>` target | `</s>` after a text |
| translation, decoder | source `<sep>` target | none |
| language | `</s>` text `</s>` text | `</s>` before a text |
| classification, tagging | text `</s>` | `</s>` after a text |
| masked | `</s>` text `</s>` | `</s>` before and after a text |

A fine-tuned model keeps the ids that its own tokenizer puts before a text, such as [CLS] or <s>; so does a new model
whose tokenizer is read from `tokenizer.path`, unless it is an encoder-decoder. If source and target have separate
vocabularies, `</s>` and `<pad>` have an id in each.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from regard.config import ModelConfig, ModelKind, SpecialIds
from regard.data.batches import (
    Batches,
    classification_batches,
    decoder_translation_batches,
    masked_batches,
    packed_decoder_translation_batches,
    packed_masked_batches,
    packed_tagging_batches,
    packed_translation_batches,
    tagging_batches,
    translation_batches,
)
from regard.data.corpus import SKIP_IN_TRAINING, CorpusProblems
from regard.data.epoch_examples import chunks
from regard.data.language_batches import language_block_batches, language_document_batches
from regard.data.masking import Masking
from regard.data.tagged_text import TaggedSentence
from regard.data.tokenized_corpus import TokenizedCorpus
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_pair import TokenizerPair
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.load import load
from regard.model.transformer import Network, build
from regard.rounding import round_up
from regard.storage.model_folder import read_tokenizer
from regard.system_memory import available_memory
from regard.training.recipe import (
    CLASSES_PER,
    FINE_TUNING_MODEL_KEYS,
    READING_TASKS,
    DataSection,
    Recipe,
    TaskKind,
    TrainSection,
    check_kind,
    with_file_paths,
)
from regard.training.training_text import (
    PETIT_SEED,
    TrainingText,
    begin_with,
    petit_files,
    prepared_text,
    text_digest,
    trained_tokenizer,
)

Example = TypeVar("Example")

HEAD_WEIGHTS = ("classifier.", "output.", "output_bias", "transform.")
"""Prefixes of the weights of all heads."""
ROW_MULTIPLE = 64
"""Lengths of packed rows are multiples of this."""
SHARE_OF_LONG_SOURCES = 0.001
"""Share of the training sources that are longer than what a translator translates in one piece."""


@dataclass(frozen=True)
class TrainingSetup:
    """The prepared text, tokenizer and network of a run."""

    kind: TaskKind
    network: Network
    """The network in float32 on the CPU: with new weights from `train.seed`, or with those of `model.start`."""
    tokenizer: Tokenizer
    """The tokenizer, which frames text as the model reads it."""
    special: SpecialIds
    about: dict[str, Any]
    """Metadata for `Model.about`: name, recipe, data, languages, classes. For translators also "longest", the number of
    tokens that all but one in a thousand training sources have at most, framed."""
    batches: Batches
    """This rank's share of the training batches."""
    validation: Batches | None
    """Every validation example once, of any length that fits into a batch and the model's positions."""
    examples: list[tuple[str, str]]
    """The validation text: source and reference, text and class, a prompt and its continuation, or a text with a mask
    and the word that it replaces. Only the first rank, which validates, has it."""
    sentences: list[TaggedSentence]
    """The validation text of tagging."""
    example_count: int
    """Number of training examples."""
    left_out: int
    """Number of examples that are too long to train on."""
    problems: dict[str, int]
    """Number of unusable lines in the files, by kind."""
    packed: bool
    """Whether sentences share rows."""
    fixed_shapes: bool
    """Whether all batches have the same shape."""
    digest: str
    """SHA-256 of the text as ids. A run can be resumed only with the same text."""

    def model(self) -> Model:
        """The model as it is saved."""
        return Model(self.network, self.tokenizer, self.special, self.about)


@dataclass(frozen=True)
class TextFraming:
    """The tokenizer of a model and the ids put around its texts."""

    tokenizer: Tokenizer
    special: SpecialIds
    end: int
    """The id after each text; for language modelling, between texts."""
    pad: int
    """The id that fills rows; in an encoder-decoder also the first id of every target."""
    source_end: int | None = None
    """The id after each source, if it has its own vocabulary; then `end` and `pad` are the target's."""
    source_pad: int | None = None
    """The id that fills rows of sources, if they have their own vocabulary."""


def prepare_training(
    recipe: Recipe,
    cache: Path,
    packed: bool,
    rank: int = 0,
    ranks: int = 1,
    change_network: Callable[[Network], Network] | None = None,
) -> TrainingSetup:
    """Prepare a run. What takes long (training the tokenizer, encoding the text) is cached in the folder `cache`.

    With `packed`, sentences share rows where the task allows it: translations fill rows of `train.max_length`, rounded
    up to a multiple of 64; a language model's lines or paragraphs fill blocks, in which they do not attend to each
    other. A text that is a complete file is cut into blocks either way, and classification is always padded.

    `change_network` is given the network, and returns the one that is trained.
    """
    if recipe.start is None:  # refuse a model that can never fit before reading the text
        check_memory(recipe.smallest_config(), recipe.train)
    data = petit_files(recipe.data, cache) if recipe.data.petit else with_file_paths(recipe.data)
    base = None if recipe.start is None else _load_base(recipe.start, data.task)
    framing = _new_framing(recipe, data, cache) if base is None else _framing_of(base, data.task)
    problems = CorpusProblems(data.skip_bad, SKIP_IN_TRAINING)
    dropout, seed = recipe.tokenizer.dropout, recipe.train.seed
    text = prepared_text(data, framing.tokenizer, cache, problems, dropout, seed, validates=rank == 0)
    text = _with_leading_ids(text, data, framing)
    classes = text.train.classes
    network = _new_network(recipe, framing, len(classes)) if base is None else _fine_tuned(base, recipe, classes)
    network = network if change_network is None else change_network(network)
    framing.special.check(network.config)
    packed = packed and _can_pack(recipe, network.config)
    plan = _BatchPlan(recipe, network.config, framing, packed, rank, ranks)
    batches = plan.training(text.train)
    # A language model is validated as it is trained, packed or not; other validation text is always padded.
    validation_plan = plan if data.task == "language" else replace(plan, packed=False)
    return TrainingSetup(
        kind=data.task,
        network=network,
        tokenizer=framing.tokenizer,
        special=framing.special,
        about=_about(recipe, text, base) | plan.longest_source(text.train),
        batches=batches,
        validation=None if text.validation is None else validation_plan.validation(text.validation),
        examples=plan.short_enough(text.examples, text.validation),
        sentences=plan.short_enough(text.sentences, text.validation),
        example_count=text.train.examples - batches.left_out,
        left_out=batches.left_out,
        problems=dict(problems.counts),
        digest=text_digest(text),
        packed=packed,
        fixed_shapes=data.task == "language" or packed,
    )


def _can_pack(recipe: Recipe, config: ModelConfig) -> bool:
    """Whether sentences can share rows; a RegardError if the recipe demands it and the model's dropout forbids it."""
    data = recipe.data
    if data.task == "classification" or (data.task == "language" and data.documents == "file"):
        return False
    if recipe.train.packed and config.attention_dropout:
        raise RegardError(
            f"train.packed=true is not possible with the model's own attention_dropout={config.attention_dropout}: "
            "set model.attention_dropout=0"
        )
    return not config.attention_dropout


def cache_folder() -> Path:
    """The folder of cached text: $REGARD_CACHE, or `regard` in the user's cache folder."""
    if folder := os.environ.get("REGARD_CACHE"):
        return Path(folder)
    user_cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (user_cache if user_cache.is_absolute() else Path.home() / ".cache") / "regard"


# The ids around a text


def _new_framing(recipe: Recipe, data: DataSection, cache: Path) -> TextFraming:
    """The tokenizer of a new model, trained on the text or read from `tokenizer.path`, with the framing of the task."""
    if recipe.tokenizer.path:
        return _framing_of_path(recipe.tokenizer.path, recipe.config(vocab_size=2).kind, data.task)
    tokenizer = trained_tokenizer(data, recipe.tokenizer, cache)
    end, pad = tokenizer.end, tokenizer.pad
    special = SpecialIds(end=(end,))
    if data.task == "language":
        return TextFraming(tokenizer.with_template(before=(end,)), special, end, pad)
    if data.task == "masked":  # as in BERT, whose [CLS] before a text learns to represent all of it
        special = replace(special, mask=tokenizer.mask)
        return TextFraming(tokenizer.with_template(before=(end,), after=(end,)), special, end, pad)
    if data.task == "translation" and recipe.config(tokenizer.size).kind == "decoder":
        return TextFraming(tokenizer.with_template(), replace(special, separator=tokenizer.separator), end, pad)
    if data.task == "translation":
        special = replace(special, start=pad)
    if isinstance(tokenizer, TokenizerPair):
        source, target = tokenizer.source, tokenizer.target.with_template(after=(end,))
        tokenizer = TokenizerPair(source.with_template(after=(source.end,)), target)
        return TextFraming(tokenizer, special, end, pad, source.end, source.pad)
    return TextFraming(tokenizer.with_template(after=(end,)), special, end, pad)


def _framing_of_path(path: str, kind: ModelKind, task: TaskKind) -> TextFraming:
    """The tokenizer of `tokenizer.path` and its ids, for a new model of this kind."""
    try:
        tokenizer = read_tokenizer(Path(path).expanduser())
    except RegardError as error:
        raise RegardError(f"tokenizer.path: {error}") from None
    if kind != "encoder-decoder" and tokenizer.is_separate:
        raise RegardError(
            f"tokenizer.path={path!r} has separate tokenizers for source and target, but a model of kind {kind!r} has "
            "one vocabulary: choose another tokenizer, or model.kind='encoder-decoder'"
        )
    end, pad = tokenizer.role_id("eos_token"), tokenizer.role_id("pad_token")
    special = SpecialIds(end=() if end is None else (end,))
    if kind == "encoder-decoder":
        if pad is None:
            raise RegardError(
                f"tokenizer.path={path!r} has no padding token, which starts every target: name a token of its "
                'vocabulary in its tokenizer_config.json, as in {"pad_token": "<pad>"}'
            )
        is_predicted = pad not in special.end and pad != tokenizer.target_side.size - 1
        special = replace(special, start=pad, suppressed=(pad,) if is_predicted else ())
        if tokenizer.before or len(tokenizer.after) > 1:
            tokenizer = tokenizer.with_template()
    advice = 'name a token of its vocabulary in its tokenizer_config.json, as in {"eos_token": "</s>"}'
    source_pad = tokenizer.source_side.role_id("pad_token")
    return _framing(tokenizer, special, kind, source_pad, task, f"tokenizer.path={path!r}", advice)


def _pad_setting(tokenizer: Tokenizer) -> int | None:
    """`ModelConfig.pad` of a new model with this tokenizer."""
    sides = (tokenizer.source_side, tokenizer.target_side)
    pads = [side.role_id("pad_token") for side in sides]
    if all(pad == side.size - 1 for pad, side in zip(pads, sides, strict=True)):
        return -1
    if pads[0] != pads[1]:
        raise RegardError(
            f"the id of <pad> is {pads[0]} in the source's tokenizer and {pads[1]} in the target's: it must be the "
            "same, or the last one of each"
        )
    return pads[0]


def _framing_of(base: Model, task: TaskKind) -> TextFraming:
    """The tokenizer and ids of an existing model, with the framing of the task. Ids before a text are kept."""
    config, advice = base.config, "add one to its folder"
    return _framing(
        base.require_tokenizer(), base.special, config.kind, config.pad_id, task, "the model in model.start", advice
    )


def _framing(
    tokenizer: Tokenizer, special: SpecialIds, kind: ModelKind, pad: int | None, task: TaskKind, where: str, advice: str
) -> TextFraming:
    """An existing tokenizer and its ids, with the framing of the task. `where` and `advice` are for error messages."""
    if special.first is not None:
        raise RegardError(f"every target of {where} begins with a fixed id, which cannot be trained: use another model")
    before = tokenizer.before
    ends = tokenizer.after if task in READING_TASKS and tokenizer.after else special.end
    ends = ends if ends or tokenizer.is_separate else tokenizer.after
    if not ends and not (task == "language" and before):
        raise RegardError(f"{where} has no id that ends a text (eos_token_id): {advice}")
    end, after = ends[0] if ends else before[0], (ends[0],) if ends else ()
    source_end = source_pad = None
    if tokenizer.is_separate:
        source_end = next(iter(tokenizer.after), tokenizer.source_side.role_id("eos_token"))
        if source_end is None:
            raise RegardError(f"{where} has no id that ends a source (eos_token): {advice}")
        after, source_pad = (source_end,), source_end if pad is None else pad
    if task == "language":
        end, after = (before or ends)[0], ()
        before = before or (end,)
        special = replace(special, separator=None, end=tuple(dict.fromkeys([*special.end, end])))
    elif task == "masked":
        special = replace(special, mask=_require_mask(tokenizer, where))
    elif kind == "decoder" and task == "translation":
        after, special = (), replace(special, separator=_separator(tokenizer, special, where))
    if len(before) > (0 if kind == "encoder-decoder" else 1) or len(tokenizer.after) > 1:
        spelled = tokenizer.source_side.token
        framed = [*map(spelled, tokenizer.before), "text", *map(spelled, tokenizer.after)]
        raise RegardError(f"{where} reads {' '.join(framed)}, which cannot be trained: use another one")
    if (before, after) != (tokenizer.before, tokenizer.after):
        tokenizer = tokenizer.with_template(before, after)
    filling = special.start if kind == "encoder-decoder" else pad
    return TextFraming(tokenizer, special, end, end if filling is None else filling, source_end, source_pad)


def _require_mask(tokenizer: Tokenizer, where: str) -> int:
    """The id of the mask; a RegardError if there is none."""
    if tokenizer.mask is None:
        raise RegardError(
            f"{where} has no mask token, which the task masked needs: name a token of its vocabulary in its "
            'tokenizer_config.json, as in {"mask_token": "[MASK]"}'
        )
    return tokenizer.mask


def _separator(tokenizer: Tokenizer, special: SpecialIds, where: str) -> int:
    """The id that separates a source from its target in a decoder, whether or not it was trained to translate."""
    named = tokenizer.role_id("sep_token") if special.separator is None else special.separator
    if named is not None:
        return named
    line_feed = tokenizer.encode("\n")
    if len(line_feed) != 1:
        raise RegardError(
            f"{where} has no id to separate a source from its target: no separator, no sep_token, "
            f"and a line feed is {len(line_feed)} ids; add a sep_token to its tokenizer_config.json"
        )
    return line_feed[0]


def _check_ids_fit(start: str, tokenizer: Tokenizer, config: ModelConfig) -> None:
    """Raise a RegardError if the tokenizer of `model.start` has an id that the model has no embedding of."""
    sides = {"source": (tokenizer.source_side, config.vocab_size)}
    sides["target"] = (tokenizer.target_side, config.output_vocab_size)
    for name, (side, rows) in sides.items():
        if side.size > rows:
            of_side = f" of the {name}" if tokenizer.is_separate else ""
            raise RegardError(
                f"model.start={start!r}: the tokenizer{of_side} has {side.size:,} ids, but the embedding has {rows:,}: "
                "use the tokenizer that the model was trained with"
            )


def _with_leading_ids(text: TrainingText, data: DataSection, framing: TextFraming) -> TrainingText:
    """The text with the ids its model reads before each example, where batches do not add them."""
    before = framing.tokenizer.before
    if data.task == "language" or not before:
        return text
    validation = None if text.validation is None else begin_with(text.validation, before)
    return replace(text, train=begin_with(text.train, before), validation=validation)


# The network


def _load_base(start: str, task: TaskKind) -> Model:
    """The model to fine-tune, if it can do the task."""
    base = load(start)
    check_kind(task, base.config.kind)
    _check_ids_fit(start, base.require_tokenizer(), base.config)
    if base.config.classes and task not in CLASSES_PER:
        raise RegardError(f"model.start={start!r} predicts classes and not tokens: start from another model")
    return base


def _new_network(recipe: Recipe, framing: TextFraming, classes: int) -> Network:
    torch.manual_seed(recipe.train.seed)
    tokenizer = framing.tokenizer
    target_vocab_size = tokenizer.target_side.size if tokenizer.is_separate else None
    config = recipe.config(tokenizer.source_side.size, classes, target_vocab_size, _pad_setting(tokenizer))
    check_memory(config, recipe.train)
    return build(config)


def check_memory(config: ModelConfig, train: TrainSection) -> None:
    """Raise a RegardError if the model cannot fit into memory. Nothing is allocated.

    On a CPU, memory holds weights, gradients and two moments; for a GPU, the weights are created on the host first.
    """
    on_gpu = train.device != "cpu" and torch.cuda.is_available()
    needed, available = config.min_parameters * (4 if on_gpu else 16), available_memory()
    if available is not None and needed > available:
        raise RegardError(
            f"a model of {config.min_parameters:,} parameters needs {needed / 1e9:,.1f} GB of memory to train, but "
            f"{available / 1e9:,.1f} GB are available: choose a smaller d_model, d_ff, layers or vocab_size"
        )


def _fine_tuned(base: Model, recipe: Recipe, classes: tuple[str, ...]) -> Network:
    """The loaded weights in a network with the recipe's dropout; new classes get a new head."""
    changes = {key: recipe.model[key] for key in FINE_TUNING_MODEL_KEYS if key in recipe.model}
    changes["prefix"] = base.config.prefix and recipe.data.task == "translation"
    if classes:
        per = CLASSES_PER[recipe.data.task]
        changes |= {"classes": len(classes), "classes_per": per, "output_bias": False, "output_transform": False}
        changes |= {"classifier_activation": "tanh"} if per == "token" else {}  # a tagger has no such layer
    torch.manual_seed(recipe.train.seed)
    network = build(replace(base.config, **changes))
    same_head = not classes or (
        base.about.get("classes") == list(classes) and base.config.classes_per == network.config.classes_per
    )
    kept = {name for name in network.state_dict() if same_head or not name.startswith(HEAD_WEIGHTS)}
    state = {name: weights for name, weights in base.network.state_dict().items() if name in kept}
    assert state.keys() == kept, kept - state.keys()
    network.load_state_dict(state, strict=False)
    return network


# Batches


@dataclass(frozen=True)
class _BatchPlan:
    """How examples are arranged in batches, and which are too long."""

    recipe: Recipe
    config: ModelConfig
    framing: TextFraming
    packed: bool
    rank: int
    ranks: int

    @property
    def task(self) -> TaskKind:
        return self.recipe.data.task

    @property
    def row_length(self) -> int:
        """Number of tokens in a packed row."""
        return round_up(self.recipe.train.max_length, ROW_MULTIPLE)

    @property
    def limit(self) -> int:
        """Maximum number of tokens in a training example."""
        train = self.recipe.train
        return min(train.max_length, train.batch_tokens, self.config.max_positions or train.max_length)

    def lengths(self, data: TokenizedCorpus) -> Any:
        """Number of tokens on the longer side of each example, with the ids around it."""
        if self.task in READING_TASKS:
            return data.lengths(0) + 1
        if self.config.kind == "decoder":
            return data.lengths(0) + data.lengths(1) + 1
        return np.maximum(data.lengths(0), data.lengths(1)) + 1

    def training(self, data: TokenizedCorpus) -> Batches:
        """Training batches."""
        return self._language(data) if self.task == "language" else self._examples(data, self.limit, self.row_length)

    def validation(self, data: TokenizedCorpus) -> Batches:
        """Validation batches: each example once, also those too long to train on, if a batch can hold them."""
        if self.task == "language":
            return self._language(data, covering=True)
        batch_tokens = self.recipe.train.batch_tokens
        longest = min(int(self.lengths(data).max()), self.config.max_positions or batch_tokens)
        row_length = max(self.row_length, round_up(longest, ROW_MULTIPLE))
        row_length = row_length if row_length <= batch_tokens else self.row_length
        return self._examples(data, min(longest, batch_tokens), row_length)

    def longest_source(self, data: TokenizedCorpus) -> dict[str, int]:
        """For a translator, the length of long training sources, framed as its tokenizer does: one in a thousand may be
        longer. Models translate lengths that they have hardly seen worse than in two parts."""
        if self.task != "translation":
            return {}
        sources_of_length = np.zeros(self.limit + 1, dtype=np.int64)
        for start, stop in chunks(0, data.examples):  # without the variants of BPE dropout
            source, target = (np.diff(offsets[start : stop + 1]) for offsets in data.offsets)
            both = source + target if self.config.kind == "decoder" else np.maximum(source, target)
            sources_of_length += np.bincount(source[both < self.limit], minlength=self.limit + 1)
        shorter = sources_of_length.cumsum()
        longest = int(np.searchsorted(shorter, shorter[-1] * (1 - SHARE_OF_LONG_SOURCES)))
        return {"longest": longest + len(self.framing.tokenizer.after)}

    def short_enough(self, examples: list[Example], validation: TokenizedCorpus | None) -> list[Example]:
        """The validation examples without texts too long for an encoder; a translator splits those."""
        if self.task not in READING_TASKS or self.config.max_positions is None or validation is None:
            return examples
        if not examples:
            return examples
        fits = self.lengths(validation) <= self.config.max_positions
        return [example for example, fit in zip(examples, fits, strict=True) if fit]

    def _language(self, data: TokenizedCorpus, covering: bool = False) -> Batches:
        train, framing = self.recipe.train, self.framing
        positions = self.config.max_positions
        if positions is not None and train.max_length > positions:
            raise RegardError(
                f"train.max_length={train.max_length} is more than the model's {positions} positions: "
                f"set it to {positions}" + ("" if self.recipe.start else ", or increase model.max_length")
            )
        share = (train.batch_tokens, train.seed, self.rank, self.ranks)
        if self.packed and self.recipe.data.documents != "file":
            return language_document_batches(data, framing.end, framing.pad, train.max_length, *share)
        return language_block_batches(data, framing.end, train.max_length, *share, covering=covering)

    def _examples(self, data: TokenizedCorpus, limit: int, row_length: int) -> Batches:
        train, special, end, pad = self.recipe.train, self.framing.special, self.framing.end, self.framing.pad
        size, share = train.batch_tokens, {"seed": train.seed, "rank": self.rank, "ranks": self.ranks}
        if self.task == "classification":
            return classification_batches(data, end, pad, size, limit, **share)
        if self.task == "tagging":
            if self.packed:
                return packed_tagging_batches(data, end, pad, size, row_length, limit, **share)
            return tagging_batches(data, end, pad, size, limit, **share)
        if self.task == "masked":
            assert special.mask is not None
            masking = Masking(special.mask, self.framing.tokenizer.text_ids)
            if self.packed:
                return packed_masked_batches(data, end, pad, masking, size, row_length, limit, **share)
            return masked_batches(data, end, pad, masking, size, limit, **share)
        if self.config.kind == "encoder-decoder":
            source_end, source_pad = self.framing.source_end, self.framing.source_pad
            if self.packed:
                return packed_translation_batches(
                    data, end, pad, size, row_length, limit, **share, source_end=source_end, source_pad=source_pad
                )
            return translation_batches(
                data, end, pad, size, limit, **share, source_end=source_end, source_pad=source_pad
            )
        assert special.separator is not None
        ids, prefix = (end, special.separator, pad), self.config.prefix
        if self.packed:
            return packed_decoder_translation_batches(data, *ids, size, row_length, limit, prefix, **share)
        return decoder_translation_batches(data, *ids, size, limit, prefix, **share)


def _about(recipe: Recipe, text: TrainingText, base: Model | None) -> dict[str, Any]:
    """What is known about the model before it is trained."""
    data = recipe.data
    languages = data.languages
    if data.petit and not languages:
        languages = ("fr", "en") if data.task == "translation" else ("fr",)
    about: dict[str, Any] = {"name": recipe.name, "recipe": asdict(recipe), "data": _data_summary(data, text)}
    if languages:
        about["languages"] = list(languages)
    if text.train.classes:
        about["classes"] = list(text.train.classes)
    if base is not None:
        base_name = base.about.get("name") or base.about.get("origin")
        named = f" ({base_name})" if base_name and base_name != Path(recipe.start or "").name else ""
        about["origin"] = f"fine-tuned from {recipe.start}{named}"
        about |= {key: base.about[key] for key in ("generation", "notes") if key in base.about}
    if data.task not in READING_TASKS:
        about["generation"] = about.get("generation", {}) | _generation(recipe.decode)
    return about


def _generation(decode: Decoding) -> dict[str, Any]:
    """The recipe's decoding options, by the names that exported models use."""
    length = {} if decode.max_tokens is None else {"max_new_tokens": decode.max_tokens}
    if not decode.temperature:
        return {"num_beams": decode.beam} | length if decode.beam > 1 else length
    sampling = {"temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
    return {"do_sample": True} | sampling | length


def _data_summary(data: DataSection, text: TrainingText) -> dict[str, Any]:
    """The files of the text, and their number of examples."""
    validation = None if text.validation is None else len(text.validation)
    if data.petit:
        return {"petit": data.petit, "seed": PETIT_SEED, "train": text.train.examples, "validation": validation}
    files = [list(corpus.files) for corpus in data.train]
    summary: dict[str, Any] = {"train": {"files": files, "examples": text.train.examples}}
    if data.validation is not None:
        summary["validation"] = {"files": list(data.validation.files), "examples": validation}
    elif validation is not None:
        summary["validation"] = {"held_out": data.held_out, "examples": validation}
    return summary
