"""The losses and samples of two training runs that differ in one part, side by side."""

import math
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from regard.formatting import shorten
from regard.plots.score_tables import plain_table
from regard.training.events import SCORING_NOTE, WARNING, Event, Noted, Started, Stepped, Validated, Watcher
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


def before_scoring(show: Watcher, act: Callable[[], None]) -> Watcher:
    """A watcher that passes events on and calls `act` when all steps are done and the final scoring begins."""

    def watch(event: Event) -> None:
        if isinstance(event, Noted) and event.text.startswith(SCORING_NOTE.partition("{")[0]):
            act()
        show(event)

    return watch


def read_warnings(folder: Path) -> list[str]:
    """The warnings in a run's log since the run was last started or resumed."""
    warnings: list[str] = []
    for event in read_metrics(folder, strict=False):
        if isinstance(event, Started):
            warnings.clear()
        elif isinstance(event, Noted) and event.text.startswith(WARNING):
            warnings.append(event.text)
    return warnings


def show_losses(console: Console, own: Losses, reference: Losses, should_agree: bool = True) -> None:
    """Print both runs' losses, and whether they agree if they should: if the initial weights were the same."""
    pairs = {
        (step, kind): (loss, reference[kind, step]) for (kind, step), loss in own.items() if (kind, step) in reference
    }
    pairs = {key: pair for key, pair in sorted(pairs.items()) if not all(map(math.isnan, pair))}  # no validation data
    if not pairs:
        console.print("There are no losses of both runs to compare yet.")
        return
    training = [key for key in pairs if key[1] == "training"]
    stride = max(1, math.ceil(len(training) / MAX_TRAINING_ROWS))
    hidden = {*training} - {*training[::stride], *training[-1:]}
    table = plain_table("step>", "loss", "yours>", "Regard's>")
    for (step, kind), pair in pairs.items():
        if (step, kind) not in hidden:
            table.add_row(f"{step:,}", kind, *(f"{loss:.4f}" for loss in pair))
    console.print(table)
    if not should_agree:
        step, kind = max(pairs)
        ours, theirs = (f"{loss:.4f}" for loss in pairs[step, kind])
        console.print(
            f"\nAfter step {step:,} the {kind} loss is {ours} (Regard's: {theirs}). The two need not agree: "
            "only the data and the seed are the same, not the initial weights.",
            soft_wrap=True,
        )
        return
    difference, (step, kind) = max((_relative_difference(*pair), key) for key, pair in pairs.items())
    verdict = "They agree" if difference <= MAX_RELATIVE_DIFFERENCE else "They do not agree"
    worst = f"{100 * difference:.2g}% ({kind}, step {step:,})"
    console.print(f"\n{verdict}: the largest difference is {worst}.", soft_wrap=True)


def show_samples(console: Console, own: Path, reference: Path) -> None:
    """Print what both models wrote at their last validation; nothing if there are no samples."""
    ours, theirs = (_last_samples(folder) for folder in (own, reference))
    table = plain_table("sample", "yours", "Regard's")
    for source, output in ours.items():
        if source in theirs:
            texts = (" ".join(text.split()) for text in (source, output, theirs[source]))
            table.add_row(*(Text(shorten(text, MAX_SAMPLE_LENGTH)) for text in texts))
    if table.row_count:
        console.print()
        console.print(table)


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
