"""The history of a training run, read from the files in its folder while the run writes them, or afterwards."""

import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from regard.server import limits
from regard.storage.model_folder import RECIPE_FILE
from regard.training.events import TRANSIENT_NOTES, Ended, Event, Noted, Sample, Started, Stepped, Validated
from regard.training.metrics_log import METRICS_FILE, parse_events
from regard.training.run_folder import is_locked
from regard.training.snapshots import model_folders

E = TypeVar("E", bound=Event)
RunState = Literal["waiting", "running", "finished", "stopped"]
"""Whether a run has no log yet, is being trained, has ended, or stopped before its end."""
QUIET_SECONDS = 60.0
"""Seconds without a new line in the log after which the run's lock shows whether it is still being trained."""


class TrainingCurve(BaseModel):
    """Measurements during training, one list per quantity. NaN and infinity are null."""

    step: Annotated[list[int], Field(description="Steps of the measurements.")]
    seconds: Annotated[list[float], Field(description="Seconds of training until then.")]
    tokens: Annotated[list[int], Field(description="Number of target tokens until then.")]
    loss: Annotated[
        list[float | None],
        Field(description="Training loss, label smoothing included, in nats per target token or example."),
    ]
    lr: Annotated[list[float | None], Field(description="Learning rate.")]
    gradient: Annotated[list[float | None], Field(description="Norm of the gradient.")]
    tokens_per_second: Annotated[list[float | None], Field(description="Target tokens per second.")]


class SampleOutput(BaseModel):
    """A validation example and the model's output for it."""

    source: Annotated[str, Field(description="The source or prompt.")]
    output: Annotated[str, Field(description="What the model wrote for it.")]
    reference: Annotated[str, Field(description="The expected output.")]


class ValidationResponse(BaseModel):
    """A validation. Loss and score are null if they were not computed."""

    step: Annotated[int, Field(description="Step of the validation.")]
    seconds: Annotated[float, Field(description="Seconds of training until then.")]
    loss: Annotated[
        float | None,
        Field(description="Validation loss, without label smoothing, in nats per target token or example."),
    ]
    score: Annotated[float | None, Field(description="The score that `measure` names.")]
    best: Annotated[bool, Field(description="Whether this was the best model so far.")]
    samples: Annotated[list[SampleOutput], Field(description="Outputs for some validation examples.")]


class RunSummary(BaseModel):
    """A run."""

    name: Annotated[str, Field(description="Name of the run on this server.")]
    state: Annotated[
        RunState,
        Field(description="Whether the run has no log yet, is being trained, has ended, or stopped before its end."),
    ]
    task: Annotated[str | None, Field(description="Task of the recipe.")]
    title: Annotated[str | None, Field(description="Name of the recipe.")]
    step: Annotated[int, Field(description="The last step so far.")]
    steps: Annotated[int, Field(description="Number of steps of the recipe.")]
    parameters: Annotated[int, Field(description="Number of parameters.")]
    device: Annotated[str, Field(description="Device and precision of the training.")]


class RunResponse(RunSummary):
    """A run with its curves, validations, notes and snapshots."""

    measure: Annotated[str | None, Field(description="Name of the score, such as BLEU.")]
    curve: Annotated[
        TrainingCurve, Field(description=f"At most {limits.MAX_CURVE_POINTS} points: means of adjacent measurements.")
    ]
    validations: Annotated[
        list[ValidationResponse], Field(description=f"At most {limits.MAX_CURVE_VALIDATIONS}, evenly spread.")
    ]
    notes: Annotated[list[str], Field(description="The last notes, with their steps.")]
    ended: Annotated[str | None, Field(description="Why the run ended: steps, patience, interrupted or diverged.")]
    best_step: Annotated[int | None, Field(description="Step of the best validation.")]
    snapshots: Annotated[list[int], Field(description="Steps of which the run has a model.")]


class RunReader:
    """Reads the log of a run, and only what was added since the last time. It may be used from several threads."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._position = 0
        """Number of bytes of complete lines that have been read."""
        self._file_id: tuple[int, int] | None = None
        """Device and inode of the log. A resumed run replaces the file."""

    def summary(self) -> RunSummary:
        """The run in one line."""
        return RunSummary(**self._summary(self.events()))

    def describe(self) -> RunResponse:
        """The run with all curves and validations."""
        events = self.events()
        stepped = [event for event in events if isinstance(event, Stepped)]
        validated = [event for event in events if isinstance(event, Validated)]
        ended = last_of(events, Ended)
        bests = [event.step for event in validated if event.best]
        notes = [event for event in events if isinstance(event, Noted) and not event.text.startswith(TRANSIENT_NOTES)]
        return RunResponse(
            **self._summary(events),
            measure=next((event.measure for event in validated if event.measure), None),
            curve=training_curve(stepped, limits.MAX_CURVE_POINTS),
            validations=_validations(events, limits.MAX_CURVE_VALIDATIONS),
            notes=[_without_surrogates(f"Step {note.step:,}: {note.text}") for note in notes[-10:]],
            ended=None if ended is None else ended.reason,
            best_step=bests[-1] if bests else None,
            snapshots=list(model_folders(self.folder)),
        )

    def snapshot(self, step: int) -> Path | None:
        """The folder of the model of this step, if there is one."""
        return model_folders(self.folder).get(step)

    def events(self) -> list[Event]:
        """All events so far."""
        with self._lock:
            try:
                self._read_new_lines()
            except OSError:  # the file was removed, or is being replaced
                self._start_again()
            return list(self._events)

    def _read_new_lines(self) -> None:
        path = self.folder / METRICS_FILE
        status = path.stat()
        if self._file_id != (status.st_dev, status.st_ino) or status.st_size < self._position:
            self._start_again()
            self._file_id = status.st_dev, status.st_ino
        if status.st_size == self._position:
            return
        with path.open("rb") as file:
            file.seek(self._position)
            added = file.read(limits.MAX_LOG_BYTES - self._position)
        complete = added[: added.rfind(b"\n") + 1]
        self._events += parse_events(complete.splitlines())
        self._position += len(complete)

    def _start_again(self) -> None:
        self._events, self._position, self._file_id = [], 0, None

    def _summary(self, events: Sequence[Event]) -> dict[str, Any]:
        started = last_of(events, Started)
        return {
            "name": self.name,
            "state": self._state(events),
            "task": None if started is None else started.task,
            "title": None if started is None else _without_surrogates(started.name),
            "step": max((event.step for event in events), default=0),
            "steps": 0 if started is None else started.steps,
            "parameters": 0 if started is None else started.parameters,
            "device": "" if started is None else _without_surrogates(started.place),
        }

    def _state(self, events: Sequence[Event]) -> RunState:
        ended = last_of(events, Ended)
        if ended is not None:
            return "stopped" if ended.reason == "interrupted" else "finished"
        try:
            quiet = time.time() - (self.folder / METRICS_FILE).stat().st_mtime
        except OSError:
            return "waiting"
        return "running" if quiet < QUIET_SECONDS or is_locked(self.folder) else "stopped"


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run: one that is being trained, or has been."""
    return (folder / METRICS_FILE).is_file() and (folder / RECIPE_FILE).is_file()


def last_of(events: Sequence[Event], kind: type[E]) -> E | None:
    """The last event of a kind."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def training_curve(stepped: Sequence[Stepped], max_points: int) -> TrainingCurve:
    """The curve of a run with at most this many points: means of adjacent measurements, at their last step."""
    size = max(1, math.ceil(len(stepped) / max_points))
    groups = [stepped[i : i + size] for i in range(0, len(stepped), size)]

    def means(name: str) -> list[float | None]:
        return [_finite_mean([getattr(event, name) for event in group]) for group in groups]

    return TrainingCurve(
        step=[group[-1].step for group in groups],
        seconds=[group[-1].seconds for group in groups],
        tokens=[group[-1].tokens for group in groups],
        loss=means("loss"),
        lr=means("lr"),
        gradient=means("gradient"),
        tokens_per_second=means("tokens_per_second"),
    )


def _finite_mean(values: Sequence[float]) -> float | None:
    return _finite(sum(values) / len(values))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _validations(events: Sequence[Event], maximum: int) -> list[ValidationResponse]:
    """The validations, or this many of them, evenly spread, with the last one."""
    found: list[ValidationResponse] = []
    seconds = 0.0
    for event in events:
        if isinstance(event, Stepped):
            seconds = event.seconds
        elif isinstance(event, Validated):
            samples = [_sample(sample) for sample in event.samples]
            loss, score = _finite(event.loss), _finite(event.score)
            found.append(
                ValidationResponse(
                    step=event.step, seconds=seconds, loss=loss, score=score, best=event.best, samples=samples
                )
            )
    if len(found) <= maximum:
        return found
    chosen = {round(i * (len(found) - 1) / (maximum - 1)) for i in range(maximum)}
    return [validation for i, validation in enumerate(found) if i in chosen]


def _sample(sample: Sample) -> SampleOutput:
    texts = (sample.source, sample.output, sample.reference)
    source, output, reference = map(_without_surrogates, texts)
    return SampleOutput(source=source, output=output, reference=reference)


def _without_surrogates(text: str) -> str:
    """The text with question marks in place of lone surrogates, which cannot be sent."""
    return text.encode("utf-8", "replace").decode()
