"""What happens in a run, as those who watch it are told: the display, the log, a test.

A watcher is any function that takes an event. In `metrics.jsonl` each event is a line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Started:
    """A run begins, or goes on."""

    step: int
    """0, or where an earlier run was left"""
    steps: int
    name: str
    task: Literal["translation", "language", "classification"]
    out: str
    place: str
    """device, precision and whether it is compiled, in one line"""
    parameters: int
    examples: int
    left_out: int
    """examples that are too long: for `train.max_length`, a batch, or the model's positions"""
    problems: dict[str, int]
    """lines of the corpus that could not be used, by kind"""


@dataclass(frozen=True)
class Stepped:
    """Steps were made since the last such event: means over them."""

    step: int
    epoch: float
    """how often the data has gone by"""
    loss: float
    """nats per target token (or per example), with label smoothing if that is on"""
    lr: float
    gradient: float
    """the norm of the last step's gradient, before clipping"""
    tokens: int
    """target tokens that counted since the run's first step"""
    tokens_per_second: float
    seconds: float
    """spent in training since the run's first step, validation and saving left out, earlier processes counted"""
    utilisation: float | None
    """share of what a matrix product reaches on this GPU; None where that is not known"""


@dataclass(frozen=True)
class Ticked:
    """A step was made: for those who show how far a run is. It is not logged."""

    step: int
    seconds: float
    """as in `Stepped`"""


@dataclass(frozen=True)
class Sample:
    """What the model makes of an example."""

    source: str
    output: str
    reference: str = ""


@dataclass(frozen=True)
class Validated:
    """The model was tried on text it does not learn from."""

    step: int
    loss: float
    """nats per target token, without label smoothing"""
    score: float | None
    """BLEU of greedy translations, or the share of right answers in per cent; None for language models"""
    measure: Literal["BLEU", "accuracy"] | None
    best: bool
    """whether it is the best so far: it is then kept"""
    waited: int
    """validations since the best one"""
    samples: tuple[Sample, ...]
    seconds: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk, whole."""

    step: int
    folder: str
    bytes: int
    seconds: float


STOPS = "stops after this step, and saves; a second Ctrl-C ends it at once"
SCORES = "the best model, on {} validation examples …"
PASSING = (STOPS.partition(",")[0], SCORES.partition("{}")[0])
"""how notes begin that matter while a run goes, and not behind it"""


@dataclass(frozen=True)
class Noted:
    """Something that the user should know: a skipped update, a batch that was split."""

    step: int
    text: str


@dataclass(frozen=True)
class Ended:
    """The run is over, or was interrupted and can go on."""

    step: int
    reason: Literal["steps", "patience", "interrupted", "diverged"]
    best_step: int | None
    best_loss: float | None
    best_score: float | None
    tokens: int
    seconds: float
    flops: float
    """floating-point operations of the training so far, counted from the model's arithmetic"""
    skipped: int
    """updates that were left out because the loss or a gradient was not finite"""


Event = Started | Ticked | Stepped | Validated | Saved | Noted | Ended
Watcher = Callable[[Event], None]
