"""Attention in the terminal: a heat map whose figures can be read without its colours.

Dimensions: T queries, S keys.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from jaxtyping import Float
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group
from rich.style import Style
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.errors import RegardError

# From nothing to everything, through hues that the colour-blind tell apart by their lightness alone.
RAMP = ((13, 17, 40), (36, 56, 116), (28, 112, 148), (53, 168, 140), (160, 214, 96), (253, 231, 76))
QUARTERS = " ░▒▓█"
"""for terminals of few colours, whose hues have no order"""
NARROWEST, WIDEST = 4, 9
"""of a column, its space included: "100" fits, and most words do"""


def heat_map(
    weights: Float[Tensor, "T S"], queries: Sequence[str], keys: Sequence[str], width: int | None = None
) -> Group:
    """A row for each query, a column for each key, the weight in per cent.

    What is wider than `width` goes on below, with the queries named again.
    """
    if (len(queries), len(keys)) != tuple(weights.shape):
        raise RegardError(f"weights {list(weights.shape)} need as many names: got {len(queries)} and {len(keys)}")
    names = max((cell_len(query) for query in queries), default=0) + 1
    room = None if width is None else max(width - names, WIDEST)
    widths = _widths(keys, room)
    tables = [_block(weights[:, part], queries, keys[part], widths[part]) for part in _parts(widths, room)]
    return Group(*(each for table in tables for each in (table, "")))


def _widths(keys: Sequence[str], room: int | None) -> list[int]:
    """As wide as the keys, or as narrow as it takes to have all in one row; if nothing helps, as wide again."""
    most = (WIDEST, *range(WIDEST - 1, NARROWEST, -1)) if room else (WIDEST,)
    tries = [[min(max(cell_len(key) + 1, NARROWEST), widest) for key in keys] for widest in most]
    return next((widths for widths in tries if room and sum(widths) <= room), tries[0])


def _parts(widths: Sequence[int], room: int | None) -> Iterator[slice]:
    """Runs of columns that fit into the room."""
    start = taken = 0
    for i, width in enumerate(widths):
        if room is not None and taken and taken + width > room:
            yield slice(start, i)
            start, taken = i, 0
        taken += width
    yield slice(start, len(widths))


def _block(weights: Float[Tensor, "T S"], queries: Sequence[str], keys: Sequence[str], widths: Sequence[int]) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(width=1)
    for width in widths:
        table.add_column(width=width, no_wrap=True)
    cut = [f"{shorten_to_width(key, width - 1):>{width - 1}} " for key, width in zip(keys, widths, strict=True)]
    table.add_row("", "", *(Text(name, style="bold") for name in cut))
    for query, row in zip(queries, weights.tolist(), strict=True):
        cells = (_Cell(weight, width) for weight, width in zip(row, widths, strict=True))
        table.add_row(Text(query, style="bold"), "", *cells)
    return table


@dataclass(frozen=True)
class _Cell:
    """Per cent, or nothing where nothing may be seen: on a colour or, where there are few, before a darker block."""

    weight: float
    width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        number = f"{100 * self.weight:{self.width - 1}.0f}" if self.weight else " " * (self.width - 1)
        if console.color_system is None:
            yield Text(f"{number} ")
        elif console.no_color or console.color_system not in ("256", "truecolor"):
            yield Text(number + QUARTERS[min(ceil(4 * self.weight), 4) if self.weight >= 0.05 else 0])
        else:
            yield Text(f"{number} ", style=shade(self.weight))


def shorten_to_width(text: str, most: int) -> str:
    """A text of at most so many columns of the terminal.

    >>> shorten_to_width("anticonstitutionnellement", 8)
    'anticon…'
    """
    return text if cell_len(text) <= most else set_cell_size(text, most - 1).rstrip() + "…"


def shade(weight: float) -> Style:
    """Background for a weight between 0 and 1, by its square root, and black or white to be read on it."""
    red, green, blue = colour(weight)
    linear = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # as WCAG counts it
    dark_text = (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05)
    readable = "#000000" if dark_text else "#ffffff"  # not "black": themes have their own idea of it
    return Style(color=readable, bgcolor=f"rgb({red},{green},{blue})")


def colour(weight: float) -> tuple[int, int, int]:
    """Red, green and blue of a weight; by its square root, so that small weights are seen beside large ones."""
    place = min(max(weight, 0.0), 1.0) ** 0.5 * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    red, green, blue = (round(a + (b - a) * (place - low)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))
    return red, green, blue
