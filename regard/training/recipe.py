"""What is to be trained, on what, and how: a recipe, in TOML, of five sections.

The string under each field is its documentation, here and wherever the field is shown to a user.
"""

import math
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from regard.config import (
    ModelConfig,
    StrictConfig,
    check_probability,
    check_type,
    did_you_mean,
    preset,
    require_at_least,
)
from regard.data.corpus import Corpus, require_files
from regard.data.tokenized_corpus import DocumentBoundary
from regard.data.tokenizer_training import MAX_VOCABULARY, TokenizerKind
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.errors import RegardError
from regard.formatting import quoted
from regard.petit import MAX_PAIRS
from regard.training.corpus_folder import VALIDATION_STEMS, find_corpus_files, training_languages

TaskKind = Literal["translation", "language", "classification"]
CORPUS_SIDES: dict[TaskKind, tuple[int, str]] = {
    "translation": (2, "two, source and target: two files, or two columns or keys of one"),
    "language": (1, "one: a file, or a column or key of it"),
    "classification": (2, "two, text and class: two files, or two columns or keys of one"),
}
MODEL_KINDS: dict[TaskKind, tuple[str, ...]] = {
    "translation": ("encoder-decoder", "decoder"),
    "language": ("decoder",),
    "classification": ("encoder", "decoder"),
}
"""the models that can do a task"""
DERIVED_MODEL_KEYS = ("vocab_size", "pad", "classes")
"""fields of `ModelConfig` that follow from the text"""
FINE_TUNING_MODEL_KEYS = ("dropout", "attention_dropout")
"""fields of `ModelConfig` that can be changed in a model that is there already"""


MAX_DATA_VALUES = {"petit": MAX_PAIRS}
MAX_TRAIN_VALUES = {
    "steps": 10**9,
    "batch_tokens": 10**9,
    "accumulate": 1_000_000,
    "max_length": 100_000_000,
    "lr": 1e30,
    "warmup": 10**9,
    "eps": 1.0,
    "weight_decay": 1_000.0,
    "clip": 1e9,
    "consistency": 1e6,
    "average": 1_000,
    "validate_every": 10**9,
    "validation_sentences": 10**9,
    "patience": 10**9,
    "checkpoint_every": 10**9,
    "log_every": 10**9,
    "seed": 2**63 - 1,
}
"""Largest values of a recipe's numbers; probabilities and shares have their own bounds."""


@dataclass(frozen=True, kw_only=True)
class DataSection(StrictConfig, maxima=MAX_DATA_VALUES):
    """Which text. A corpus is `{ files = ["a.fr", "a.en"] }`, one file a side; or one file with `columns` or `keys`."""

    task: TaskKind = "translation"
    """translate the first side into the second; foretell a text; or name the class (second side) of a text"""
    languages: tuple[str, ...] = ()
    """codes of the source's and the target's language, for the model card and to find files by: ["fr", "en"]"""
    folder: str = ""
    """where the files lie, if not where the command is run"""
    train: tuple[Corpus, ...] = ()
    """corpora to learn from, one behind the other; if none is named, train.fr and train.en are sought in `folder`, or
    what mtdata has written there: regard/training/corpus_folder.py tells the names"""
    validation: Corpus | None = None
    """text to try the model on while it learns; if not named where `train` is not, dev.fr and dev.en are sought"""
    held_out: float = 0.0
    """without `validation`, named or found: this share of the training text, its end, is kept for it"""
    petit: int = 0
    """instead of files: so many pairs of Petit, the French–English world that comes with Regard"""
    documents: DocumentBoundary = "line"
    """for language: what one text is: a line, lines up to a blank one, or the whole file"""
    skip_bad: bool = False
    """leave out lines that cannot be used, and count them, where otherwise the first is an error"""

    def __post_init__(self) -> None:
        """Check what the fields must be together."""
        super().__post_init__()
        require_at_least(0, petit=self.petit)
        check_probability("data.held_out", self.held_out)
        if self.petit and (self.train or self.validation or self.held_out):
            raise RegardError(
                f"data.petit={self.petit} with train, validation or held_out: Petit is all the text there is, and has "
                "its own for validation; set petit to 0, or leave out the others"
            )
        if self.sought and not self.folder:
            raise RegardError(
                'there is no text: name files in data.train, as { files = ["a.fr", "a.en"] }, or a data.folder that '
                "has train.fr and train.en, or set petit"
            )
        if self.sought and self.task != "translation":
            raise RegardError(
                f"data.folder={self.folder!r} without data.train: translations are found by their languages; for the "
                f"task {self.task} name the files in data.train"
            )
        if self.validation and self.held_out:
            raise RegardError(f"data.held_out={self.held_out} is for data without validation, and here is one: choose")
        if self.documents != "line" and self.task != "language":
            raise RegardError(f"data.documents={self.documents!r} is for the task language: here a line is an example")
        self._check_sides()

    @property
    def sought(self) -> bool:
        """Whether the files are to be found in the folder: none is named."""
        return not self.petit and not self.train

    def _check_sides(self) -> None:
        sides, what = CORPUS_SIDES[self.task]
        for corpus in (*self.train, *([self.validation] if self.validation else [])):
            if corpus.sides != sides:
                told = f"{corpus.sides} side{'s' * (corpus.sides > 1)}"
                raise RegardError(f"{corpus.files[0]} is read with {told}: the task {self.task} needs {what}")
        if len(self.languages) not in (0, 2 if self.task == "translation" else 1):
            wanted = "two, the source's and the target's" if self.task == "translation" else "one"
            raise RegardError(
                f"data.languages={list(self.languages)}: the task {self.task} has {wanted}, or leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class TokenizerSection(StrictConfig, maxima={"vocab_size": MAX_VOCABULARY}):
    """How text becomes ids. Fine-tuning takes the tokenizer of the model it starts from."""

    kind: TokenizerKind = "bpe"
    """byte-level BPE, or characters"""
    vocab_size: int = 8_000
    """ids at most, rounded up to a multiple of 64"""
    dropout: float = 0.0
    """BPE dropout, for translation: each example is written in sixteen ways, with merges passed over at this rate, and
    an epoch takes one of them; for small corpora about 0.1"""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_at_least(1, vocab_size=self.vocab_size)
        check_probability("tokenizer.dropout", self.dropout)


@dataclass(frozen=True, kw_only=True)
class TrainSection(StrictConfig, maxima=MAX_TRAIN_VALUES):
    """How it learns. The defaults are the paper's, for a smaller batch."""

    steps: int = 10_000
    """updates of the weights"""
    batch_tokens: int = 16_000
    """tokens of a batch on its larger side, over all devices; accumulated batches are counted one by one"""
    accumulate: int = 1
    """batches whose gradients are summed before each update"""
    max_length: int = 256
    """longer examples are left out; for language, the tokens of a block"""
    packed: bool | None = None
    """several sentences in a row, kept apart: no padding. If not given, on GPUs where the model allows it"""
    optimizer: Literal["adam", "adamw"] = "adam"
    """adamw shrinks matrices by lr × weight_decay in each step"""
    lr: float | None = None
    """the highest learning rate; if not given, the paper's: (d_model × warmup)^-0.5"""
    schedule: Literal["inverse-sqrt", "cosine", "linear", "constant"] = "inverse-sqrt"
    """how the learning rate falls behind the warm-up, to which it rises linearly"""
    warmup: int = 4_000
    """steps of warm-up"""
    lr_end: float = 0.0
    """cosine and linear: the share of `lr` that is left at the last step"""
    beta1: float = 0.9
    """how much of the mean gradient is kept from step to step"""
    beta2: float = 0.98
    """how much of the mean squared gradient is kept"""
    eps: float = 1e-9
    """added to the root of the latter"""
    weight_decay: float = 0.0
    """for adamw"""
    clip: float = 0.0
    """the largest norm a gradient may have; 0 lets it be"""
    label_smoothing: float = 0.1
    """probability that is spread over all outputs"""
    consistency: float = 0.0
    """R-Drop: each batch goes through twice, and what the two answers, under two dropouts, differ by counts with this
    weight, in the training loss that is told too; about 5, for small corpora and many steps, at twice the cost"""
    average: int = 1
    """the model that is validated and kept is the mean of the weights at so many last validations"""
    validate_every: int = 1_000
    """steps between validations"""
    validation_sentences: int = 500
    """translations of the validation text that are scored by BLEU; 0 goes by the loss alone"""
    best_by: Literal["loss", "score"] = "loss"
    """which validation is the best: the lowest loss, or the highest BLEU or accuracy"""
    patience: int = 0
    """stop after so many validations without a better one; 0 goes on to the last step"""
    checkpoint_every: int = 1_000
    """steps between checkpoints, from which a run can go on"""
    log_every: int = 50
    """steps between lines of the log"""
    seed: int = 0
    """the same seed, data and device give the same model"""
    device: str = "auto"
    """auto, cpu or cuda; auto takes a GPU where there is one"""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """of the arithmetic; auto takes bfloat16 on GPUs that do it well, float16 on others, float32 on CPUs"""
    compile: bool | None = None
    """torch.compile: a minute at the start, and then much faster. If not given, on GPUs"""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """under torchrun: each device holds the whole model, or a share of it"""

    def __post_init__(self) -> None:
        """Check what the fields must be."""
        super().__post_init__()
        require_at_least(
            1,
            steps=self.steps,
            batch_tokens=self.batch_tokens,
            accumulate=self.accumulate,
            max_length=self.max_length,
            average=self.average,
            validate_every=self.validate_every,
            checkpoint_every=self.checkpoint_every,
            log_every=self.log_every,
        )
        require_at_least(
            0,
            warmup=self.warmup,
            patience=self.patience,
            validation_sentences=self.validation_sentences,
            seed=self.seed,
        )
        for name in ("label_smoothing", "beta1", "beta2"):
            check_probability(name, getattr(self, name))
        for name in ("eps", "weight_decay", "clip", "lr_end", "lr", "consistency"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise RegardError(f"{name}={quoted(value)} is not possible: it must be at least 0 and finite")
        if self.eps == 0:
            raise RegardError("eps=0 divides by zero where a gradient is zero: it must be above 0")
        if self.lr_end > 1:
            raise RegardError(f"lr_end={self.lr_end} is a share of lr, at most 1")
        if self.lr == 0:
            raise RegardError("lr=0 would change nothing: it must be above 0")


@dataclass(frozen=True, kw_only=True)
class Recipe(StrictConfig):
    """The five sections, and the recipe's name."""

    name: str
    data: DataSection
    tokenizer: TokenizerSection = field(default_factory=TokenizerSection)
    model: dict[str, Any] = field(default_factory=dict)
    """fields of `ModelConfig`, and `preset`: the name of one to begin with; or `start`: a model to go on from, of
    which only `dropout` and `attention_dropout` can be changed. What follows from the text (vocab_size, pad, classes)
    is filled in"""
    train: TrainSection = field(default_factory=TrainSection)
    decode: Decoding = field(default_factory=lambda: Decoding(beam=DEFAULT_BEAM))
    """how the finished model is asked when it is scored"""

    def __post_init__(self) -> None:
        """Check what the sections must be together."""
        super().__post_init__()
        if not self.name:
            raise RegardError("a recipe needs a name")
        self._check_model()
        self._check_train()

    @property
    def start(self) -> str | None:
        """The model to go on from, if it does not begin anew."""
        start: str | None = self.model.get("start")
        return start

    def config(self, vocab_size: int, classes: int = 0) -> ModelConfig:
        """The architecture of a model that begins anew, for a text of so many ids and classes."""
        given = {key: value for key, value in self.model.items() if key != "preset"}
        given |= {"vocab_size": vocab_size, "pad": -1, "classes": classes}
        name = self.model.get("preset")
        return ModelConfig(**given) if name is None else preset(name, **given)

    def smallest_config(self) -> ModelConfig:
        """The architecture with the fewest ids and classes possible, for checks before the text is read."""
        return self.config(vocab_size=2, classes=2 if self.data.task == "classification" else 0)

    def _check_model(self) -> None:
        known = [key.name for key in fields(ModelConfig) if key.name not in DERIVED_MODEL_KEYS]
        for key in self.model:
            if key in DERIVED_MODEL_KEYS:
                raise RegardError(f"model.{key} follows from the text and is filled in: leave it out")
            if key not in (*known, "preset", "start"):
                raise RegardError(f"[model] has no key {quoted(key)}: {did_you_mean(key, [*known, 'preset', 'start'])}")
        for key in ("preset", "start"):
            check_type(f"model.{key}", self.model.get(key), str | None)
        if self.start is None:
            config = self.smallest_config()
            check_kind(self.data.task, config.kind)
            if config.prefix and self.data.task != "translation":
                raise RegardError(
                    f"model.prefix is for translation, where there is a source: the task is {self.data.task}"
                )
            return
        for key, value in self.model.items():
            if key not in (*FINE_TUNING_MODEL_KEYS, "start"):
                raise RegardError(f"model.{key} with model.start: of a model that is there only dropout can be changed")
            if key in FINE_TUNING_MODEL_KEYS:
                check_type(f"model.{key}", value, float)
                check_probability(f"model.{key}", value)

    def _check_train(self) -> None:
        train, task = self.train, self.data.task
        if train.packed and task == "classification":
            raise RegardError("train.packed: a class is said of a whole row, so that classification cannot pack")
        if train.consistency and task == "classification":
            raise RegardError("train.consistency compares what is said at each token: classification has none")
        if train.consistency and self.start is None and not self.config(vocab_size=2).dropout:
            raise RegardError("train.consistency compares answers under two dropouts: model.dropout=0 makes them one")
        if self.tokenizer.dropout and task != "translation":
            raise RegardError(f"tokenizer.dropout is for translation, and the task is {task}: set it to 0")
        if self.tokenizer.dropout and self.tokenizer.kind != "bpe":
            raise RegardError(f"tokenizer.dropout leaves out merges, and kind={self.tokenizer.kind!r} has none")
        packs = train.packed and not (task == "language" and self.data.documents == "file")
        if packs and (dropped := self.model.get("attention_dropout")):
            raise RegardError(
                f"model.attention_dropout={dropped} is not possible with train.packed: set one to 0 or false"
            )
        tried = self.data.validation is not None or self.data.held_out or self.data.petit
        for key, asked in {"patience": train.patience, "best_by": train.best_by == "score"}.items():
            if asked and not tried:
                raise RegardError(f"train.{key} needs text to validate on: name data.validation, or data.held_out")
        if train.best_by == "score" and task == "language":
            raise RegardError("train.best_by='score': a language model has no score beside its loss; use 'loss'")
        if train.best_by == "score" and task == "translation" and not train.validation_sentences:
            raise RegardError("train.best_by='score' needs translations to score: set train.validation_sentences")


def check_kind(task: TaskKind, kind: str) -> None:
    """A ValueError unless a model of this kind can do the task."""
    if kind not in MODEL_KINDS[task]:
        wanted = " or ".join(map(repr, MODEL_KINDS[task]))
        raise RegardError(f"the task {task} needs a model of kind {wanted}, and model.kind is {kind!r}")


def with_named_files(data: DataSection) -> DataSection:
    """The same data with its files named, as seen from its folder: where none is named, those that are found there."""
    if not data.sought:
        return data
    folder = Path(data.folder).expanduser()
    if len(data.languages) != 2:
        there = training_languages(folder)
        ends = there if len(there) == 2 else ["fr", "en"]
        raise RegardError(
            f"which language is translated into which? {folder} has train files in {' and '.join(there)}: "
            f"""say --set 'data.languages=["{ends[0]}", "{ends[1]}"]', or the other way round"""
        )
    found = find_corpus_files(folder, data.languages, validation=data.validation is None)
    validation = data.validation or found.validation
    if validation is None and not data.held_out:
        raise RegardError(
            f"{folder} has no validation text ({', '.join(VALIDATION_STEMS)} with the same endings): "
            "add it, or hold out a share of the training text with --set data.held_out=0.02"
        )
    return replace(data, train=found.train, validation=validation, held_out=0.0 if validation else data.held_out)


def with_file_paths(data: DataSection) -> DataSection:
    """The same data with every file named and where it lies; a ValueError for one that is not there."""
    folder, data = Path(data.folder).expanduser(), with_named_files(data)
    train = tuple(corpus.within(folder) for corpus in data.train)
    validation = None if data.validation is None else data.validation.within(folder)
    corpora = (*train, *([validation] if validation else []))
    require_files(file for corpus in corpora for file in corpus.files if Path(file).exists())
    missing = [file for corpus in corpora for file in corpus.files if not Path(file).is_file()]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise RegardError(
            f"{missing[0]}{more}: there is no such file; --set data.folder=FOLDER says where the files lie"
        )
    return replace(data, folder="", train=train, validation=validation)


CHANGEABLE_ON_RESUME = {
    "data": {"folder", "languages"},  # that the text is the same is seen by its digest
    "train": {
        *("steps", "patience", "validate_every", "validation_sentences", "best_by", "checkpoint_every", "log_every"),
        *("device", "precision", "compile", "parallel", "packed"),
    },
}
"""what may be another when a run goes on: all else would make it another run"""


def check_unchanged(before: Recipe, now: Recipe) -> None:
    """A ValueError if a run that goes on would not be the run that was begun."""
    for section in ("data", "tokenizer", "model", "train"):
        old, new = (getattr(recipe, section) for recipe in (before, now))
        a, b = (each if isinstance(each, dict) else vars(each) for each in (old, new))
        for key in sorted({*a, *b} - CHANGEABLE_ON_RESUME.get(section, set())):
            if a.get(key) != b.get(key):
                raise RegardError(
                    f"the run was begun with {section}.{key}={a.get(key)!r}, and now it is {b.get(key)!r}: "
                    "go on with what it was, or begin another run with --out"
                )
