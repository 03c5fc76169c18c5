"""Where Regard prints."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from regard.formatting import visible_lines


class SafeConsole(Console):
    """A console on which text from a stranger's file does nothing: control characters are shown by a sign."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is printed for a renderable. The console's own control codes are kept."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """Colours on a terminal, plain lines elsewhere."""
    return SafeConsole(highlight=False, stderr=stderr)
