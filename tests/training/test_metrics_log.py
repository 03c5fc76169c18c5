"""The log of a run: events are read back as written, and read as one run however often it was interrupted."""

import builtins
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.atomic_files import write_file
from regard.formatting import visible
from regard.training.events import Ended, Event, Noted, Sample, Saved, Started, Stepped, Validated
from regard.training.metrics_log import MetricsLog, read_metrics

STARTED = Started(0, 1000, "fr-en", "translation", "runs/fr-en", "CPU, float32", 1234, 100, 2, {"empty": 3})
STEPPED = Stepped(50, 0.5, 3.25, 1e-4, 1.5, 4000, 812.5, 4.9, None)
SAMPLES = (Sample("Un [bold]chat[/]\u2028dort.\x1b[2J", "A cat\nsleeps.", "The cat is sleeping."), Sample("Oui.", ""))
VALIDATED = Validated(100, 2.5, 12.25, "BLEU", True, 0, SAMPLES, 1.5)
SAVED = Saved(100, "runs/fr-en/checkpoints/step-00000100", 5000, 0.1)
NOTED = Noted(120, "an update was skipped")
ENDED = Ended(1000, "steps", 100, 2.5, 12.25, 80_000, 99.5, 1.5e15, 1)
ALL: list[Event] = [STARTED, STEPPED, VALIDATED, SAVED, NOTED, ENDED]


def write(folder: Path, events: list[Event], step: int = 0) -> None:
    with MetricsLog(folder, step) as log:
        for event in events:
            log(event)


def parse_strictly(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_each_event_is_one_line_and_is_read_back(tmp_path: Path) -> None:
    write(tmp_path, ALL)
    lines = (tmp_path / "metrics.jsonl").read_bytes().decode().removesuffix("\n").split("\n")
    assert [parse_strictly(line)["event"] for line in lines] == [type(event).__name__ for event in ALL]
    assert parse_strictly(lines[1])["loss"] == 3.25
    assert read_metrics(tmp_path) == ALL
    assert read_metrics(tmp_path / "nowhere") == []


def test_an_event_is_flushed_before_the_next(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, 0) as log:
        for i, event in enumerate(ALL):
            log(event)
            assert read_metrics(tmp_path) == ALL[: i + 1]


@given(st.floats(), st.floats() | st.none(), st.text())
def test_any_number_and_text_round_trips(
    tmp_path_factory: pytest.TempPathFactory, loss: float, score: float | None, text: str
) -> None:
    folder = tmp_path_factory.mktemp("log")
    event = replace(VALIDATED, loss=loss, score=score, samples=(Sample(text, text),))
    write(folder, [event])
    parse_strictly((folder / "metrics.jsonl").read_text())
    (found,) = read_metrics(folder)
    assert isinstance(found, Validated)
    assert repr(found) == repr(event)  # NaN is not equal to itself


def test_a_file_name_that_is_not_unicode_round_trips(tmp_path: Path) -> None:
    event = replace(STARTED, out="runs/caf\udce9")
    write(tmp_path, [event])
    assert read_metrics(tmp_path) == [event]


def test_a_resumed_run_reads_as_one_run(tmp_path: Path) -> None:
    first: list[Event] = [STARTED, *(replace(STEPPED, step=step) for step in (50, 100))]
    first += [VALIDATED, SAVED, NOTED, replace(STEPPED, step=150), replace(VALIDATED, step=200, samples=SAMPLES[1:])]
    write(tmp_path, [*first, replace(ENDED, step=230, reason="interrupted")])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"event": "Stepped", "st')  # killed while writing
    again: list[Event] = [replace(STARTED, step=100), replace(STEPPED, step=150, loss=2.0), ENDED]
    write(tmp_path, again, step=100)
    assert read_metrics(tmp_path) == [*first[:5], *again]
    assert (tmp_path / "samples.txt").read_text().count("step ") == 1
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_no_step_is_logged_twice(tmp_path: Path) -> None:
    write(tmp_path, [STARTED, STEPPED, VALIDATED, SAVED])
    for _ in range(2):  # resumed twice from one checkpoint, where it is validated and saved again
        write(tmp_path, [replace(STARTED, step=100), VALIDATED, SAVED, replace(NOTED, step=100)], step=100)
    found = read_metrics(tmp_path)
    assert [type(event) for event in found].count(Validated) == 1
    assert [type(event) for event in found].count(Saved) == 1
    assert [event.step for event in found if isinstance(event, Started)] == [0, 100]


def test_the_end_is_logged_once(tmp_path: Path) -> None:
    write(tmp_path, [STARTED, STEPPED, replace(ENDED, step=50, reason="interrupted")])  # it saved and ended normally
    write(tmp_path, [replace(STARTED, step=50), ENDED], step=50)
    assert read_metrics(tmp_path) == [STARTED, STEPPED, replace(STARTED, step=50), ENDED]


def test_a_run_from_step_0_starts_a_new_log(tmp_path: Path) -> None:
    write(tmp_path, ALL)
    write(tmp_path, [STARTED])
    assert read_metrics(tmp_path) == [STARTED]
    assert (tmp_path / "samples.txt").read_text() == ""


def test_samples_are_readable_and_escaped(tmp_path: Path) -> None:
    write(tmp_path, [VALIDATED])
    assert (tmp_path / "samples.txt").read_text() == (
        "step 100: loss 2.500, BLEU 12.2\n\n"
        "  source     Un [bold]chat[/]\\u2028dort.␛[2J\n"
        "  output     A cat␊sleeps.\n"
        "  reference  The cat is sleeping.\n\n"
        "  source     Oui.\n"
        "  output     \n\n"
    )


@given(st.text())
def test_visible_text_cannot_control_a_terminal(text: str) -> None:
    shown = visible(text)
    assert all(letter.isprintable() or letter in "\u200c\u200d" for letter in shown)
    assert visible(shown) == shown


def test_visible_keeps_ordinary_text() -> None:
    assert visible("Où ? 猫が 寝る 👩‍👩‍👧 می‌خواهم") == "Où ? 猫が 寝る 👩‍👩‍👧 می‌خواهم"
    assert visible("« Oui\u202f! »\xa0!") == "« Oui ! » !"
    assert visible("\x9b31m\x7f") == "\\u009b31m␡"


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_truncated_last_line_is_ignored(tmp_path: Path, cut: int) -> None:
    write(tmp_path, [STARTED, STEPPED])
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_metrics(tmp_path) == ([STARTED, STEPPED] if cut == 1 else [STARTED])


BAD = {
    "no JSON": ("{", "Expecting property name"),
    "missing": ('{"event": "Noted", "step": 1}', "Noted: 'text' is missing"),
    "wrong type": ('{"event": "Noted", "step": "1", "text": ""}', "Noted.step='1' has type str"),
    "a list": ("[1]", "must be a JSON object"),
    "deep": ("[" * 100_000, "recursion"),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path, kind: str) -> None:
    line, message = BAD[kind]
    write(tmp_path, [STARTED])
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    with pytest.raises(ValueError, match=r"metrics.jsonl:2: ") as caught:
        read_metrics(tmp_path)
    assert message in str(caught.value)


OTHERS = {
    "a field": json.dumps({"event": "Noted", "step": 60, "text": "a", "colour": {"deep": [1, None]}}),
    "an event": '{"event": "Cooled", "step": 60, "degrees": 21.50}',
    "an event without a step": '{"event":"Cooled"}',
    "an event with a step of its own kind": '{"event": "Cooled", "step": [60]}',
    "a known event with such a step": '{"event": "Noted", "step": [60], "text": "a"}',
    "no event": '{"by": "another program"}',
    "fields that are missing": '{"event": "Validated", "step": 60, "loss": 2.0}',
    "a value that is not known": '{"event": "Validated", "step": 60, "measure": "COMET"}',
}


@pytest.mark.parametrize("kind", OTHERS)
def test_fields_of_other_versions_are_kept(tmp_path: Path, kind: str) -> None:
    """Unknown events and fields are ignored by readers and kept byte for byte when a run is resumed."""
    write(tmp_path, [STARTED, STEPPED])
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + OTHERS[kind] + "\n")
    before = path.read_bytes()
    assert [event for event in read_metrics(tmp_path, strict=False) if event != NOTED][:2] == [STARTED, STEPPED]
    for _ in range(2):
        write(tmp_path, [], step=100)
        assert path.read_bytes() == before


def test_unknown_events_and_fields_are_accepted(tmp_path: Path) -> None:
    write(tmp_path, ALL)
    path = tmp_path / "metrics.jsonl"
    more = [json.dumps(json.loads(line) | {"more": 1}) for line in path.read_bytes().splitlines()]
    path.write_text("\n".join([*more, OTHERS["an event"], OTHERS["no event"], ""]))
    assert read_metrics(tmp_path) == ALL


def test_a_sample_may_have_more_fields_or_fewer(tmp_path: Path) -> None:
    write(tmp_path, [VALIDATED])
    path = tmp_path / "metrics.jsonl"
    line = json.loads(path.read_text())
    line["samples"] = [{"source": "a", "output": "b", "score": 1.0}]  # no reference, which has a default
    path.write_text(json.dumps(line) + "\n")
    assert read_metrics(tmp_path) == [replace(VALIDATED, samples=(Sample("a", "b"),))]


def test_later_steps_are_dropped_whatever_version_wrote_them(tmp_path: Path) -> None:
    write(tmp_path, [STARTED, STEPPED])
    path = tmp_path / "metrics.jsonl"
    before = path.read_bytes()
    later = [{"event": "Cooled", "step": 150}, {"event": "Noted", "step": 150, "text": "a", "more": 1}]
    path.write_bytes(before + "".join(json.dumps(each) + "\n" for each in later).encode())
    write(tmp_path, [], step=100)
    assert path.read_bytes() == before


def test_damaged_lines_are_moved_not_deleted(tmp_path: Path) -> None:
    write(tmp_path, [STARTED, STEPPED])
    path = tmp_path / "metrics.jsonl"
    before = path.read_bytes()
    for damage in (b"\0\0\0{", b"[1]"):
        path.write_bytes(damage + b"\n" + before)
        write(tmp_path, [], step=100)
        assert path.read_bytes() == before
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == b"\0\0\0{\n[1]\n"


def test_samples_of_unreadable_validations_are_kept(tmp_path: Path) -> None:
    write(tmp_path, [VALIDATED, replace(VALIDATED, step=1200)])
    path, samples = tmp_path / "metrics.jsonl", tmp_path / "samples.txt"
    before = samples.read_bytes()
    first, second = (json.loads(line) for line in path.read_bytes().splitlines())
    del first["seconds"]
    path.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
    write(tmp_path, [], step=1200)
    assert samples.read_bytes() == before
    write(tmp_path, [], step=1000)
    assert samples.read_bytes() == before[: len(before) // 2 - 1]


@pytest.mark.parametrize(
    ("event", "change"),
    [
        (STARTED, {"problems": {"a": "b"}}),
        (STARTED, {"task": "sing"}),
        (VALIDATED, {"samples": [{"source": "a"}]}),
        (VALIDATED, {"samples": "ab"}),
        (VALIDATED, {"score": "high"}),
        (ENDED, {"reason": "tired"}),
        (NOTED, {"step": "NaN"}),
    ],
)
def test_invalid_values_are_rejected(tmp_path: Path, event: Event, change: dict[str, Any]) -> None:
    write(tmp_path, [event])
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    with pytest.raises(ValueError, match=rf"metrics.jsonl:1: .*{next(iter(change))}|Sample"):
        read_metrics(tmp_path)


def test_files_are_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_file(path, "before")

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("regard.atomic_files.flush_to_disk", fail)
    with pytest.raises(OSError, match="full"):
        write_file(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_tensorboard_shows_one_run(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(tmp_path, [replace(STEPPED, step=step, loss=float(step)) for step in (50, 100, 150)])
    write(tmp_path, [replace(STEPPED, step=150, loss=math.nan), VALIDATED, replace(VALIDATED, step=200)], step=100)
    board = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    losses = [(each.step, each.value) for each in board.Scalars("train/loss")]
    assert losses[:2] == [(50, 50.0), (100, 100.0)]
    assert [step for step, _ in losses] == [50, 100, 150]
    assert math.isnan(losses[2][1])
    assert [each.value for each in board.Scalars("validation/BLEU")] == [12.25, 12.25]
    assert "A cat␊sleeps." in board.Tensors("sample 0/text_summary")[0].tensor_proto.string_val[0].decode()


def test_without_tensorboard_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if "tensorboard" in name:
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    write(tmp_path, ALL)
    assert read_metrics(tmp_path) == ALL
    assert not (tmp_path / "tensorboard").exists()
