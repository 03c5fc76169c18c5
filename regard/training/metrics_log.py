"""A run's log: `metrics.jsonl` with one event per line, `samples.txt` for people, and TensorBoard if it is installed.

JSON has no NaN and no infinity. They are written as the strings "NaN", "Infinity" and "-Infinity", and read back.

Other versions of Regard, and other programs, may write events and fields that this version does not know. They are
ignored when the log is read, and kept unchanged when a run is resumed.
"""

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from regard.atomic_files import write_file
from regard.config import check_type
from regard.errors import RegardError
from regard.formatting import shorten, visible
from regard.training.events import Ended, Event, Noted, Sample, Saved, Started, Stepped, Ticked, Validated
from regard.untrusted_files import is_regular_file

METRICS_FILE, SAMPLES_FILE, TENSORBOARD_FOLDER = "metrics.jsonl", "samples.txt", "tensorboard"
DAMAGED_FILE = f"{METRICS_FILE}.damaged"
SAMPLES_OF_STEP = re.compile(rb"^step ([\d,]+): loss [^\n]*\n(?:(?:  [^\n]*)?\n)*+", re.MULTILINE)
"""The samples of one validation, as written by `_samples`."""
LOGGED_EVENTS = (Started, Stepped, Validated, Saved, Noted, Ended)
EVENT_CLASSES: dict[str, type[Event]] = {kind.__name__: kind for kind in LOGGED_EVENTS}
ONCE_PER_STEP = (Stepped, Validated, Saved)
"""Events that happen once per step, however often a run is resumed from it."""
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MetricsLog:
    """A watcher that writes events into a run's folder.

    At step 0 the log starts empty. Otherwise a run resumes from `step`: lines of later steps that an interrupted
    process left are dropped, and so is its end, so that the log reads as that of a single run. All other lines are kept
    byte for byte; lines that are not JSON objects are moved to `metrics.jsonl.damaged`.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        *lines, rest = _read_lines(folder / METRICS_FILE)
        lines += [rest] if _object(rest) is not None else []  # otherwise it is incomplete
        parsed = [(line, _object(line)) for line in lines]
        kept = [(line, record) for line, record in parsed if record is not None and _is_kept(record, step)]
        if damaged := [line for line, record in parsed if line and record is None]:
            write_file(
                folder / DAMAGED_FILE,
                b"".join(line + b"\n" for line in [*_read_lines(folder / DAMAGED_FILE)[:-1], *damaged]),
            )
        self.logged = {
            (record["event"], record["step"]) for _, record in kept if _is_known(record) and _step(record) is not None
        }
        write_file(folder / METRICS_FILE, b"".join(line + b"\n" for line, _ in kept))
        write_file(folder / SAMPLES_FILE, _kept_samples(folder / SAMPLES_FILE, [record for _, record in kept], step))
        self.folder = folder
        self.board = _TensorBoard.open(folder / TENSORBOARD_FOLDER, step)

    def __call__(self, event: Event) -> None:
        """Write an event. Files are closed after each one, so that nothing is lost however the process ends."""
        if isinstance(event, Ticked):
            return
        if isinstance(event, ONCE_PER_STEP) and (type(event).__name__, event.step) in self.logged:
            return
        self.logged.add((type(event).__name__, event.step))
        _append(self.folder / METRICS_FILE, _line(event))
        if isinstance(event, Validated):
            _append(self.folder / SAMPLES_FILE, _samples(event))
        if self.board is not None:
            try:
                self.board(event)
            except OSError:  # TensorBoard is optional: the files above have everything
                self.board = None

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self.board is not None:
            self.board.writer.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(folder: Path, strict: bool = True) -> list[Event]:
    """The events of a run's log, in order; empty if there is no log. An incomplete last line is skipped.

    Events and fields of other versions are skipped. Any other line that cannot be read is a RegardError or, if not
    `strict`, skipped too.
    """
    path = folder / METRICS_FILE
    *complete, rest = _read_lines(path)
    events: list[Event] = []
    for number, line in enumerate(complete, start=1):
        try:
            record = _object(line, strict=True)
            events += [_event(record)] if record is not None and _is_known(record) else []
        except (ValueError, RecursionError) as error:
            if strict:
                raise RegardError(f"{path}:{number}: {shorten(str(error))}") from None
    try:  # the process may have been killed within a line, or just before its line feed
        record = _object(rest)
        return [*events, _event(record)] if record is not None and _is_known(record) else events
    except (ValueError, RecursionError):
        return events


def parse_events(lines: Iterable[bytes]) -> list[Event]:
    """The events on complete lines of a log. Lines that cannot be read are skipped."""
    events: list[Event] = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = _object(line)
            events += [_event(record)] if record is not None and _is_known(record) else []
    return events


def _read_lines(path: Path) -> list[bytes]:
    """The lines of a file; the last one is what follows the last line feed. One empty line if there is no file."""
    return path.read_bytes().split(b"\n") if is_regular_file(path) else [b""]


def _object(line: bytes, strict: bool = False) -> dict[str, Any] | None:
    """The JSON object on a line. If there is none: an error or, if not `strict`, None."""
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise RegardError("each line must be a JSON object")
    except (ValueError, RecursionError):
        if strict:
            raise
        return None
    return record


def _is_known(record: dict[str, Any]) -> bool:
    """Whether a record is an event of this version."""
    return isinstance(record.get("event"), str) and record["event"] in EVENT_CLASSES


def _step(record: dict[str, Any]) -> int | None:
    """The step of a record, if it has one."""
    step = record.get("step")
    return step if isinstance(step, int) else None


def _is_kept(record: dict[str, Any], step: int) -> bool:
    """Whether a record is kept when a run is resumed at a step. The resumed run writes its own start and end."""
    record_step = _step(record)
    if record_step is None:
        return True  # written by another program
    if not _is_known(record):
        return record_step <= step
    if record["event"] == Ended.__name__ or not step:
        return False
    return record_step < step if record["event"] == Started.__name__ else record_step <= step


def _kept_samples(path: Path, kept: list[dict[str, Any]], step: int) -> bytes:
    """The samples of all validations up to a step: from the log or, where it cannot be read, from the file itself."""
    text = path.read_bytes() if is_regular_file(path) else b""
    blocks = {int(block[1].replace(b",", b"")): block[0] for block in SAMPLES_OF_STEP.finditer(text)}
    for record in kept:
        if record.get("event") == Validated.__name__:
            with suppress(ValueError):
                event = _event(record)
                blocks[event.step] = _samples(event).encode("utf-8", "backslashreplace")  # type: ignore[arg-type]
    return b"".join(blocks[validated] for validated in sorted(blocks) if step and validated <= step)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise RegardError(
            f"{path} could not be written: {error.strerror}. Checkpoints are unchanged; fix this, then continue with "
            "--resume"
        ) from error


def _line(event: Event) -> str:
    """An event as a line of JSON. Lone surrogates, which file names may have, are escaped when the file is written."""
    return json.dumps(_json_value(event_record(event)), ensure_ascii=False, allow_nan=False) + "\n"


def event_record(event: Event) -> dict[str, Any]:
    """An event as a dictionary: its fields, and "event", the name of its class."""
    return {"event": type(event).__name__} | asdict(event)


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _event(record: dict[str, Any]) -> Event:
    """The event of a known record."""
    event: Event = _from_record(EVENT_CLASSES[record["event"]], record)
    return event


def _from_record(kind: type[Any], record: Any) -> Any:
    """A dataclass from a record of its fields. Unknown fields are ignored."""
    if not isinstance(record, dict):
        raise RegardError(f"{kind.__name__} must be an object, not {record!r}")
    hints = get_type_hints(kind)
    required = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    if missing := sorted(required - record.keys()):
        raise RegardError(f"{kind.__name__}: {missing[0]!r} is missing")
    known = {name: hint for name, hint in hints.items() if name in record}
    return kind(**{name: _value(f"{kind.__name__}.{name}", record[name], hint) for name, hint in known.items()})


def _value(name: str, value: Any, hint: Any) -> Any:
    """A field's value, checked against its type."""
    if hint == tuple[Sample, ...]:
        check_type(name, value, list)
        return tuple(_from_record(Sample, item) for item in value)
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
    """A validation's samples as text; empty if there are none."""
    if not event.samples:
        return ""
    score = "" if event.score is None else f", {event.measure} {event.score:.1f}"
    lines = [f"step {event.step:,}: loss {event.loss:.3f}{score}", ""]
    for sample in event.samples:
        lines += [f"  source     {visible(sample.source)}", f"  output     {visible(sample.output)}"]
        if sample.reference:
            lines.append(f"  reference  {visible(sample.reference)}")
        lines.append("")
    return "\n".join([*lines, ""])


class _TensorBoard:
    """Writes events to TensorBoard."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    @classmethod
    def open(cls, folder: Path, step: int) -> "_TensorBoard | None":
        """None if TensorBoard is not installed. Later steps that it already holds are purged."""
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
                text = "\n".join(f"    {visible(line)}" for line in lines)  # indented: shown verbatim
                self.writer.add_text(f"sample {i}", text, event.step)
        for name, number in numbers:
            if number is not None:
                self.writer.add_scalar(name, number, event.step)
        if isinstance(event, Validated | Ended):
            self.writer.flush()
