"""A run as it goes: a calm panel in a terminal, plain lines that can be searched elsewhere."""

import math
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.train.events import Ended, Event, Noted, Sample, Saved, Started, Stepped, Validated
from regard.train.log import visible
from regard.view.console import console as usual_console
from regard.view.terminal import short

APART = 5.0
"""seconds between two lines about steps, where no terminal is"""
REDRAWN = 0.1
"""seconds between two pictures of the panel"""
REMEMBERED = 400
"""losses for the sparkline: twice the columns of a wide terminal"""
RECENT = 20
"""events by which the speed is judged"""
BLOCKS = "▁▂▃▄▅▆▇█"
SPARKLINE = 48
"""columns at most"""
SAMPLES = 3
WIDEST = 120
"""columns of the panel: longer lines are no joy to read"""
NARROW = 60
"""columns below which the bar has few figures beside it"""
LABEL = 12
"""columns of what stands before the figures"""
GO_ON = "To go on:"


class Display:
    """A watcher that shows a run, within `with`. `recipe` is what the user called it, to say how to go on."""

    def __init__(
        self, console: Console | None = None, recipe: str = "RECIPE", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = usual_console() if console is None else console
        self.recipe, self.clock = recipe, clock
        self.so_far = SoFar()
        self.live: Live | None = None
        self.printed = -math.inf
        self.waiting: Stepped | None = None

    def __enter__(self) -> "Display":
        if _draws(self.console):
            self.live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self.so_far.take(event)
        if self.live is None:
            self._print_plainly(event)
            return
        if isinstance(event, Noted | Saved):
            self.console.print(Text(_told(event), style="yellow" if isinstance(event, Noted) else "dim"))
        self._draw(always=not isinstance(event, Stepped))
        if isinstance(event, Ended):
            self.__exit__()  # what is said at the end stands below the panel
            for each in farewell(event, self.so_far, self.recipe):
                self.console.print(Text(each), soft_wrap=each.startswith(GO_ON))  # a command is copied whole

    def _draw(self, always: bool = False) -> None:
        if self.live is None or (not always and self.clock() - self.printed < REDRAWN):
            return
        self.printed = self.clock()
        self.live.update(panel(self.so_far, self.console.width, self.console.height), refresh=True)

    def _print_plainly(self, event: Event) -> None:
        """At once, but for steps that follow the last line too closely: the last of those is told at the end."""
        if isinstance(event, Stepped):
            if self.clock() - self.printed < APART:
                self.waiting = event
                return
            self.printed, self.waiting = self.clock(), None
        if isinstance(event, Ended) and self.waiting is not None:
            self._print(line(self.waiting, self.so_far))
        self._print(line(event, self.so_far))
        if isinstance(event, Ended):
            for each in farewell(event, self.so_far, self.recipe):
                self._print(each)

    def _print(self, text: str) -> None:
        code = self.console.encoding or "utf-8"
        text = text.encode(code, "backslashreplace").decode(code)  # a run does not end for want of a letter
        self.console.print(Text(text), soft_wrap=True)


def _draws(console: Console) -> bool:
    """Whether a panel can be drawn, and drawn again in its place."""
    return console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")


@dataclass
class SoFar:
    """What is known of a run."""

    started: Started | None = None
    stepped: deque[Stepped] = field(default_factory=lambda: deque(maxlen=RECENT))
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    validated: Validated | None = None
    best: Validated | None = None
    ended: Ended | None = None
    aside: float = 0.0
    """seconds of this process that went into validating and saving"""

    def take(self, event: Event) -> None:
        """Learn from an event."""
        match event:
            case Started():
                self.started = event
            case Stepped():
                self.stepped.append(event)
                self.losses.append(event.loss)
            case Validated():
                self.validated = event
                self.best = event if event.best else self.best
                self.aside += event.seconds
            case Saved():
                self.aside += event.seconds
            case Ended():
                self.ended = event

    @property
    def step(self) -> int:
        """The last step that is known of."""
        told = [self.started, self.validated, self.ended, *self.stepped]
        return max((event.step for event in told if event is not None), default=0)

    @property
    def steps(self) -> int:
        """How many there are to be."""
        return 0 if self.started is None else self.started.steps

    @property
    def left(self) -> float | None:
        """Seconds until the last step, with as much validating and saving as so far; None as long as nobody knows."""
        if self.started is None or not self.stepped:
            return None
        first, last = self.stepped[0], self.stepped[-1]
        made, seconds = last.step - first.step, last.seconds - first.seconds
        if not made:
            made, seconds = last.step, last.seconds
        here = last.step - self.started.step
        if made <= 0 or here <= 0:
            return None
        return (self.steps - self.step) * (seconds / made + self.aside / here)


def line(event: Event, so_far: SoFar) -> str:
    """An event in a line."""
    step = f"step {event.step:>{len(f'{so_far.steps:,}')},}/{so_far.steps:,}"
    match event:
        case Started():
            return f"{visible(event.name)}: {'; '.join(_about(event))}"
        case Stepped():
            left = so_far.left
            told = [f"loss {event.loss:.3f}", f"lr {event.lr:.1e}", f"{event.tokens_per_second:,.0f} tokens/s"]
            told += [] if event.utilisation is None else [f"{event.utilisation:.0%} of the GPU"]
            return "  ".join([step, *told, *([] if left is None else [f"ETA {duration(left)}"])])
        case Validated():
            return f"{step}  validation {_validation(event)}  ({duration(event.seconds)})"
        case Ended():
            return f"{step}  ended: {event.reason}"
        case _:
            return f"{step}  {_told(event, with_step=False)}"


def farewell(event: Ended, so_far: SoFar, recipe: str) -> list[str]:
    """What is said at the end: why, what was reached, what it took, and what can be done now."""
    reasons = {
        "steps": "All steps are done.",
        "patience": "It stopped getting better: patience is at its end.",
        "interrupted": f"Interrupted at step {event.step:,}.",
        "diverged": f"The loss left all bounds at step {event.step:,}: try a lower train.lr, or more train.warmup.",
    }
    lines = [reasons[event.reason]]
    if event.best_step is not None:
        measure = "score" if so_far.validated is None else so_far.validated.measure
        score = "" if event.best_score is None else f", {measure} {event.best_score:.1f}"
        loss = "" if event.best_loss is None else f", loss {event.best_loss:.3f}"
        lines.append(f"The best model is that of step {event.best_step:,}{loss}{score}.")
    flops = f"{event.flops:.1e} floating-point operations"
    lines.append(f"{event.tokens:,} target tokens in {duration(event.seconds)} of training, {flops}.")
    if event.skipped:
        lines.append(f"Updates skipped because the loss or a gradient was not finite: {event.skipped:,}.")
    if event.reason == "interrupted":
        out = "OUT" if so_far.started is None else shlex.quote(visible(so_far.started.out))
        lines.append(f"{GO_ON} regard train {shlex.quote(recipe)} --out {out} --resume")
    return lines


def panel(so_far: SoFar, width: int, height: int) -> RenderableType:
    """The run as it stands, for a terminal of this size."""
    started = so_far.started
    if started is None:
        return Text("getting ready …", style="dim")
    width = min(width, WIDEST)
    inner = width - 4
    parts = [*_head(started, inner), Text(""), _bar(so_far, inner), Text(""), *_figures(so_far, inner)]
    room = height - len(parts) - 3  # lines for samples: the frame takes two, and one is for what scrolls above
    samples = () if so_far.validated is None else so_far.validated.samples
    for sample in samples[: max(0, min(SAMPLES, room // 4))]:
        parts += [Text(""), *_sample(sample, inner)]
    title = Text(short(visible(started.name), inner - 4), style="bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=width, padding=(0, 1))


def duration(seconds: int | float) -> str:
    """Time as people say it.

    >>> [duration(each) for each in (0.04, 12.34, 250, 4000, 200_000)]
    ['0.0s', '12s', '4m10s', '1h06m', '2d07h']
    """
    if not math.isfinite(seconds):
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    return f"{minutes // 60 // 24}d{minutes // 60 % 24:02}h"


def sparkline(values: Sequence[float], width: int) -> str:
    """The course of values in so many columns at most, each the mean of its share; × where none is finite.

    >>> sparkline([8.0, 4.0, 2.0, 1.0, math.nan, 1.0], 6)
    '█▄▂▁×▁'
    """
    columns = min(width, len(values))
    ends = [i * len(values) // columns for i in range(columns + 1)] if columns > 0 else [0]
    shares = [[x for x in values[a:b] if math.isfinite(x)] for a, b in pairwise(ends)]
    means = [sum(share) / len(share) if share else math.nan for share in shares]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] if math.isfinite(mean) else "×" for mean in means)


def _about(started: Started) -> list[str]:
    """What is trained, on what, where."""
    told = [f"{started.task}, {_count(started.parameters)} parameters", f"{started.examples:,} examples"]
    told[1] += f" ({started.left_out:,} too long)" if started.left_out else ""
    problems = ", ".join(f"{count:,} {visible(kind)}" for kind, count in started.problems.items() if count)
    told += [f"lines left out: {problems}"] if problems else []
    told += [visible(started.place), f"to {visible(started.out)}"]
    return told + ([f"going on from step {started.step:,}"] if started.step else [])


def _head(started: Started, width: int) -> list[RenderableType]:
    task = f"{started.task} · {_count(started.parameters)} parameters · {started.examples:,} examples"
    place = f"{visible(started.place)} → {visible(started.out)}"
    place += f" · from step {started.step:,} on" if started.step else ""
    return [Text(short(each, width), style="dim") for each in (task, place)]


def _bar(so_far: SoFar, width: int) -> RenderableType:
    """How far it is, in a bar, in figures and in time."""
    done = so_far.step / so_far.steps if so_far.steps else 0.0
    left, ended = so_far.left, so_far.ended
    wide = width + 4 >= NARROW
    told = [f"{so_far.step:,}/{so_far.steps:,}"] * wide + [f"{done:.0%}"]
    told += [duration(last.seconds) for last in list(so_far.stepped)[-1:] if wide]
    told += [] if left is None or ended is not None else [f"ETA {duration(left)}"]
    told += [] if ended is None else ["done" if ended.reason == "steps" else ended.reason]
    text = "  ".join(told)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=max(4, width - len(text) - 1))
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=done, style="bright_black", complete_style="cyan", finished_style="green")
    grid.add_row(bar, Text(text))
    return grid


def _figures(so_far: SoFar, width: int) -> list[RenderableType]:
    """Loss, pace and the last validation; one beside the other where there is room."""
    if not so_far.stepped:
        return [Text("waiting for the first steps …", style="dim")]
    last = so_far.stepped[-1]
    spark = sparkline(list(so_far.losses), min(SPARKLINE, width - LABEL - 8))
    loss = Text.assemble((f"{last.loss:<7.3f} ", "bold"), (spark, "cyan"))
    pace = [f"lr {last.lr:.1e}", f"{last.tokens_per_second:,.0f} tokens/s"]
    pace += [] if last.utilisation is None else [f"{last.utilisation:.0%} of the GPU"]
    pace.append(f"epoch {last.epoch:.1f}")
    rows = [("loss", loss), *_wrapped("pace", [Text(each) for each in pace], width)]
    if so_far.validated is not None:
        rows += _wrapped("validation", _validation_parts(so_far.validated, so_far.best), width)
    return [Text.assemble((f"{name:<{LABEL}}", "dim"), text) for name, text in rows]


def _wrapped(name: str, parts: Sequence[Text], width: int) -> list[tuple[str, Text]]:
    """Parts side by side, in as many lines as it takes; the first has a name."""
    rows: list[Text] = []
    for part in parts:
        if rows and rows[-1].cell_len + part.cell_len + 2 <= width - LABEL:
            rows[-1] = Text.assemble(rows[-1], "  ", part)
        else:
            rows.append(part)
    return [(name if i == 0 else "", row) for i, row in enumerate(rows)]


def _validation_parts(event: Validated, best: Validated | None) -> list[Text]:
    parts = [Text(f"loss {event.loss:.3f}")]
    parts += [] if event.score is None else [Text(f"{event.measure} {event.score:.1f}", style="bold")]
    if event.best:
        return [*parts, Text("★ the best so far", style="green"), Text(f"at step {event.step:,}", style="dim")]
    parts.append(Text(f"{event.waited:,} since the best", style="yellow"))
    if best is not None:
        score = "" if best.score is None else f", {best.score:.1f}"
        parts.append(Text(f"step {best.step:,}: {best.loss:.3f}{score}", style="dim"))
    return parts


def _validation(event: Validated) -> str:
    """The same in words alone."""
    told = [f"loss {event.loss:.3f}"] + ([] if event.score is None else [f"{event.measure} {event.score:.1f}"])
    return "  ".join([*told, "best" if event.best else f"{event.waited:,} since the best"])


def _sample(sample: Sample, width: int) -> list[Text]:
    """Source, output, and the reference dim; each in its line."""
    lines = [Text(short(visible(sample.source), width))]
    output = short(visible(sample.output), width - 2)
    lines.append(Text.assemble(("→ ", "cyan"), (output or "(nothing)", "bold" if output else "dim")))
    reference = short(visible(sample.reference), width - 2)
    return lines + ([Text(f"  {reference}", style="dim")] if reference else [])


def _told(event: Event, with_step: bool = True) -> str:
    """A note or a checkpoint, in words."""
    step = f"step {event.step:,}: " if with_step else ""
    if isinstance(event, Saved):
        return f"{step}saved {visible(event.folder)} ({event.bytes / 1e6:,.1f} MB, {duration(event.seconds)})"
    return f"{step}note: {visible(event.text)}" if isinstance(event, Noted) else step


def _count(number: int) -> str:
    return f"{number / 1e6:,.1f} M" if number >= 1e5 else f"{number:,}"
