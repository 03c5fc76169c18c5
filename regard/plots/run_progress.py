"""What is known about a run from its events so far."""

import math
from collections import deque
from dataclasses import dataclass, field

from regard.training.events import Ended, Event, Saved, Started, Stepped, Ticked, Validated

LOSSES_KEPT = 400
"""Number of losses kept for the sparkline: twice the columns of a wide terminal."""
EVENTS_KEPT = 20
"""Number of recent events that the speed is computed from."""


@dataclass
class RunProgress:
    """The state of a run, updated by its events."""

    started: Started | None = None
    stepped: deque[Stepped] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES_KEPT))
    recent: deque[Ticked] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    """When the latest `Stepped` events happened, or else the first step."""
    last: Ticked | None = None
    """The last step of this process."""
    validated: Validated | None = None
    best: Validated | None = None
    ended: Ended | None = None
    overhead_seconds: float = 0.0
    """Seconds this process has spent on validating and saving."""

    def update(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case Started():
                self.started = event
            case Stepped():
                self.stepped.append(event)
                self.losses.append(event.loss)
                self.last = Ticked(event.step, event.seconds)
                self.recent.append(self.last)
            case Ticked():
                self.last = event
                if not self.recent:
                    self.recent.append(event)
            case Validated():
                self.validated = event
                self.best = event if event.best else self.best
                self.overhead_seconds += event.seconds
            case Saved():
                self.overhead_seconds += event.seconds
            case Ended():
                self.ended = event

    @property
    def step(self) -> int:
        """The last known step."""
        events = (self.started, self.last, self.validated, self.ended)
        return max((event.step for event in events if event is not None), default=0)

    @property
    def steps(self) -> int:
        """Number of steps in the complete run."""
        return 0 if self.started is None else self.started.steps

    @property
    def seconds(self) -> float | None:
        """Seconds of training; None before the first step."""
        last = self.ended or self.last
        return None if last is None else last.seconds

    @property
    def seconds_per_step(self) -> float | None:
        """Seconds per step over the latest steps, or else over all; None before the first."""
        last = self.last
        if last is None or last.step <= 0:
            return None
        first = self.recent[0]
        steps = last.step - first.step
        return (last.seconds - first.seconds) / steps if steps > 0 else last.seconds / last.step

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the last step, with as much validating and saving as so far; None if unknown."""
        pace = self.seconds_per_step
        if self.started is None or self.last is None or pace is None:
            return None
        own_steps = self.last.step - self.started.step
        if own_steps <= 0:
            return None
        return (self.steps - self.step) * (pace + self.overhead_seconds / own_steps)

    @property
    def unit(self) -> str:
        """What is counted: tokens, or texts for a classifier."""
        return "texts" if self.started is not None and self.started.task == "classification" else "tokens"


def is_unvalidated(event: Validated) -> bool:
    """Whether there was no validation text, so that the model was kept as it is."""
    return math.isnan(event.loss) and event.best and event.score is None and not event.samples
