"""The losses of two runs that differ in one part, side by side."""

import math
from pathlib import Path

from regard.formatting import markdown_table
from regard.training.events import Event, Noted, Stepped, Validated, Watcher
from regard.training.metrics_log import read_metrics

AGREE = 0.01
"""of a loss: by how much two runs may lie apart that differ in nothing but rounding, which grows from step to step"""
LINES = 12
"""of the table of losses, at most, beside those of validations"""

Losses = dict[tuple[str, int], float]
"""by what was tried, "training" or "validation", and the step"""


def losses_of(folder: Path) -> Losses:
    """What a run's log tells."""
    told = (_loss(event) for event in read_metrics(folder, strict=False))
    return dict(each for each in told if each is not None)


def beside(show: Watcher, reference: Losses) -> Watcher:
    """A watcher that shows what it is told and, at each validation, the latest losses of both runs."""
    latest: dict[str, int] = {}
    own: Losses = {}

    def watch(event: Event) -> None:
        show(event)
        if (told := _loss(event)) is None:
            return
        (what, step), own[told[0]] = told
        latest[what] = step
        said = [
            f"{what} loss {own[what, step]:.4f}, Regard's {reference[what, step]:.4f}"
            for what, step in latest.items()
            if (what, step) in reference
        ]
        if said and isinstance(event, Validated):
            show(Noted(event.step, f"side by side: {'; '.join(said)}"))

    return watch


def compared(own: Losses, reference: Losses) -> str:
    """Both runs' losses in a table, and whether they agree."""
    both = {
        (step, what): (loss, reference[what, step]) for (what, step), loss in own.items() if (what, step) in reference
    }
    both = {key: pair for key, pair in sorted(both.items()) if not all(map(math.isnan, pair))}  # nothing to validate on
    if not both:
        return "There are no losses of both runs to compare yet."
    training = [key for key in both if key[1] == "training"]
    hidden = {*training} - {*training[:: max(1, math.ceil(len(training) / LINES))], *training[-1:]}
    rows = [
        [f"{step:,}", what, *(f"{loss:.4f}" for loss in pair)]
        for (step, what), pair in both.items()
        if (step, what) not in hidden
    ]
    table = markdown_table(["step", "loss in", "yours", "Regard's"], rows, [True, False, True, True])
    most, (step, what) = max((_apart(*pair), key) for key, pair in both.items())
    verdict = "They agree" if most <= AGREE else "They do not agree"
    return f"{table}\n\n{verdict}: at most {100 * most:.2g} % apart ({what}, step {step:,})."


def _loss(event: Event) -> tuple[tuple[str, int], float] | None:
    if isinstance(event, Stepped | Validated):
        return ("training" if isinstance(event, Stepped) else "validation", event.step), event.loss
    return None


def _apart(one: float, other: float) -> float:
    """Of the other; infinitely far where either is no number."""
    apart = abs(one - other) / max(abs(other), 1e-9)
    return math.inf if math.isnan(apart) else apart
