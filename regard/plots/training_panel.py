"""The panel that shows a run in a terminal or a notebook."""

import math
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.formatting import duration, visible
from regard.plots.heat_map import shorten_to_width
from regard.plots.run_lines import NO_VALIDATION, SET_VALIDATION, plural, short_duration
from regard.plots.run_progress import RunProgress, is_unvalidated
from regard.training.events import Sample, Started, Validated

SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
MAX_SPARKLINE_COLUMNS = 48
MAX_SAMPLES = 3
MAX_PANEL_COLUMNS = 120
"""Maximum width of the panel: longer lines are hard to read."""
NARROW_COLUMNS = 60
"""Terminals below this width show fewer figures next to the progress bar."""
LABEL_COLUMNS = 12


def training_panel(state: RunProgress, width: int, height: int) -> RenderableType:
    """The current state of a run, for a terminal of this size."""
    started = state.started
    if started is None:
        return Text("preparing …", style="dim")
    width = min(width, MAX_PANEL_COLUMNS)
    inner = width - 4
    parts = [*_heading(started, inner), Text(""), _progress_bar(state, inner), Text(""), *_figures(state, inner)]
    sample_lines = height - len(parts) - 3  # the frame takes two lines, and one is for what scrolls above
    samples = () if state.validated is None else state.validated.samples
    for sample in samples[: max(0, min(MAX_SAMPLES, sample_lines // 4))]:
        parts += [Text(""), *_sample(sample, inner)]
    title = Text(shorten_to_width(visible(started.name), inner - 4), style="bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=width, padding=(0, 1))


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve of values in at most `width` columns, each the mean of its part; × where no value is finite.

    >>> sparkline([8.0, 4.0, 2.0, 1.0, math.nan, 1.0], 6)
    '█▄▂▁×▁'
    """
    columns = min(width, len(values))
    ends = [i * len(values) // columns for i in range(columns + 1)] if columns > 0 else [0]
    parts = [[value for value in values[start:end] if math.isfinite(value)] for start, end in pairwise(ends)]
    means = [sum(part) / len(part) if part else math.nan for part in parts]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(SPARKLINE_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKLINE_BLOCKS[round((mean - low) * scale)] if math.isfinite(mean) else "×" for mean in means)


def _heading(started: Started, width: int) -> list[RenderableType]:
    task = f"{started.task} · {started.parameters:,} parameters · {plural(started.examples, 'example')}"
    device = f"{visible(started.place)} → {visible(started.out)}"
    if started.step:
        device += f" · resumed after step {started.step:,}"
    return [Text(shorten_to_width(line, width), style="dim") for line in (task, device)]


def _progress_bar(state: RunProgress, width: int) -> RenderableType:
    """The progress as a bar, in figures and in time."""
    done = state.step / state.steps if state.steps else 0.0
    text = "  ".join(_progress_parts(state, done, is_wide=width + 4 >= NARROW_COLUMNS))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=max(4, width - len(text) - 1))
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=done, style="bright_black", complete_style="cyan", finished_style="green")
    grid.add_row(bar, Text(text))
    return grid


def _progress_parts(state: RunProgress, done: float, is_wide: bool) -> list[str]:
    parts = [f"{state.step:,}/{state.steps:,}"] if is_wide else []
    parts.append(f"{done:.0%}")
    if is_wide and state.seconds is not None:
        parts.append(duration(state.seconds))
    if state.ended is not None:
        parts.append("done" if state.ended.reason == "steps" else state.ended.reason)
    elif state.seconds_left is not None:
        parts.append(f"ETA {duration(state.seconds_left)}")
    return parts


def _figures(state: RunProgress, width: int) -> list[RenderableType]:
    """Loss, speed and the last validation, side by side where there is room."""
    rows = _step_rows(state, width)
    if state.validated is not None:
        rows += _wrapped("validation", _validation_parts(state.validated, state.best), width)
    return [Text.assemble((f"{label:<{LABEL_COLUMNS}}", "dim"), text) for label, text in rows]


def _step_rows(state: RunProgress, width: int) -> list[tuple[str, Text]]:
    """Loss and speed; before they are known, that the run is alive."""
    if not state.stepped:
        if state.last is None:
            return [("loss", Text("waiting for the first step …", style="dim"))]
        step, pace = f"step {state.last.step:,} of {state.steps:,}", state.seconds_per_step
        return [("speed", Text(step if pace is None else f"{step}, {short_duration(pace)} per step"))]
    last = state.stepped[-1]
    curve = sparkline(list(state.losses), min(MAX_SPARKLINE_COLUMNS, width - LABEL_COLUMNS - 8))
    loss = Text.assemble((f"{last.loss:<7.3f} ", "bold"), (curve, "cyan"))
    speed = [f"lr {last.lr:.1e}", f"{last.tokens_per_second:,.0f} {state.unit}/s"]
    if last.utilisation is not None:
        speed.append(f"{last.utilisation:.0%} of the GPU")
    speed.append(f"epoch {last.epoch:.1f}")
    return [("loss", loss), *_wrapped("speed", [Text(part) for part in speed], width)]


def _wrapped(label: str, parts: Sequence[Text], width: int) -> list[tuple[str, Text]]:
    """Parts side by side in as many lines as needed; the first line has the label."""
    rows: list[Text] = []
    for part in parts:
        if rows and rows[-1].cell_len + part.cell_len + 2 <= width - LABEL_COLUMNS:
            rows[-1] = Text.assemble(rows[-1], "  ", part)
        else:
            rows.append(part)
    return [(label if i == 0 else "", row) for i, row in enumerate(rows)]


def _validation_parts(event: Validated, best: Validated | None) -> list[Text]:
    if is_unvalidated(event):
        return [Text(NO_VALIDATION), Text(f"({SET_VALIDATION})", style="dim")]
    parts = [Text(f"loss {event.loss:.3f}")]
    if event.score is not None:
        parts.append(Text(f"{event.measure} {event.score:.1f}", style="bold"))
    if event.best:
        return [*parts, Text("★ best so far", style="green"), Text(f"at step {event.step:,}", style="dim")]
    parts.append(Text(f"{event.waited:,} since the best", style="yellow"))
    if best is not None:
        score = "" if best.score is None else f", {best.score:.1f}"
        parts.append(Text(f"step {best.step:,}: {best.loss:.3f}{score}", style="dim"))
    return parts


def _sample(sample: Sample, width: int) -> list[Text]:
    """Source, output and reference, each on its own line."""
    lines = [Text(shorten_to_width(visible(sample.source), width))]
    output = shorten_to_width(visible(sample.output), width - 2)
    lines.append(Text.assemble(("→ ", "cyan"), (output or "(nothing)", "bold" if output else "dim")))
    reference = shorten_to_width(visible(sample.reference), width - 2)
    if reference:
        lines.append(Text(f"  {reference}", style="dim"))
    return lines
