"""The results of evaluating a system on a test set. `regard.evaluation.result_json` turns each into JSON."""

from dataclasses import dataclass, field
from typing import Literal

from regard.evaluation.alignment import AlignmentScores
from regard.evaluation.classification import ClassScores
from regard.evaluation.metrics import TranslationScores
from regard.evaluation.perplexity import LanguageScore
from regard.evaluation.pseudo_perplexity import MaskedScore
from regard.evaluation.result_json import recorded_as
from regard.evaluation.tag_accuracy import TagAccuracy
from regard.evaluation.tagging import TaggingScores

EvaluationTask = Literal["translation", "language", "classes", "tags", "masked"]
"""What a model is evaluated as: a translator, a language model, a classifier, a tagger or a masked language model."""
AlignedAttention = Literal["cross", "decoder"]
"""Where a target attends to its source: cross-attention or, in a decoder-only model, self-attention."""


@dataclass(frozen=True)
class Speed:
    """How long a system took. Tokenisation is included; loading the model is not."""

    seconds: float
    per_second: float
    unit: str


@dataclass(frozen=True)
class System:
    """The system that was evaluated. Of outputs from a file only the name is known."""

    name: str
    parameters: int | None = None
    device: str | None = None
    decoding: dict[str, int | float | str] | None = None
    """Beam size, length penalty and precision of a translator."""
    speed: Speed | None = None
    weights: str | None = None
    """Digest of the weights, which identifies the model: see `regard.storage.weights.weights_digest`."""


@dataclass(frozen=True)
class SystemOutputs:
    """A system and its translation of each source, each in one line."""

    system: System
    outputs: list[str]


@dataclass(frozen=True)
class SuspiciousOutput:
    """An output that a person should check, with its line in the test set."""

    line: int
    kind: str
    """One of `regard.evaluation.suspicious_outputs.SUSPICION_KINDS`."""
    detail: str
    source: str
    output: str


@dataclass(frozen=True)
class TranslationResult:
    """A translator on a test set."""

    system: System
    files: tuple[str, ...]
    scores: TranslationScores
    suspicious_counts: dict[str, int] = field(metadata=recorded_as("suspects"))
    """Number of suspicious outputs of each kind, most frequent first."""
    suspicious: tuple[SuspiciousOutput, ...] = field(metadata=recorded_as("suspected"))
    tag_accuracy: TagAccuracy | None = field(metadata=recorded_as("petit"))
    """Exact-match accuracy by tag, if the sentences have tags."""
    alignment: dict[str, AlignmentScores] | None
    """Alignment scores of the attention for each of `regard.evaluation.attention_alignment.ROW_TOKENS`."""
    attention: AlignedAttention | None = None
    """The attention that was aligned, if any."""
    kind: EvaluationTask = "translation"


@dataclass(frozen=True)
class LanguageResult:
    """A language model on a text."""

    system: System
    files: tuple[str, ...]
    score: LanguageScore
    documents: str
    """What one text is: line, blank-line or file."""
    texts: int
    context: int
    stride: int
    starts_with: str | None
    """Tokens before every text. None if the model has none; then the first token is not predicted."""
    kind: EvaluationTask = "language"


@dataclass(frozen=True)
class ClassificationResult:
    """A classifier on labelled texts."""

    system: System
    files: tuple[str, ...]
    scores: ClassScores
    kind: EvaluationTask = "classes"


@dataclass(frozen=True)
class SkippedSentences:
    """Sentences of a test set that were not scored, for one reason."""

    reason: str
    count: int
    first: str
    """Location of the first, as `file:line`."""

    def __str__(self) -> str:
        """Return the reason, the number of sentences and the location of the first.

        >>> str(SkippedSentences("missing label", 2, "test.conll:7"))
        'missing label: 2, first at test.conll:7'
        """
        return f"{self.reason}: {self.count:,}, first at {self.first}"


@dataclass(frozen=True)
class TaggingResult:
    """A tagger on sentences with labelled words."""

    system: System
    files: tuple[str, ...]
    scores: TaggingScores
    skipped: tuple[SkippedSentences, ...] = ()
    """Sentences that count for nothing in the scores, by reason."""
    kind: EvaluationTask = "tags"


@dataclass(frozen=True)
class MaskedResult:
    """A masked language model on a text."""

    system: System
    files: tuple[str, ...]
    score: MaskedScore
    texts: int
    """Number of texts, each a line of the file."""
    kind: EvaluationTask = "masked"
