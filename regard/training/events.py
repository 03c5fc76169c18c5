"""The events of a run, as reported to watchers: the display, the log, a test.

A watcher is any function that takes an event. Each event except `Ticked` is a line of `metrics.jsonl`, with the
names of the class and its fields; version 0.1 wrote the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

StopReason = Literal["steps", "patience", "interrupted"]
EndReason = Literal["steps", "patience", "interrupted", "diverged"]


@dataclass(frozen=True)
class Started:
    """A run starts or resumes."""

    step: int
    """0, or the step an earlier process reached."""
    steps: int
    """Number of steps in the complete run."""
    name: str
    task: Literal["translation", "language", "classification", "tagging", "masked"]
    out: str
    """The run's folder."""
    place: str
    """Device, precision and whether the network is compiled, in one line."""
    parameters: int
    examples: int
    """Number of training examples."""
    left_out: int
    """Number of examples that are too long for `train.max_length`, a batch, or the model's positions."""
    problems: dict[str, int]
    """Number of unusable lines in the corpus, by kind."""
    module: str = ""
    """The class of the user's own module that is trained; empty for Regard's network."""


@dataclass(frozen=True)
class Stepped:
    """Steps were taken since the last event of this kind; the numbers are averages over them."""

    step: int
    epoch: float
    """Number of passes over the data so far."""
    loss: float
    """Nats per target token (or per example), including label smoothing."""
    lr: float
    gradient: float
    """Norm of the last step's gradient, before clipping."""
    tokens: int
    """Number of target tokens since the run's first step."""
    tokens_per_second: float
    seconds: float
    """Seconds of training since the run's first step, without validation and saving, including earlier processes."""
    utilisation: float | None
    """Fraction of the speed that matrix products reach on this GPU; None if that is not known."""


@dataclass(frozen=True)
class Ticked:
    """A step was taken. This event is for progress displays and is not logged."""

    step: int
    seconds: float
    """Seconds of training, as in `Stepped`."""


@dataclass(frozen=True)
class Sample:
    """An example and the model's output for it."""

    source: str
    output: str
    reference: str = ""


@dataclass(frozen=True)
class Validated:
    """The model was validated on held-out text."""

    step: int
    loss: float
    """Nats per target token, without label smoothing."""
    score: float | None
    """BLEU of greedy translations, or accuracy in per cent; None for language models."""
    measure: Literal["BLEU", "accuracy", "F1"] | None
    best: bool
    """Whether this is the best model so far, which is then saved."""
    waited: int
    """Number of validations since the best one."""
    samples: tuple[Sample, ...]
    seconds: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    step: int
    folder: str
    bytes: int
    seconds: float


STOPPING_NOTE = "stops after this step and saves; press Ctrl-C again to quit at once"
SCORING_NOTE = "scoring the best model on {} validation examples …"
DURATION_NOTE = "this run is slow: at"
TRANSIENT_NOTES = ("stops after this step", "scoring the best model", DURATION_NOTE, "the best model, on")
"""Beginnings of notes that matter only while a run is active; the last one is version 0.1's."""
WARNING = "warning: "
"""Beginning of a note about a probable mistake, which may make the result worthless."""


@dataclass(frozen=True)
class Noted:
    """Something the user should know, such as a skipped update or a batch that was split."""

    step: int
    text: str


@dataclass(frozen=True)
class Ended:
    """The run is finished, or was interrupted and can be resumed."""

    step: int
    reason: EndReason
    best_step: int | None
    best_loss: float | None
    best_score: float | None
    tokens: int
    """Number of target tokens since the run's first step."""
    seconds: float
    """Seconds of training, as in `Stepped`."""
    flops: float
    """Floating-point operations of the training, counted from the model's arithmetic."""
    skipped: int
    """Number of updates skipped because the loss or a gradient was not finite."""


Event = Started | Ticked | Stepped | Validated | Saved | Noted | Ended
Watcher = Callable[[Event], None]
