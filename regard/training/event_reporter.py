"""Sends the events of a run to the display, the log and other watchers."""

from collections.abc import Sequence

from regard.training.events import Event, Noted, Watcher
from regard.training.metrics_log import MetricsLog


class Reporter:
    """Sends events to watchers. Ranks other than the first have none."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = list(watchers)

    def send(self, event: Event) -> None:
        """Send an event to every watcher. A watcher whose terminal or pipe is gone is dropped: the run continues."""
        for watcher in list(self.watchers):
            try:
                watcher(event)
            except (OSError, SystemExit):  # rich raises SystemExit when nobody reads its output
                self.watchers.remove(watcher)

    def note(self, step: int, text: str) -> None:
        """Report something about a step that the user should know."""
        self.send(Noted(step, text))

    def close(self) -> None:
        """Close the files of the log."""
        for watcher in self.watchers:
            if isinstance(watcher, MetricsLog):
                watcher.close()
