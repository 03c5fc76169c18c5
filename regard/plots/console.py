"""The console that commands print to."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from regard.formatting import visible_lines


class SafeConsole(Console):
    """A console that makes control characters visible, so that untrusted text cannot control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable. The console's own control codes are kept."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """A console with colours on a terminal and plain text elsewhere."""
    return SafeConsole(highlight=False, stderr=stderr)
