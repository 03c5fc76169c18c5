"""Shows a run as it goes: a panel in a terminal or a notebook, plain lines elsewhere."""

import math
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from regard.plots.console import console as make_console
from regard.plots.run_lines import CONTINUE, RESUME, USE, closing_lines, event_line, message_text, sample_line
from regard.plots.run_progress import RunProgress, is_unvalidated
from regard.plots.training_panel import training_panel
from regard.training.events import WARNING, Ended, Event, Noted, Saved, Stepped, Ticked, Validated

LINE_INTERVAL = 5.0
"""Minimum seconds between two plain lines about steps."""
SILENCE_LIMIT = 30.0
"""Seconds without a plain line after which one reports that a slow run is alive."""
REDRAWS_PER_SECOND = 4
NOTEBOOK_HEIGHT = 40
"""Lines that the panel may take in a notebook."""
NOTEBOOK_FORMAT = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'


class TrainingDisplay:
    """A watcher that shows a run. Use it as a context manager.

    `recipe` is the path or name the user gave, for the command that resumes the run.
    """

    def __init__(
        self, console: Console | None = None, recipe: str = "RECIPE", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = make_console() if console is None else console
        self.recipe, self.clock = recipe, clock
        self.state = RunProgress()
        self.panel: Live | NotebookPanel | None = None
        self.last_step_line = self.last_line = -math.inf
        self.unprinted: Stepped | None = None
        self.queue: deque[Event] = deque()
        self.busy = False

    def __enter__(self) -> "TrainingDisplay":
        if can_draw_in_notebook(self.console):
            self.panel = NotebookPanel(self._panel, self.console.width, self.clock)
        elif can_redraw(self.console):
            self.panel = Live(
                console=self.console,
                get_renderable=self._panel_and_cursor_line,
                refresh_per_second=REDRAWS_PER_SECOND,
                vertical_overflow="crop",
                transient=True,
            )
        if self.panel is not None:
            self.panel.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        panel, self.panel = self.panel, None
        if panel is not None:
            panel.stop()
            if isinstance(panel, Live) and self.state.started is not None:
                self.console.print(self._panel())

    def __call__(self, event: Event) -> None:
        """Show an event. An event sent by a signal handler while another is being shown waits for it."""
        self.queue.append(event)
        if self.busy:
            return
        self.busy = True
        try:
            while self.queue:
                self._show(self.queue.popleft())
        finally:
            self.busy = False

    def _show(self, event: Event) -> None:
        is_first_validation = self.state.validated is None
        self.state.update(event)
        if self.panel is None:
            self._print_plainly(event, is_first_validation)
            return
        if isinstance(event, Noted | Saved):
            style = "yellow" if isinstance(event, Noted) else "dim"
            if isinstance(event, Noted) and event.text.startswith(WARNING):
                style = "bold red"
            self.console.print(Text(f"step {event.step:,}: {message_text(event)}", style=style))
        if isinstance(self.panel, NotebookPanel):
            self.panel.refresh(force=not isinstance(event, Ticked | Stepped))
        elif not isinstance(event, Ticked | Stepped):  # those are frequent; the next redraw shows them
            self.panel.refresh()
        if isinstance(event, Ended):
            self.__exit__()  # the closing lines go below the panel
            lines = closing_lines(event, self.state, self.recipe)
            if self.console.is_jupyter:  # where each print is an output of its own, with space around it
                self.console.print(Text("\n".join(lines)), soft_wrap=True)
                return
            for line in lines:
                is_command = line.startswith((RESUME, CONTINUE, USE))
                self.console.print(Text(line), soft_wrap=is_command)

    def _panel(self) -> RenderableType:
        height = NOTEBOOK_HEIGHT if self.console.is_jupyter else self.console.height
        return training_panel(self.state, self.console.width, height)

    def _panel_and_cursor_line(self) -> RenderableType:
        """The panel, and a line for the cursor, so that an echoed ^C does not push the panel around."""
        return Group(self._panel(), Text(""))

    def _print_plainly(self, event: Event, is_first_validation: bool) -> None:
        """Print an event at once, but let steps wait that follow the previous line too closely."""
        match event:
            case Ticked():
                if self.clock() - self.last_line >= SILENCE_LIMIT:
                    self._print(event_line(event, self.state))
                return
            case Stepped():
                if self.clock() - self.last_step_line < LINE_INTERVAL:
                    self.unprinted = event
                    return
                self.last_step_line, self.unprinted = self.clock(), None
            case Validated() | Saved() | Ended():
                step = self.unprinted
                if step is not None and (isinstance(event, Ended) or step.step == event.step):
                    self._print(event_line(step, self.state))
                    self.unprinted = None
        if isinstance(event, Ended):
            for line in closing_lines(event, self.state, self.recipe):
                self._print(line)
        elif not isinstance(event, Validated) or is_first_validation or not is_unvalidated(event):
            self._print(event_line(event, self.state))
        if isinstance(event, Validated) and event.samples:
            self._print(f"  {sample_line(event.samples[0])}")

    def _print(self, text: str) -> None:
        self.last_line = self.clock()
        encoding = self.console.encoding or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)  # a missing letter must not end a run
        self.console.print(Text(text), soft_wrap=True)


class NotebookPanel:
    """A panel in a notebook cell that is updated in place, through IPython's display."""

    def __init__(self, render: Callable[[], RenderableType], width: int, clock: Callable[[], float]) -> None:
        self.render, self.width, self.clock = render, width, clock
        self.ipython: Any = import_module("IPython.display")
        self.handle: Any = None
        self.drawn = -math.inf

    def start(self, refresh: bool = True) -> None:
        """Show the panel below the cell."""
        self.handle = self.ipython.display(self.ipython.HTML(self._html()), display_id=True)
        if refresh:
            self.refresh(force=True)

    def refresh(self, force: bool = True) -> None:
        """Update the panel, at most a few times per second unless forced."""
        if self.handle is None or (not force and self.clock() - self.drawn < 1 / REDRAWS_PER_SECOND):
            return
        self.drawn = self.clock()
        self.handle.update(self.ipython.HTML(self._html()))

    def stop(self) -> None:
        """Show the final state."""
        self.refresh()

    def _html(self) -> str:
        recorder = Console(record=True, file=StringIO(), width=self.width, force_jupyter=False, force_terminal=True)
        recorder.print(self.render())
        return recorder.export_html(inline_styles=True, code_format=NOTEBOOK_FORMAT)


def can_draw_in_notebook(console: Console) -> bool:
    """Whether the console writes to a notebook whose output can be updated."""
    return console.is_jupyter and find_spec("IPython") is not None


def can_redraw(console: Console) -> bool:
    """Whether the console is a terminal on which a panel can be redrawn in place."""
    return console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")
