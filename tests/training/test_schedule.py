"""The learning rate: the paper's formula and each schedule, compared with independently computed values."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training.recipe import TrainSection
from regard.training.schedule import learning_rate

SCHEDULES = ("inverse-sqrt", "cosine", "linear", "constant")


@pytest.mark.parametrize("step", [1, 2, 100, 3_999, 4_000, 4_001, 16_000, 100_000])
@pytest.mark.parametrize("d_model", [512, 1_024])
def test_without_a_rate_it_is_the_papers_schedule(step: int, d_model: int) -> None:
    """lrate = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), section 5.3."""
    paper = 1 / math.sqrt(d_model) * min(1 / math.sqrt(step), step / 4_000**1.5)
    assert learning_rate(step, TrainSection(), d_model) == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("inverse-sqrt", {1: 0.05, 20: 1.0, 80: 0.5, 320: 0.25, 2_000: 0.1}),
        ("constant", {1: 0.05, 10: 0.5, 20: 1.0, 21: 1.0, 5_000: 1.0}),
        ("linear", {1: 0.05, 20: 1.0, 65: 0.55, 110: 0.1, 200: 0.1}),
        ("cosine", {1: 0.05, 20: 1.0, 50: 0.775, 65: 0.55, 80: 0.325, 110: 0.1, 200: 0.1}),
    ],
)
@pytest.mark.parametrize("lr", [1.0, 3e-4])
def test_each_schedule_passes_through_known_points(schedule: Any, values: dict[int, float], lr: float) -> None:
    """20 steps up; decays have a tenth left at step 110: of 90 steps, a third leaves (1 + cos 60°) / 2."""
    train = TrainSection(lr=lr, schedule=schedule, warmup=20, steps=110, lr_end=0.1)
    assert {step: learning_rate(step, train, 512) for step in values} == pytest.approx(
        {step: lr * share for step, share in values.items()}, rel=1e-9
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_warmup_the_first_step_has_the_highest_rate(schedule: Any) -> None:
    train = TrainSection(lr=0.01, schedule=schedule, warmup=0, steps=1_000)
    assert learning_rate(1, train, 512) == pytest.approx(0.01, rel=2e-3)
    assert learning_rate(1, TrainSection(schedule=schedule, warmup=0), 256) == pytest.approx(1 / 16, rel=2e-3)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_rate_only_rises_in_a_run_shorter_than_its_warmup(schedule: Any) -> None:
    train = TrainSection(lr=0.01, schedule=schedule, warmup=100, steps=50)
    assert [learning_rate(step, train, 512) for step in (1, 25, 50)] == pytest.approx([1e-4, 2.5e-3, 5e-3])


@given(
    schedule=st.sampled_from(SCHEDULES),
    warmup=st.integers(0, 500),
    steps=st.integers(1, 2_000),
    step=st.integers(1, 3_000),
    lr=st.none() | st.floats(1e-6, 10),
    lr_end=st.just(0.0) | st.floats(1e-3, 1),
    d_model=st.integers(1, 2_048),
)
def test_the_rate_is_a_positive_continuous_function_of_the_step(
    schedule: Any, warmup: int, steps: int, step: int, lr: float | None, lr_end: float, d_model: int
) -> None:
    train = TrainSection(schedule=schedule, warmup=warmup, steps=steps, lr=lr, lr_end=lr_end)
    highest = (d_model * max(warmup, 1)) ** -0.5 if lr is None else lr
    found = learning_rate(step, train, d_model)
    assert 0 <= found <= highest * (1 + 1e-12)
    assert found > 0 or (step >= steps and lr_end == 0)
    following = learning_rate(step + 1, train, d_model)
    if step < warmup:
        assert following > found
        assert following - found == pytest.approx(highest / warmup)
    else:
        assert following <= found * (1 + 1e-12)
    if warmup and step == warmup:
        assert found == pytest.approx(highest)
    learning_rate(1, train, d_model)
    assert learning_rate(step, train, d_model) == found  # the schedule has no state


@given(schedule=st.sampled_from(SCHEDULES), warmup=st.integers(1, 500), more=st.integers(1, 5_000))
def test_the_rate_does_not_jump_after_the_warmup(schedule: Any, warmup: int, more: int) -> None:
    train = TrainSection(schedule=schedule, warmup=warmup, steps=warmup + more, lr=1.0)
    top, following = (learning_rate(step, train, 512) for step in (warmup, warmup + 1))
    assert top == 1.0
    slope = {"inverse-sqrt": 1 / (2 * warmup), "constant": 0.0, "linear": 1 / more, "cosine": 5 / more**2}[schedule]
    assert 0 <= top - following <= slope + 1e-12


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_last_step_has_the_final_share_of_the_rate(schedule: Any) -> None:
    train = TrainSection(schedule=schedule, warmup=7, steps=93, lr=0.5, lr_end=0.2)
    assert learning_rate(93, train, 512) == pytest.approx(0.1)
    assert learning_rate(92, train, 512) > 0.1
