"""How the story is laid out: numbered chapters, a sentence on what is to be seen, and that, set in a little."""

from contextlib import AbstractContextManager
from textwrap import fill

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

INDENT = 3
WIDEST = 100
"""columns of prose: longer lines are no joy to read"""
EIGHTHS = " ▏▎▍▌▋▊▉█"


class Teller:
    """Prints the chapters of a story, and counts them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.chapters = 0

    @property
    def width(self) -> int:
        """Columns for what is set in."""
        return self.console.width - INDENT

    def chapter(self, title: str, text: str) -> None:
        """Begin a chapter, and say what it is about."""
        self.chapters += 1
        self.console.print()
        self.console.print(Text.assemble((f"{self.chapters}  ", "bold cyan"), (title, "bold")))
        self.say(text)

    def say(self, text: str, style: str = "") -> None:
        """A paragraph."""
        width = min(self.console.width, WIDEST)
        told = fill(text, width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT, break_on_hyphens=False)
        self.console.print(Text(told, style), soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """Something set in."""
        self.console.print(Padding(what, (0, 0, 0, INDENT), expand=False), width=min(self.console.width, WIDEST))

    def gap(self) -> None:
        """An empty line."""
        self.console.print()

    def whole(self, text: str, style: str = "") -> None:
        """A line that is to be copied: never broken."""
        self.console.print(Text(" " * INDENT + text, style), soft_wrap=True)

    def waiting(self, what: str) -> AbstractContextManager[object]:
        """Within, a terminal shows that something is being done."""
        return self.console.status(Text(what, "dim"), spinner_style="cyan")


def bar(share: float, width: int = 16) -> Text:
    """A share as a bar.

    >>> bar(0.5, 4).plain, bar(0.28, 4).plain
    ('██', '█▏')
    """
    eighths = round(share * width * 8)
    rest = EIGHTHS[eighths % 8] if eighths % 8 else ""
    return Text("█" * (eighths // 8) + rest, style="green" if share >= 0.9 else "yellow" if share >= 0.6 else "red")
