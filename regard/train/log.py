"""A run's log: `metrics.jsonl`, an event a line; `samples.txt`, to be read; TensorBoard where that is installed.

JSON has no NaN and no infinity: they are written as the texts "NaN", "Infinity" and "-Infinity", and read back.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from regard.config import check_type, did_you_mean
from regard.files import is_there, shorten, write_file
from regard.train.events import Ended, Event, Noted, Sample, Saved, Started, Stepped, Ticked, Validated
from regard.words import visible

METRICS, SAMPLES, TENSORBOARD = "metrics.jsonl", "samples.txt", "tensorboard"
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in (Started, Stepped, Validated, Saved, Noted, Ended)}
ONCE = (Stepped, Validated, Saved)
"""what happens once at a step, however often a run goes on from it"""
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Log:
    """A watcher that writes what happens into a run's folder.

    At step 0 it begins anew. Otherwise a run goes on from `step`: what an interrupted process left of later steps is
    dropped, and its end too, so that the log reads as that of one run.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        kept = [event for event in read_metrics(folder, strict=False) if _stays(event, step)] if step else []
        self.told = {(type(event), event.step) for event in kept}
        write_file(folder / METRICS, "".join(map(_line, kept)))
        write_file(folder / SAMPLES, "".join(_samples(event) for event in kept if isinstance(event, Validated)))
        self.folder = folder
        self.board = _Board.open(folder / TENSORBOARD, step)

    def __call__(self, event: Event) -> None:
        """Write an event. Files are closed behind it, so that nothing is lost however the process ends."""
        if isinstance(event, Ticked):
            return
        if isinstance(event, ONCE) and (type(event), event.step) in self.told:
            return
        self.told.add((type(event), event.step))
        _append(self.folder / METRICS, _line(event))
        if isinstance(event, Validated):
            _append(self.folder / SAMPLES, _samples(event))
        if self.board is not None:
            try:
                self.board(event)
            except OSError:  # it is a convenience: what matters is in our own files
                self.board = None

    def close(self) -> None:
        """Let go of TensorBoard."""
        if self.board is not None:
            self.board.writer.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(folder: Path, strict: bool = True) -> list[Event]:
    """What a run's log tells, in order; nothing where there is none. A last line that was cut short is left out.

    Any other line that cannot be read is a ValueError or, if not `strict`, left out too.
    """
    path = folder / METRICS
    if not is_there(path):
        return []
    *whole, rest = path.read_bytes().split(b"\n")
    events = []
    for number, line in enumerate(whole, start=1):
        try:
            events.append(_event(json.loads(line)))
        except (ValueError, RecursionError) as error:
            if strict:
                raise ValueError(f"{path}:{number}: {shorten(str(error))}") from None
    try:  # the process may have been ended within a line, or just before its end
        return [*events, _event(json.loads(rest))]
    except (ValueError, RecursionError):
        return events


def _stays(event: Event, step: int) -> bool:
    """Whether an event belongs to a run that goes on from a step: where that begins and that it ended is told anew."""
    if isinstance(event, Ended):
        return False
    return event.step < step if isinstance(event, Started) else event.step <= step


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise ValueError(
            f"{path} could not be written: {error.strerror}. Checkpoints are as they were; mend that, and go on with "
            "--resume"
        ) from error


def _line(event: Event) -> str:
    """JSON in a line. A half of a letter, as file names may have, is escaped as the file is written: JSON's own way."""
    told = {"event": type(event).__name__} | _plain(event)
    return json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _event(told: Any) -> Event:
    if not isinstance(told, dict) or not isinstance(told.get("event"), str):
        raise ValueError('each line must be an object with its "event"')
    name = told.pop("event")
    if name not in KINDS:
        raise ValueError(f"no event {name!r}: {did_you_mean(name, KINDS)}")
    event: Event = _made(KINDS[name], told)
    return event


def _made(kind: type[Any], told: Any) -> Any:
    """A dataclass of events from the names and values of all its fields."""
    if not isinstance(told, dict):
        raise ValueError(f"{kind.__name__} must be an object, and is {told!r}")
    hints = get_type_hints(kind)
    if odd := sorted(hints.keys() ^ told.keys()):
        raise ValueError(f"{kind.__name__}: {odd[0]!r} is {'missing' if odd[0] in hints else 'unknown'}")
    return kind(**{name: _value(f"{kind.__name__}.{name}", told[name], hint) for name, hint in hints.items()})


def _value(name: str, value: Any, hint: Any) -> Any:
    """A field's value, if it is what the field may hold."""
    if hint == tuple[Sample, ...]:
        check_type(name, value, list)
        return tuple(_made(Sample, each) for each in value)
    if hint == dict[str, int]:
        check_type(name, value, dict)
        for key, count in value.items():
            check_type(f"{name}[{key!r}]", count, int)
        return value
    is_real = hint is float or float in get_args(hint)
    if is_real and isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    check_type(name, value, hint)
    return float(value) if is_real and value is not None else value


def _samples(event: Validated) -> str:
    """A validation's samples, for people; nothing if there are none."""
    if not event.samples:
        return ""
    score = "" if event.score is None else f", {event.measure} {event.score:.1f}"
    lines = [f"step {event.step:,}: loss {event.loss:.3f}{score}", ""]
    for sample in event.samples:
        lines += [f"  source     {visible(sample.source)}", f"  output     {visible(sample.output)}"]
        lines += [f"  reference  {visible(sample.reference)}"] * bool(sample.reference) + [""]
    return "\n".join([*lines, ""])


class _Board:
    """The same for TensorBoard, by its own names."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    @classmethod
    def open(cls, folder: Path, step: int) -> "_Board | None":
        """None where TensorBoard is not installed. What it holds of later steps will not be shown."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return None
        return cls(SummaryWriter(str(folder), purge_step=step + 1 if step else 0))

    def __call__(self, event: Event) -> None:
        numbers: Iterable[tuple[str, float | None]] = ()
        if isinstance(event, Stepped):
            numbers = [
                ("train/loss", event.loss),
                ("train/lr", event.lr),
                ("train/gradient", event.gradient),
                ("train/tokens_per_second", event.tokens_per_second),
                ("train/utilisation", event.utilisation),
            ]
        elif isinstance(event, Validated):
            numbers = [("validation/loss", event.loss), (f"validation/{event.measure}", event.score)]
            for i, sample in enumerate(event.samples):
                lines = [sample.source, sample.output, sample.reference]
                text = "\n".join(f"    {visible(line)}" for line in lines)  # indented: taken word for word
                self.writer.add_text(f"sample {i}", text, event.step)
        for name, number in numbers:
            if number is not None:
                self.writer.add_scalar(name, number, event.step)
        if isinstance(event, Validated | Ended):
            self.writer.flush()
