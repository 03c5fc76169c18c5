"""A run's log: `metrics.jsonl`, an event a line; `samples.txt`, to be read; TensorBoard where that is installed.

JSON has no NaN and no infinity: they are written as the texts "NaN", "Infinity" and "-Infinity", and read back.

Other versions of Regard, and other programs, may write events and fields that this one does not know. They are ignored
when the log is read, and kept as they are when a run is resumed.
"""

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from regard.atomic_files import write_file
from regard.config import check_type
from regard.errors import RegardError
from regard.formatting import shorten, visible
from regard.training.events import Ended, Event, Noted, Sample, Saved, Started, Stepped, Ticked, Validated
from regard.untrusted_files import is_regular_file

METRICS, SAMPLES, TENSORBOARD = "metrics.jsonl", "samples.txt", "tensorboard"
DAMAGED = f"{METRICS}.damaged"
SAMPLES_OF_STEP = re.compile(rb"^step ([\d,]+): loss [^\n]*\n(?:(?:  [^\n]*)?\n)*+", re.MULTILINE)
"""what `_samples` writes of a validation"""
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in (Started, Stepped, Validated, Saved, Noted, Ended)}
ONCE_PER_STEP = (Stepped, Validated, Saved)
"""what happens once at a step, however often a run goes on from it"""
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MetricsLog:
    """A watcher that writes what happens into a run's folder.

    At step 0 it begins anew. Otherwise a run goes on from `step`: what an interrupted process left of later steps is
    dropped, and its end too, so that the log reads as that of one run. All other lines stay byte for byte; those that
    are no JSON objects are moved to `metrics.jsonl.damaged`.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        *lines, rest = _read_lines(folder / METRICS)
        lines += [rest] if _object(rest) is not None else []  # otherwise it was cut short
        parsed = [(line, _object(line)) for line in lines]
        kept = [(line, found) for line, found in parsed if found is not None and _stays(found, step)]
        if damaged := [line for line, found in parsed if line and found is None]:
            write_file(
                folder / DAMAGED, b"".join(line + b"\n" for line in [*_read_lines(folder / DAMAGED)[:-1], *damaged])
            )
        self.told = {
            (found["event"], found["step"]) for _, found in kept if _is_known(found) and _step(found) is not None
        }
        write_file(folder / METRICS, b"".join(line + b"\n" for line, _ in kept))
        write_file(folder / SAMPLES, _kept_samples(folder / SAMPLES, [found for _, found in kept], step))
        self.folder = folder
        self.board = _Board.open(folder / TENSORBOARD, step)

    def __call__(self, event: Event) -> None:
        """Write an event. Files are closed behind it, so that nothing is lost however the process ends."""
        if isinstance(event, Ticked):
            return
        if isinstance(event, ONCE_PER_STEP) and (type(event).__name__, event.step) in self.told:
            return
        self.told.add((type(event).__name__, event.step))
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

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(folder: Path, strict: bool = True) -> list[Event]:
    """The events of a run's log, in order; none where there is no log. A last line that was cut short is left out.

    Events and fields of other versions are left out. Any other line that cannot be read is a ValueError or, if not
    `strict`, left out too.
    """
    path = folder / METRICS
    *whole, rest = _read_lines(path)
    events: list[Event] = []
    for number, line in enumerate(whole, start=1):
        try:
            found = _object(line, strict=True)
            events += [_event(found)] if found is not None and _is_known(found) else []
        except (ValueError, RecursionError) as error:
            if strict:
                raise RegardError(f"{path}:{number}: {shorten(str(error))}") from None
    try:  # the process may have been ended within a line, or just before its end
        found = _object(rest)
        return [*events, _event(found)] if found is not None and _is_known(found) else events
    except (ValueError, RecursionError):
        return events


def _read_lines(path: Path) -> list[bytes]:
    """The lines of a file, the last of which is what follows the last line feed; one that is empty if there is none."""
    return path.read_bytes().split(b"\n") if is_regular_file(path) else [b""]


def _object(line: bytes, strict: bool = False) -> dict[str, Any] | None:
    """The JSON object of a line; if it is none, an error or, if not `strict`, None."""
    try:
        found = json.loads(line)
        if not isinstance(found, dict):
            raise RegardError("each line must be a JSON object")
    except (ValueError, RecursionError):
        if strict:
            raise
        return None
    return found


def _is_known(found: dict[str, Any]) -> bool:
    """Whether an object of the log is an event of this version's."""
    return isinstance(found.get("event"), str) and found["event"] in KINDS


def _step(found: dict[str, Any]) -> int | None:
    """The step of an object of the log, if it has one."""
    step = found.get("step")
    return step if isinstance(step, int) else None


def _stays(found: dict[str, Any], step: int) -> bool:
    """Whether a line belongs to a run that is resumed at a step, which writes its own start and end."""
    at = _step(found)
    if at is None:
        return True  # not one of ours
    if not _is_known(found):
        return at <= step
    if found["event"] == Ended.__name__ or not step:
        return False
    return at < step if found["event"] == Started.__name__ else at <= step


def _kept_samples(path: Path, kept: list[dict[str, Any]], step: int) -> bytes:
    """The samples of all validations up to a step: from the log or, of those that cannot be read, as they are there."""
    text = path.read_bytes() if is_regular_file(path) else b""
    there = {int(block[1].replace(b",", b"")): block[0] for block in SAMPLES_OF_STEP.finditer(text)}
    for found in kept:
        if found.get("event") == Validated.__name__:
            with suppress(ValueError):
                event = _event(found)
                there[event.step] = _samples(event).encode("utf-8", "backslashreplace")  # type: ignore[arg-type]
    return b"".join(there[each] for each in sorted(there) if step and each <= step)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise RegardError(
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


def _event(found: dict[str, Any]) -> Event:
    """The event of an object that has the name of one."""
    event: Event = _made(KINDS[found["event"]], found)
    return event


def _made(kind: type[Any], told: Any) -> Any:
    """A dataclass of events from the names and values of its fields; others are ignored."""
    if not isinstance(told, dict):
        raise RegardError(f"{kind.__name__} must be an object, and is {told!r}")
    hints = get_type_hints(kind)
    needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    if missing := sorted(needed - told.keys()):
        raise RegardError(f"{kind.__name__}: {missing[0]!r} is missing")
    values = {name: _value(f"{kind.__name__}.{name}", told[name], hint) for name, hint in hints.items() if name in told}
    return kind(**values)


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
