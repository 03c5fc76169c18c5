"""Folders of training runs, as `regard train` writes them, without training: made-up measurements, random snapshots."""

from collections.abc import Sequence
from pathlib import Path

import torch

from regard.training.checkpoint_files import write_snapshot
from regard.training.events import Ended, Event, Sample, Started, Stepped, Validated
from regard.training.metrics_log import MetricsLog
from tests.support.text_models import random_model

SOURCE, REFERENCE = "Le chat dort.", "The cat sleeps."


def started(steps: int = 100) -> Started:
    """The first event of a run."""
    return Started(0, steps, "petit", "translation", "out", "CPU", 1_234_567, 10, 0, {})


def stepped(step: int, loss: float | None = None) -> Stepped:
    """Measurements of a step. The loss falls from 6 to 1 within 100 steps."""
    loss = 6 - step / 20 if loss is None else loss
    return Stepped(step, step / 50, loss, 1e-4 * step, 1.0, 100 * step, 1000.0 + step, step / 2, None)


def validated(step: int, output: str = "A dog.") -> Validated:
    """A validation. The score is the number of the step."""
    return Validated(step, 5 - step / 25, float(step), "BLEU", True, 0, (Sample(SOURCE, output, REFERENCE),), 0.1)


def ended(step: int = 100) -> Ended:
    """The end of a run that took all of its steps."""
    return Ended(step, "steps", step, 1.0, 100.0, 100, 50.0, 1e9, 0)


def events(last: int = 100) -> list[Event]:
    """The events of a run up to a step: a measurement every 10 steps, a validation every 50."""
    found: list[Event] = [started()]
    for step in range(10, last + 1, 10):
        found += [stepped(step), *([validated(step, f"The {step} sleeps.")] if step % 50 == 0 else [])]
    return [*found, *([ended()] if last == 100 else [])]


def write_run(folder: Path, log: Sequence[Event], snapshots: Sequence[int] = (), seed: int = 0) -> None:
    """Write a run with this log, and random models as its snapshots."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text('name = "petit"\n')
    with MetricsLog(folder, 0) as write:
        for event in log:
            write(event)
    (folder / "checkpoints").mkdir()
    for step in snapshots:
        model = random_model()
        model.network.float()
        torch.manual_seed(seed + step)
        with torch.no_grad():
            for parameter in model.network.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        write_snapshot(folder, step, model)
