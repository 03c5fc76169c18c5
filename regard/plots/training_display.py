"""A run as it goes: a calm panel in a terminal, plain lines that can be searched elsewhere."""

import json
import math
import re
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

from regard.formatting import duration, visible
from regard.plots.console import console as usual_console
from regard.plots.heat_map import shorten_to_width
from regard.training.events import Ended, Event, Noted, Sample, Saved, Started, Stepped, Ticked, Validated

APART = 5.0
"""seconds between two lines about steps, where no terminal is"""
SILENT = 30.0
"""seconds without a line, there, until one says how far a slow run is"""
REDRAWN = 4
"""pictures of the panel in a second"""
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
SAMPLE = 60
"""columns of a sample's source, and of what is made of it, in a plain line"""
GO_ON, FURTHER, USE = "To go on:", "To go further:", "To use it:"
UNTRIED = "nothing to validate on: the last model is kept"
NAME_SOME = "name data.validation or data.held_out"
EXAMPLES = {"translation": "Le chat dort.", "language": "Once upon a time", "classification": "Le chat dort."}


class Display:
    """A watcher that shows a run, within `with`. `recipe` is what the user called it, to say how to go on."""

    def __init__(
        self, console: Console | None = None, recipe: str = "RECIPE", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = usual_console() if console is None else console
        self.recipe, self.clock = recipe, clock
        self.so_far = SoFar()
        self.live: Live | None = None
        self.printed = self.spoken = -math.inf
        self.waiting: Stepped | None = None
        self.told: deque[Event] = deque()
        self.busy = False

    def __enter__(self) -> "Display":
        if _draws(self.console):
            self.live = Live(
                console=self.console,
                get_renderable=self._picture,
                refresh_per_second=REDRAWN,
                vertical_overflow="crop",
                transient=True,
            )
            self.live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None
            if self.so_far.started is not None:
                self.console.print(self._panel())

    def __call__(self, event: Event) -> None:
        """Show an event. One that a signal's handler tells while another is being shown waits for that to be done."""
        self.told.append(event)
        if self.busy:
            return
        self.busy = True
        try:
            while self.told:
                self._show(self.told.popleft())
        finally:
            self.busy = False

    def _show(self, event: Event) -> None:
        first = self.so_far.validated is None
        self.so_far.take(event)
        if self.live is None:
            self._print_plainly(event, first)
            return
        if isinstance(event, Noted | Saved):
            self.console.print(Text(_told(event), style="yellow" if isinstance(event, Noted) else "dim"))
        if not isinstance(event, Ticked | Stepped):  # those are many: they are seen when it is drawn again
            self.live.refresh()
        if isinstance(event, Ended):
            self.__exit__()  # what is said at the end stands below the panel
            for each in farewell(event, self.so_far, self.recipe):
                copied = each.startswith((GO_ON, FURTHER, USE))  # whole
                self.console.print(Text(each), soft_wrap=copied)

    def _panel(self) -> RenderableType:
        return panel(self.so_far, self.console.width, self.console.height)

    def _picture(self) -> RenderableType:
        """The panel and a line for the cursor: what a terminal echoes there, ^C, must not push the panel around."""
        return Group(self._panel(), Text(""))

    def _print_plainly(self, event: Event, first: bool) -> None:
        """At once, but for steps that follow the last line too closely: they wait for something to be said of them."""
        match event:
            case Ticked():
                if self.clock() - self.spoken >= SILENT:
                    self._print(line(event, self.so_far))
                return
            case Stepped():
                if self.clock() - self.printed < APART:
                    self.waiting = event
                    return
                self.printed, self.waiting = self.clock(), None
            case Validated() | Saved() | Ended():
                if self.waiting is not None and (isinstance(event, Ended) or self.waiting.step == event.step):
                    self._print(line(self.waiting, self.so_far))
                    self.waiting = None
        if isinstance(event, Ended):
            for each in farewell(event, self.so_far, self.recipe):
                self._print(each)
        elif not isinstance(event, Validated) or first or not untried(event):
            self._print(line(event, self.so_far))
        if isinstance(event, Validated) and event.samples:
            self._print(f"  {_sample_line(event.samples[0])}")

    def _print(self, text: str) -> None:
        self.spoken = self.clock()
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
    recent: deque[Ticked] = field(default_factory=lambda: deque(maxlen=RECENT))
    """where the last such events were told, or else the first step"""
    last: Ticked | None = None
    """the last step that was made here"""
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
                self.last = Ticked(event.step, event.seconds)
                self.recent.append(self.last)
            case Ticked():
                self.last = event
                if not self.recent:
                    self.recent.append(event)
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
        told = (self.started, self.last, self.validated, self.ended)
        return max((event.step for event in told if event is not None), default=0)

    @property
    def steps(self) -> int:
        """How many there are to be."""
        return 0 if self.started is None else self.started.steps

    @property
    def seconds(self) -> float | None:
        """Time spent in training; None before the first step."""
        last = self.ended or self.last
        return None if last is None else last.seconds

    @property
    def pace(self) -> float | None:
        """Seconds a step takes, by the latest ones or else by all; None before the first."""
        last = self.last
        if last is None or last.step <= 0:
            return None
        first = self.recent[0]
        made = last.step - first.step
        return (last.seconds - first.seconds) / made if made > 0 else last.seconds / last.step

    @property
    def left(self) -> float | None:
        """Seconds until the last step, with as much validating and saving as so far; None as long as nobody knows."""
        pace = self.pace
        if self.started is None or self.last is None or pace is None:
            return None
        here = self.last.step - self.started.step
        return (self.steps - self.step) * (pace + self.aside / here) if here > 0 else None

    @property
    def counted(self) -> str:
        """What the targets are that are counted."""
        return "texts" if self.started is not None and self.started.task == "classification" else "tokens"


def untried(event: Validated) -> bool:
    """Whether there was no text to validate on, so that the model was kept as it is."""
    return math.isnan(event.loss) and event.best and event.score is None and not event.samples


def line(event: Event, so_far: SoFar) -> str:
    """An event in a line."""
    step = f"step {event.step:>{len(f'{so_far.steps:,}')},}/{so_far.steps:,}"
    match event:
        case Started():
            return f"{visible(event.name)}: {'; '.join(_about(event))}"
        case Stepped():
            left = so_far.left
            told = [
                f"loss {event.loss:.3f}",
                f"lr {event.lr:.1e}",
                f"{event.tokens_per_second:,.0f} {so_far.counted}/s",
            ]
            told += [] if event.utilisation is None else [f"{event.utilisation:.0%} of the GPU"]
            return "  ".join([step, *told, *([] if left is None else [f"ETA {duration(left)}"])])
        case Ticked():
            return step if so_far.pace is None else f"{step}  ({_short_time(so_far.pace)} a step)"
        case Validated():
            if untried(event):
                return f"{step}  {UNTRIED} ({NAME_SOME})"
            return f"{step}  validation {_validation(event)}  ({duration(event.seconds)})"
        case _:
            return f"{step}  {_told(event, with_step=False)}"


def farewell(event: Ended, so_far: SoFar, recipe: str) -> list[str]:
    """What is said at the end: why, what was reached, what it took, and what can be done now."""
    lines = [_reason(event, so_far)]
    if event.best_step is not None:
        lines.append(_kept(event, so_far))
    elif event.reason == "interrupted":
        lines.append("There is no model to use yet: it comes with the first validation.")
    what = "texts" if so_far.counted == "texts" else "target tokens"
    flops = f"{event.flops:.1e} floating-point operations"
    lines.append(f"{event.tokens:,} {what} in {duration(event.seconds)} of training, {flops}.")
    if event.skipped:
        lines.append(f"Updates skipped because the loss or a gradient was not finite: {event.skipped:,}.")
    return lines + _what_now(event, so_far, recipe)


def _reason(event: Ended, so_far: SoFar) -> str:
    if _nothing_done(event, so_far):
        why = "all steps were done" if event.reason == "steps" else "patience was at its end"
        return f"Nothing is left to do: {why} before, at step {event.step:,}."
    return {
        "steps": "All steps are done.",
        "patience": "It stopped getting better: patience is at its end.",
        "interrupted": f"Interrupted at step {event.step:,}.",
        "diverged": f"The loss left all bounds at step {event.step:,}: try a lower train.lr, or more train.warmup.",
    }[event.reason]


def _nothing_done(event: Ended, so_far: SoFar) -> bool:
    """Whether a run that went on was at its end before."""
    begun = 0 if so_far.started is None else so_far.started.step
    return event.reason in ("steps", "patience") and 0 < begun == event.step


def _kept(event: Ended, so_far: SoFar) -> str:
    """Which model is in the folder."""
    if so_far.validated is not None and untried(so_far.validated):
        return f"The model is that of step {event.best_step:,}: there was {UNTRIED.partition(':')[0]}."
    measure = "accuracy" if so_far.counted == "texts" else "BLEU"
    score = "" if event.best_score is None else f", {measure} {event.best_score:.1f}"
    loss = "" if event.best_loss is None else f", loss {event.best_loss:.3f}"
    return f"The best model is that of step {event.best_step:,}{loss}{score}."


def _what_now(event: Ended, so_far: SoFar, recipe: str) -> list[str]:
    """Commands: to go on, to go further, to use the model."""
    started = so_far.started
    if started is None or event.reason == "diverged":
        return []
    again = f"regard train {shlex.quote(recipe)} --out {shlex.quote(visible(started.out))} --resume"
    if event.reason == "interrupted":
        return [f"{GO_ON} {again}"]
    lines = []
    if _nothing_done(event, so_far):
        more = f"steps={2 * event.step}" if event.reason == "steps" else "patience=0"
        lines.append(f"{FURTHER} {again} --set train.{more}")
    return lines + ([] if event.best_step is None else [f"{USE} {usage(started, so_far.validated)}"])


def usage(started: Started, validated: Validated | None, options: str = "") -> str:
    """The one line by which the model is used: a command, or Python for a classifier, which has none."""
    text = example(started, validated)
    if started.task == "classification":
        folder, quoted = (json.dumps(each, ensure_ascii=False) for each in (visible(started.out), text))
        return f"regard.load({folder}).classify([{quoted}]) in Python"
    verb = "translate" if started.task == "translation" else "generate"
    return f"regard {verb} {argument(text)} --model {shlex.quote(visible(started.out))}{options}"


def example(started: Started, validated: Validated | None) -> str:
    """A short text to try the model with, in one line."""
    sources = () if validated is None else (sample.source for sample in validated.samples)
    lines = (source.partition("\n")[0].strip() for source in sources)
    fit = (each for each in lines if each[:1].isalnum() and each == visible(each))
    return min(fit, key=len, default=EXAMPLES[started.task])


def argument(text: str) -> str:
    """A text for a shell, in double quotes where nothing in it has a meaning there."""
    return shlex.quote(text) if re.search(r'["$`\\!]', text) else f'"{text}"'


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
    title = Text(shorten_to_width(visible(started.name), inner - 4), style="bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=width, padding=(0, 1))


def plural(count: int, name: str) -> str:
    """A count and what is counted.

    >>> plural(1, "example"), plural(2000, "example")
    ('1 example', '2,000 examples')
    """
    return f"{count:,} {name}{'s' * (count != 1)}"


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
    told = [f"{started.task}, {_count(started.parameters)} parameters", plural(started.examples, "example")]
    told[1] += f" ({started.left_out:,} too long)" if started.left_out else ""
    problems = ", ".join(f"{count:,} {visible(kind)}" for kind, count in started.problems.items() if count)
    told += [f"lines left out: {problems}"] if problems else []
    told += [visible(started.place), f"to {visible(started.out)}"]
    return told + ([f"going on from step {started.step:,}"] if started.step else [])


def _head(started: Started, width: int) -> list[RenderableType]:
    task = f"{started.task} · {_count(started.parameters)} parameters · {plural(started.examples, 'example')}"
    place = f"{visible(started.place)} → {visible(started.out)}"
    place += f" · from step {started.step:,} on" if started.step else ""
    return [Text(shorten_to_width(each, width), style="dim") for each in (task, place)]


def _bar(so_far: SoFar, width: int) -> RenderableType:
    """How far it is, in a bar, in figures and in time."""
    done = so_far.step / so_far.steps if so_far.steps else 0.0
    left, ended = so_far.left, so_far.ended
    wide = width + 4 >= NARROW
    told = [f"{so_far.step:,}/{so_far.steps:,}"] * wide + [f"{done:.0%}"]
    told += [] if so_far.seconds is None or not wide else [duration(so_far.seconds)]
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
    rows = _of_steps(so_far, width)
    if so_far.validated is not None:
        rows += _wrapped("validation", _validation_parts(so_far.validated, so_far.best), width)
    return [Text.assemble((f"{name:<{LABEL}}", "dim"), text) for name, text in rows]


def _of_steps(so_far: SoFar, width: int) -> list[tuple[str, Text]]:
    """Loss and pace or, as long as these are not told, that something is being done."""
    if not so_far.stepped:
        if so_far.last is None:
            return [("loss", Text("waiting for the first step …", style="dim"))]
        told = f"step {so_far.last.step:,} of {so_far.steps:,}"
        return [("pace", Text(told if so_far.pace is None else f"{told}, {_short_time(so_far.pace)} a step"))]
    last = so_far.stepped[-1]
    spark = sparkline(list(so_far.losses), min(SPARKLINE, width - LABEL - 8))
    loss = Text.assemble((f"{last.loss:<7.3f} ", "bold"), (spark, "cyan"))
    pace = [f"lr {last.lr:.1e}", f"{last.tokens_per_second:,.0f} {so_far.counted}/s"]
    pace += [] if last.utilisation is None else [f"{last.utilisation:.0%} of the GPU"]
    pace.append(f"epoch {last.epoch:.1f}")
    return [("loss", loss), *_wrapped("pace", [Text(each) for each in pace], width)]


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
    if untried(event):
        return [Text(UNTRIED), Text(f"({NAME_SOME})", style="dim")]
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
    lines = [Text(shorten_to_width(visible(sample.source), width))]
    output = shorten_to_width(visible(sample.output), width - 2)
    lines.append(Text.assemble(("→ ", "cyan"), (output or "(nothing)", "bold" if output else "dim")))
    reference = shorten_to_width(visible(sample.reference), width - 2)
    return lines + ([Text(f"  {reference}", style="dim")] if reference else [])


def _sample_line(sample: Sample) -> str:
    """Source and output in a line."""
    source, output = (shorten_to_width(visible(each), SAMPLE) for each in (sample.source, sample.output))
    return f"{source} → {output or '(nothing)'}"


def _told(event: Event, with_step: bool = True) -> str:
    """A note or a checkpoint, in words."""
    step = f"step {event.step:,}: " if with_step else ""
    if isinstance(event, Saved):
        return f"{step}saved {visible(event.folder)} ({event.bytes / 1e6:,.1f} MB, {duration(event.seconds)})"
    return f"{step}note: {visible(event.text)}" if isinstance(event, Noted) else step


def _short_time(seconds: float) -> str:
    return duration(seconds) if seconds >= 0.1 else f"{1000 * seconds:.0f}ms"


def _count(number: int) -> str:
    return f"{number / 1e6:,.1f} M" if number >= 1e5 else f"{number:,}"
