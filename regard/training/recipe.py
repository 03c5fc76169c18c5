"""Recipes: what to train, on what text and how, in five sections.

The string below each field is its documentation, here and wherever the field is shown to a user.
"""

import math
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from regard.config import (
    ModelConfig,
    StrictConfig,
    check_keys,
    check_probability,
    check_type,
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

TaskKind = Literal["translation", "language", "classification", "tagging", "masked"]
CORPUS_SIDES: dict[TaskKind, tuple[tuple[int, ...], str]] = {
    "translation": ((2,), "two, source and target: two files, or two columns or keys of one"),
    "language": ((1,), "one: a file, or a column or key of it"),
    "classification": ((2,), "two, text and class: two files, or two columns or keys of one"),
    "tagging": ((1, 2), "words and labels: two files, or one with two columns (by default the first and the last)"),
    "masked": ((1,), "one: a file, or a column or key of it"),
}
MODEL_KINDS: dict[TaskKind, tuple[str, ...]] = {
    "translation": ("encoder-decoder", "decoder"),
    "language": ("decoder",),
    "classification": ("encoder", "decoder"),
    "tagging": ("encoder",),
    "masked": ("encoder",),
}
"""The kinds of model that can do each task."""
CLASSES_PER: dict[TaskKind, Literal["sequence", "token"]] = {"classification": "sequence", "tagging": "token"}
"""What a class is predicted for, in tasks that predict classes instead of tokens."""
READING_TASKS: tuple[TaskKind, ...] = (*CLASSES_PER, "masked")
"""Tasks in which a model reads texts and writes none."""
DERIVED_MODEL_KEYS = ("vocab_size", "target_vocab_size", "pad", "classes", "classes_per")
"""Fields of `ModelConfig` that follow from the text."""
FINE_TUNING_MODEL_KEYS = ("dropout", "attention_dropout", "feed_forward_dropout")
"""Fields of `ModelConfig` that can be changed when an existing model is fine-tuned."""


DATA_MAXIMA = {"petit": MAX_PAIRS, "temperature": 1e9}
TRAIN_MAXIMA = {
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
    "snapshots": 1_000,
    "checkpoint_every": 10**9,
    "log_every": 10**9,
    "seed": 2**63 - 1,
}
"""Maximum values of a recipe's numbers. Probabilities and fractions have their own limits."""


@dataclass(frozen=True, kw_only=True)
class DataSection(StrictConfig, label="data", maxima=DATA_MAXIMA):
    """The text to train on. A corpus is `{ files = ["a.fr", "a.en"] }`, one file per side, or one file with `columns`
    or `keys`. In `train`, it can also have `times = 3`, the number of times that an epoch uses it (0.5 uses one half),
    and `tag = "<BT>"`, a word that is put before each of its sources (only for translation)."""

    task: TaskKind = "translation"
    """Task of the model: `translation` of the first side into the second, `language` modelling of a text,
    `classification` of a text (first side) into classes (second side), `tagging` of each word (a file with a word and
    its label per line, blank lines between sentences, or a file of words and a file of labels, separated by spaces), or
    `masked` language modelling, which predicts 15% of the tokens of each line from the others, as BERT does."""
    languages: tuple[str, ...] = ()
    """Codes of the source and target language, such as ["fr", "en"], for the model card and to find files."""
    folder: str = ""
    """Folder of the files, if they are not in the current folder."""
    train: tuple[Corpus, ...] = ()
    """Corpora to train on, one after the other. By default train.fr and train.en in `folder`, or the files that
    mtdata writes there; regard/training/corpus_folder.py lists the names."""
    validation: Corpus | None = None
    """Corpus to validate on during training. If `train` is not given either, the default is dev.fr and dev.en in
    `folder`."""
    temperature: float = 1.0
    """Temperature for sampling from several corpora: each is used in proportion to its size to the power of
    1 / temperature, the largest once per epoch. 1 uses every example once; about 5 suits corpora of very different
    sizes; a large value uses all corpora equally."""
    held_out: float = 0.0
    """Fraction of the training text, from its end, that is held out for validation if there is no `validation`."""
    petit: int = 0
    """Number of sentence pairs of Petit, the bundled French–English corpus, to train on instead of files."""
    documents: DocumentBoundary = "line"
    """What a text is in language modelling: a `line`, the lines up to a `blank-line`, or a `file`."""
    skip_bad: bool = False
    """Skip and count unusable lines. By default the first one is an error."""

    def __post_init__(self) -> None:
        """Check that the fields fit together."""
        super().__post_init__()
        require_at_least(0, petit=self.petit)
        check_probability("data.held_out", self.held_out)
        self._check_weights()
        if self.petit and (self.train or self.validation or self.held_out):
            raise RegardError(
                f"data.petit={self.petit} with train, validation or held_out: Petit replaces all other text and has "
                "its own validation text; set petit to 0, or remove the others"
            )
        if self.searches_folder and not self.folder:
            raise RegardError(
                'there is no training text: name files in data.train, as in { files = ["a.fr", "a.en"] }, set '
                "data.folder to a folder with train.fr and train.en, or set data.petit"
            )
        if self.searches_folder and self.task != "translation":
            raise RegardError(
                f"data.folder={self.folder!r} without data.train: files are found by name for translation only; for "
                f"the task {self.task}, name the files in data.train"
            )
        if self.validation and self.held_out:
            raise RegardError(
                f"data.held_out={self.held_out} and data.validation exclude each other: remove one of them"
            )
        if self.documents != "line" and self.task != "language":
            raise RegardError(
                f"data.documents={self.documents!r} is for the task language only: here each line is an example"
            )
        self._check_sides()

    def _check_weights(self) -> None:
        if not self.temperature >= 1:  # also if it is not a number
            raise RegardError(f"data.temperature={self.temperature} is not possible: it must be at least 1")
        if self.temperature != 1 and any(corpus.times != 1 for corpus in self.train):
            raise RegardError(
                f"data.temperature={self.temperature} decides how often each corpus is used: remove it, or `times`"
            )
        if self.validation and self.validation.times != 1:
            raise RegardError("data.validation.times: validation text is used once; remove the setting")
        tagged = [corpus for corpus in self.train if corpus.tag]
        if tagged and self.task != "translation":
            raise RegardError(f"tag={tagged[0].tag!r} is for translation only: the task is {self.task}")

    @property
    def searches_folder(self) -> bool:
        """Whether no file is named, so that files are searched for in the folder."""
        return not self.petit and not self.train

    def _check_sides(self) -> None:
        sides, description = CORPUS_SIDES[self.task]
        for corpus in (*self.train, *([self.validation] if self.validation else [])):
            if corpus.sides not in sides:
                count = "1 side" if corpus.sides == 1 else f"{corpus.sides} sides"
                raise RegardError(f"{corpus.files[0]} is read with {count}: the task {self.task} needs {description}")
        if len(self.languages) not in (0, 2 if self.task == "translation" else 1):
            wanted = "two languages, source and target" if self.task == "translation" else "one language"
            raise RegardError(
                f"data.languages={list(self.languages)}: the task {self.task} has {wanted}; or remove the setting"
            )


@dataclass(frozen=True, kw_only=True)
class TokenizerSection(StrictConfig, label="tokenizer", maxima={"vocab_size": MAX_VOCABULARY}):
    """The tokenizer. Fine-tuning uses that of the model it starts from."""

    kind: TokenizerKind = "bpe"
    """Kind of tokens: byte-level BPE, or characters."""
    vocab_size: int = 8_000
    """Maximum number of ids, rounded up to a multiple of 64."""
    separate: bool = False
    """Train two tokenizers, one on the source and one on the target, for an encoder-decoder with separate vocabularies
    of `vocab_size` ids each. By default both sides share one."""
    path: str = ""
    """Tokenizer to use instead of training one: a model's folder, such as Hugging Face's, or a file in the format of
    tokenizer.json. Its special tokens are used; `kind` and `vocab_size` then have no effect."""
    dropout: float = 0.0
    """BPE dropout, for translation: each example is tokenized in sixteen ways, with merges skipped at this rate, and
    each epoch uses one of them. About 0.1 helps on small corpora."""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require_at_least(1, vocab_size=self.vocab_size)
        check_probability("tokenizer.dropout", self.dropout)


@dataclass(frozen=True, kw_only=True)
class TrainSection(StrictConfig, label="train", maxima=TRAIN_MAXIMA):
    """How the model is trained. The defaults are the paper's, with a smaller batch."""

    steps: int = 10_000
    """Number of updates of the weights."""
    batch_tokens: int = 16_000
    """Number of tokens per batch on its larger side, over all devices. Accumulated batches are counted one by one."""
    accumulate: int = 1
    """Number of batches whose gradients are summed before each update."""
    max_length: int = 256
    """Maximum number of tokens in an example; longer ones are skipped. For language, the length of a block."""
    packed: bool | None = None
    """Put several sentences into a row, which do not attend to each other, instead of padding. By default on GPUs,
    where the model allows it."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Optimizer: adam, or adamw, which also shrinks matrices by lr × weight_decay in each step."""
    lr: float | None = None
    """Peak learning rate. By default the paper's: (d_model × warmup)^-0.5."""
    schedule: Literal["inverse-sqrt", "cosine", "linear", "constant"] = "inverse-sqrt"
    """How the learning rate decays after the warm-up, during which it rises linearly."""
    warmup: int = 4_000
    """Number of warm-up steps."""
    lr_end: float = 0.0
    """Fraction of `lr` at the last step, for the cosine and linear schedules."""
    beta1: float = 0.9
    """Decay rate of Adam's moving average of the gradient."""
    beta2: float = 0.98
    """Decay rate of Adam's moving average of the squared gradient."""
    eps: float = 1e-9
    """Number added to the denominator of Adam's update."""
    weight_decay: float = 0.0
    """Weight decay of adamw, which applies to matrices only."""
    clip: float = 0.0
    """Maximum norm of the gradient; 0 disables clipping."""
    label_smoothing: float = 0.1
    """Probability spread evenly over all outputs."""
    consistency: float = 0.0
    """Weight of R-Drop's consistency loss: each batch passes through the network twice, with different dropout, and the
    divergence of the two predictions is added to the training loss. About 5 helps on small corpora with many steps, at
    twice the cost; 0 disables it."""
    average: int = 1
    """Number of validations whose weights are averaged into the model that is validated and saved."""
    validate_every: int = 1_000
    """Number of steps between validations."""
    validation_sentences: int = 500
    """Number of validation sentences that are translated and scored with BLEU; 0 computes only the loss."""
    best_by: Literal["loss", "score"] = "loss"
    """Criterion for the best model: the lowest loss, or the highest score (BLEU, accuracy, or the F1 of spans)
    and, among equal scores, the lowest loss."""
    patience: int = 0
    """Stop after this many validations without improvement; 0 disables early stopping."""
    checkpoint_every: int = 1_000
    """Number of steps between checkpoints, from which a run can be resumed."""
    snapshots: int = 0
    """Number of copies of the weights, in float16, that are kept from step 0 to the last one: regard serve shows with
    them how attention emerges. 0 keeps none."""
    log_every: int = 50
    """Number of steps between lines of the log."""
    seed: int = 0
    """Random seed. The same seed, data and device give the same model."""
    device: str = "auto"
    """Device: auto, cpu or cuda; auto uses a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the arithmetic; auto uses bfloat16 on GPUs that support it, float16 on others, float32 on CPUs."""
    compile: bool | None = None
    """Whether to use torch.compile, which takes a minute at the start and then runs much faster. By default on GPUs."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Parallelism under torchrun: each device holds the complete model (ddp), or a share of it (fsdp)."""

    def __post_init__(self) -> None:
        """Check the values."""
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
            snapshots=self.snapshots,
            seed=self.seed,
        )
        for name in ("label_smoothing", "beta1", "beta2"):
            check_probability(name, getattr(self, name))
        for name in ("eps", "weight_decay", "clip", "lr_end", "lr", "consistency"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise RegardError(f"{name}={quoted(value)} is not possible: it must be at least 0 and finite")
        if self.eps == 0:
            raise RegardError("eps=0 divides by zero where a gradient is zero: it must be positive")
        if self.lr_end > 1:
            raise RegardError(f"lr_end={self.lr_end} is not possible: it is a fraction of lr, at most 1")
        if self.lr == 0:
            raise RegardError("lr=0 would change nothing: it must be positive")


@dataclass(frozen=True, kw_only=True)
class Recipe(StrictConfig):
    """A recipe: its name and its five sections. Recipe files are read by `regard.train` and `regard train`."""

    name: str
    data: DataSection
    tokenizer: TokenizerSection = field(default_factory=TokenizerSection)
    model: dict[str, Any] = field(default_factory=dict)
    """Fields of `ModelConfig`, and `preset`, the name of a preset to start with; or `start`, a model to fine-tune, of
    which only the dropout rates can be changed: `--set model.start=FOLDER` replaces all other settings of the file.
    Fields that follow from the text and the task (vocab_size, pad, classes, classes_per) are filled in."""
    train: TrainSection = field(default_factory=TrainSection)
    decode: Decoding = field(default_factory=lambda: Decoding(beam=DEFAULT_BEAM))
    """How the finished model decodes when it is scored."""

    def __post_init__(self) -> None:
        """Check that the sections fit together."""
        super().__post_init__()
        if not self.name:
            raise RegardError("a recipe needs a name")
        self._check_model()
        self._check_tokenizer()
        self._check_train()

    @property
    def start(self) -> str | None:
        """The model to fine-tune, if any."""
        start: str | None = self.model.get("start")
        return start

    def config(
        self, vocab_size: int, classes: int = 0, target_vocab_size: int | None = None, pad: int | None = -1
    ) -> ModelConfig:
        """The architecture of a new model, for this number of ids and classes."""
        settings = {key: value for key, value in self.model.items() if key != "preset"}
        settings |= {"vocab_size": vocab_size, "target_vocab_size": target_vocab_size, "pad": pad, "classes": classes}
        if classes:
            settings["classes_per"] = CLASSES_PER[self.data.task]
        name = self.model.get("preset")
        return ModelConfig(**settings) if name is None else preset(name, **settings)

    def smallest_config(self) -> ModelConfig:
        """The architecture with the fewest ids and classes possible, for checks before the text is read."""
        return self.config(vocab_size=2, classes=2 if self.data.task in CLASSES_PER else 0)

    def _check_model(self) -> None:
        known = [key.name for key in fields(ModelConfig) if key.name not in DERIVED_MODEL_KEYS]
        for key in self.model:
            if key in DERIVED_MODEL_KEYS:
                raise RegardError(f"model.{key} follows from the text and is filled in: remove it")
        check_keys("[model]", self.model, (*known, "preset", "start"))
        for key in ("preset", "start"):
            check_type(f"model.{key}", self.model.get(key), str | None)
        if self.start is None:
            check_kind(self.data.task, self.config(vocab_size=2).kind)
            if self.smallest_config().prefix and self.data.task != "translation":
                raise RegardError(f"model.prefix is for translation only: the task is {self.data.task}")
            return
        for key, value in self.model.items():
            if key not in (*FINE_TUNING_MODEL_KEYS, "start"):
                raise RegardError(
                    f"model.{key} with model.start: only the dropout of an existing model can be changed; remove it"
                )
            if key in FINE_TUNING_MODEL_KEYS:
                check_type(f"model.{key}", value, float)
                check_probability(f"model.{key}", value)

    def _check_tokenizer(self) -> None:
        section, task = self.tokenizer, self.data.task
        if self.start is not None and (section.separate or section.path):
            key = "path" if section.path else "separate"
            raise RegardError(f"tokenizer.{key} with model.start: an existing model keeps its tokenizer; remove one")
        if section.separate and section.path:
            raise RegardError("tokenizer.separate trains tokenizers, but tokenizer.path names one: remove one of them")
        if section.separate and task != "translation":
            raise RegardError(
                f"tokenizer.separate is for translation only, which has a source and a target: the task is {task}"
            )
        if section.separate and self.config(vocab_size=2).kind != "encoder-decoder":
            raise RegardError(
                "tokenizer.separate needs model.kind='encoder-decoder': a decoder reads source and target as one text, "
                "with one vocabulary"
            )

    def _check_train(self) -> None:
        train, task = self.train, self.data.task
        if train.packed and task == "classification":
            raise RegardError("train.packed is not possible for classification, which predicts one class per row")
        if train.consistency and task == "classification":
            raise RegardError("train.consistency is not possible for classification: it compares predictions of tokens")
        if train.consistency and self.start is None and not self.config(vocab_size=2).dropout:
            raise RegardError("train.consistency needs dropout: with model.dropout=0 both predictions are the same")
        if self.tokenizer.dropout and task != "translation":
            raise RegardError(f"tokenizer.dropout is for translation only, but the task is {task}: set it to 0")
        if self.tokenizer.dropout and self.tokenizer.kind != "bpe":
            raise RegardError(
                f"tokenizer.dropout skips BPE merges, but tokenizer.kind={self.tokenizer.kind!r} has none: set it to 0"
            )
        packs = train.packed and not (task == "language" and self.data.documents == "file")
        if packs and (dropped := self.model.get("attention_dropout")):
            raise RegardError(
                f"model.attention_dropout={dropped} is not possible with train.packed: set one to 0 or false"
            )
        has_validation = self.data.validation is not None or self.data.held_out or self.data.petit
        for key, needs_validation in {"patience": train.patience, "best_by": train.best_by == "score"}.items():
            if needs_validation and not has_validation:
                raise RegardError(f"train.{key} needs validation text: set data.validation or data.held_out")
        if train.best_by == "score" and task in ("language", "masked"):
            raise RegardError("train.best_by='score': a language model has no score other than its loss; use 'loss'")
        if train.best_by == "score" and task == "translation" and not train.validation_sentences:
            raise RegardError("train.best_by='score' needs translations to score: set train.validation_sentences")


def check_kind(task: TaskKind, kind: str) -> None:
    """Raise a RegardError unless a model of this kind can do the task."""
    if kind not in MODEL_KINDS[task]:
        wanted = " or ".join(map(repr, MODEL_KINDS[task]))
        raise RegardError(f"the task {task} needs a model of kind {wanted}, but model.kind is {kind!r}")


def with_named_files(data: DataSection) -> DataSection:
    """The same data with all files named, relative to the folder: if none is named, those found there."""
    if not data.searches_folder:
        return data
    folder = Path(data.folder).expanduser()
    if len(data.languages) != 2:
        languages = training_languages(folder)
        example = languages if len(languages) == 2 else ["fr", "en"]
        raise RegardError(
            f"the translation direction is not set: {folder} has training files in {' and '.join(languages)}. "
            f"Add --set data.languages={example[0]},{example[1]} or {example[1]},{example[0]}: the source first"
        )
    corpora = find_corpus_files(folder, data.languages, validation=data.validation is None)
    validation = data.validation or corpora.validation
    if validation is None and not data.held_out:
        raise RegardError(
            f"{folder} has no validation text ({', '.join(VALIDATION_STEMS)} with the same endings): "
            "add it, or hold out a share of the training text with --set data.held_out=0.02"
        )
    return replace(data, train=corpora.train, validation=validation, held_out=0.0 if validation else data.held_out)


def with_file_paths(data: DataSection) -> DataSection:
    """The same data with the path of every file. Raises a RegardError if one does not exist."""
    folder, data = Path(data.folder).expanduser(), with_named_files(data)
    train = tuple(corpus.within(folder) for corpus in data.train)
    validation = None if data.validation is None else data.validation.within(folder)
    corpora = (*train, *([validation] if validation else []))
    require_files(file for corpus in corpora for file in corpus.files if Path(file).exists())
    missing = [file for corpus in corpora for file in corpus.files if not Path(file).is_file()]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise RegardError(
            f"{missing[0]}{more}: no such file; set the folder of the files with --set data.folder=FOLDER"
        )
    return replace(data, folder="", train=train, validation=validation)


CHANGEABLE_ON_RESUME = {
    "data": {"folder", "languages"},  # the digest shows whether the text is the same
    "tokenizer": {"path"},  # likewise
    "train": {
        *("steps", "patience", "validate_every", "validation_sentences", "best_by", "checkpoint_every", "log_every"),
        *("snapshots", "device", "precision", "compile", "parallel", "packed"),
    },
}
"""Settings that may change when a run is resumed. Any other change would make it a different run."""


def check_unchanged(before: Recipe, now: Recipe) -> None:
    """Raise a RegardError if a resumed run would differ from the run that was started."""
    for section in ("data", "tokenizer", "model", "train"):
        old, new = (getattr(recipe, section) for recipe in (before, now))
        old, new = (settings if isinstance(settings, dict) else vars(settings) for settings in (old, new))
        for key in sorted({*old, *new} - CHANGEABLE_ON_RESUME.get(section, set())):
            if old.get(key) != new.get(key):
                raise RegardError(
                    f"the run was started with {section}.{key}={old.get(key)!r}, but now it is {new.get(key)!r}: "
                    "use the old value, or start another run with --out"
                )
