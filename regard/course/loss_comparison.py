"""The losses and samples of two training runs that differ in one part, side by side."""

import math
from pathlib import Path

from regard.formatting import markdown_table, shorten
from regard.training.events import Event, Noted, Stepped, Validated, Watcher
from regard.training.metrics_log import read_metrics

MAX_RELATIVE_DIFFERENCE = 0.01
"""Maximum relative difference between losses that agree. Rounding differences grow from step to step."""
MAX_TRAINING_ROWS = 12
"""Maximum number of training losses in the table. Validation losses are always shown."""

MAX_SAMPLE_LENGTH = 60
"""Maximum number of characters of a sample in the table."""

Losses = dict[tuple[str, int], float]
"""Losses by their kind ("training" or "validation") and step."""


def read_losses(folder: Path) -> Losses:
    """The losses in a run's log."""
    losses = (_loss_of(event) for event in read_metrics(folder, strict=False))
    return dict(loss for loss in losses if loss is not None)


def with_reference_losses(show: Watcher, reference: Losses) -> Watcher:
    """A watcher that passes events on and, at each validation, shows the latest losses of both runs."""
    latest: dict[str, int] = {}
    own: Losses = {}

    def watch(event: Event) -> None:
        show(event)
        loss = _loss_of(event)
        if loss is None:
            return
        (kind, step), own[loss[0]] = loss
        latest[kind] = step
        pairs = [
            f"{kind} loss {own[kind, step]:.4f} (Regard's {reference[kind, step]:.4f})"
            for kind, step in latest.items()
            if (kind, step) in reference
        ]
        if pairs and isinstance(event, Validated):
            show(Noted(event.step, f"side by side: {'; '.join(pairs)}"))

    return watch


def compare_losses(own: Losses, reference: Losses, should_agree: bool = True) -> str:
    """A table of both runs' losses, and whether they agree if they should: if the initial weights were the same."""
    pairs = {
        (step, kind): (loss, reference[kind, step]) for (kind, step), loss in own.items() if (kind, step) in reference
    }
    pairs = {key: pair for key, pair in sorted(pairs.items()) if not all(map(math.isnan, pair))}  # no validation data
    if not pairs:
        return "There are no losses of both runs to compare yet."
    training = [key for key in pairs if key[1] == "training"]
    stride = max(1, math.ceil(len(training) / MAX_TRAINING_ROWS))
    hidden = {*training} - {*training[::stride], *training[-1:]}
    rows = [
        [f"{step:,}", kind, *(f"{loss:.4f}" for loss in pair)]
        for (step, kind), pair in pairs.items()
        if (step, kind) not in hidden
    ]
    table = markdown_table(["step", "loss", "yours", "Regard's"], rows, [True, False, True, True])
    if not should_agree:
        step, kind = max(pairs)
        ours, theirs = (f"{loss:.4f}" for loss in pairs[step, kind])
        return (
            f"{table}\n\nAfter step {step:,} the {kind} loss is {ours} (Regard's: {theirs}). The two need not agree: "
            "only the data and the seed are the same, not the initial weights."
        )
    difference, (step, kind) = max((_relative_difference(*pair), key) for key, pair in pairs.items())
    verdict = "They agree" if difference <= MAX_RELATIVE_DIFFERENCE else "They do not agree"
    return f"{table}\n\n{verdict}: the largest difference is {100 * difference:.2g} % ({kind}, step {step:,})."


def compare_samples(own: Path, reference: Path) -> str:
    """A table of what both models wrote at their last validation; empty if there are no samples."""
    ours, theirs = (_last_samples(folder) for folder in (own, reference))
    rows = [
        [shorten(" ".join(text.split()), MAX_SAMPLE_LENGTH) for text in (source, output, theirs[source])]
        for source, output in ours.items()
        if source in theirs
    ]
    return markdown_table(["sample", "yours", "Regard's"], rows) if rows else ""


def _last_samples(folder: Path) -> dict[str, str]:
    """The output for each sample at the last validation."""
    validated = [event for event in read_metrics(folder, strict=False) if isinstance(event, Validated)]
    return {sample.source: sample.output for sample in validated[-1].samples} if validated else {}


def _loss_of(event: Event) -> tuple[tuple[str, int], float] | None:
    if isinstance(event, Stepped | Validated):
        return ("training" if isinstance(event, Stepped) else "validation", event.step), event.loss
    return None


def _relative_difference(one: float, other: float) -> float:
    """The difference relative to `other`; infinity if either is NaN."""
    difference = abs(one - other) / max(abs(other), 1e-9)
    return math.inf if math.isnan(difference) else difference
