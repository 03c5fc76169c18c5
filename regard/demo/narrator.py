"""Layout of the demo's story: numbered chapters of indented text, tables and commands."""

from contextlib import AbstractContextManager
from textwrap import fill

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

INDENT_COLUMNS = 3
MAX_TEXT_WIDTH = 100
"""Maximum number of columns of running text; longer lines are hard to read."""
EIGHTH_BLOCKS = " ▏▎▍▌▋▊▉█"


class Narrator:
    """Prints the chapters of a story, and numbers them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.chapters = 0

    @property
    def width(self) -> int:
        """Number of columns available for indented content."""
        return self.console.width - INDENT_COLUMNS

    def chapter(self, title: str, introduction: str) -> None:
        """Start a chapter."""
        self.chapters += 1
        self.console.print()
        self.console.print(Text.assemble((f"{self.chapters}  ", "bold cyan"), (title, "bold")))
        self.paragraph(introduction)

    def paragraph(self, text: str, style: str = "") -> None:
        """Print a wrapped paragraph."""
        width, indent = min(self.console.width, MAX_TEXT_WIDTH), " " * INDENT_COLUMNS
        wrapped = fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        self.console.print(Text(wrapped, style), soft_wrap=True)

    def show(self, content: RenderableType) -> None:
        """Print a table or picture, indented."""
        width = min(self.console.width, MAX_TEXT_WIDTH)
        self.console.print(Padding(content, (0, 0, 0, INDENT_COLUMNS), expand=False), width=width)

    def gap(self) -> None:
        """Print an empty line."""
        self.console.print()

    def unbroken_line(self, text: str, style: str = "") -> None:
        """Print a line that is meant to be copied, and is never wrapped."""
        self.console.print(Text(" " * INDENT_COLUMNS + text, style), soft_wrap=True)

    def waiting(self, task: str) -> AbstractContextManager[object]:
        """Show on a terminal that a task is in progress, for the duration of the context."""
        return self.console.status(Text(task, "dim"), spinner_style="cyan")


def bar(fraction: float, width: int = 16) -> Text:
    """A fraction from 0 to 1 as a bar.

    >>> bar(0.5, 4).plain, bar(0.28, 4).plain
    ('██', '█▏')
    """
    eighths = round(fraction * width * 8)
    partial_block = EIGHTH_BLOCKS[eighths % 8] if eighths % 8 else ""
    colour = "green" if fraction >= 0.9 else "yellow" if fraction >= 0.6 else "red"
    return Text("█" * (eighths // 8) + partial_block, style=colour)
