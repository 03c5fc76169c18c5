"""A long run on a CPU says after its first steps how long it will take."""

from pathlib import Path

import pytest

import regard.training.duration_estimate as module
from regard.training.duration_estimate import DurationEstimate
from regard.training.events import DURATION_NOTE, TRANSIENT_NOTES, Event, Noted
from regard.training.train import train_recipe
from tests.support.recipes import small_recipe


def test_a_long_run_is_announced_once_without_the_slow_first_step() -> None:
    estimate = DurationEstimate(steps=3_000)
    notes = [estimate.note(step, 60 + 4.0 * step) for step in range(1, 10)]
    announced = [(step, note) for step, note in enumerate(notes, 1) if note]
    ((step, note),) = announced
    assert step == 4  # 12 s after the first step
    assert "4.0s per step on the CPU, the remaining 2,996 steps will take 3h19m" in note
    assert "train.steps" in note
    assert note.startswith(TRANSIENT_NOTES)  # it is of no use in the report of the finished run


def test_a_resumed_run_counts_only_its_remaining_steps() -> None:
    estimate = DurationEstimate(steps=1_000)
    assert estimate.note(501, 5_000.0) is None
    note = estimate.note(503, 5_020.0)
    assert note is not None
    assert "10s per step on the CPU, the remaining 497 steps will take 1h22m" in note


def test_many_fast_steps_are_given_in_milliseconds() -> None:
    estimate = DurationEstimate(steps=60_000)
    (note,) = [note for step in range(1, 1_000) if (note := estimate.note(step, 0.04 * step))]
    assert "at 40 ms per step on the CPU" in note


def test_a_short_run_is_not_announced() -> None:
    estimate = DurationEstimate(steps=600)
    assert [estimate.note(step, 0.5 * step) for step in range(1, 601)] == [None] * 600


def test_the_note_is_among_the_events_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(module, "LONG_RUN_SECONDS", 0.0)
    events: list[Event] = []
    train_recipe(small_recipe("language", steps=4, validate_every=4), tmp_path / "run", watchers=[events.append])
    notes = [event for event in events if isinstance(event, Noted) and event.text.startswith(DURATION_NOTE)]
    assert [note.step for note in notes] == [2]
    assert "the remaining 2 steps" in notes[0].text
