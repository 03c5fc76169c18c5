"""A heat map in the terminal whose numbers can be read without its colours.

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

# From 0 to 1, through hues that colour-blind readers can tell apart by lightness.
COLOUR_RAMP = ((13, 17, 40), (36, 56, 116), (28, 112, 148), (53, 168, 140), (160, 214, 96), (253, 231, 76))
QUARTER_BLOCKS = " ░▒▓█"
"""Blocks for terminals with few colours, whose hues have no natural order."""
MIN_COLUMN_WIDTH, MAX_COLUMN_WIDTH = 4, 9
"""Limits of a column's width, including its space: "100" fits, and so do most words."""
MAX_TEXT_COLUMN_WIDTH = 16
"""Maximum width of a column whose cells have a text, a weight and two spaces."""


def heat_map(
    weights: Float[Tensor, "T S"],
    queries: Sequence[str],
    keys: Sequence[str],
    width: int | None = None,
    texts: Sequence[Sequence[str]] | None = None,
) -> Group:
    """A table with one row per query and one column per key, with the weights in per cent.

    Columns that do not fit into `width` continue in a second table below, with the queries repeated. Each cell may also
    have a text.
    """
    if (len(queries), len(keys)) != tuple(weights.shape):
        raise RegardError(f"weights {list(weights.shape)} need as many labels: got {len(queries)} and {len(keys)}")
    label_width = max((cell_len(query) for query in queries), default=0) + 1
    available = None if width is None else max(width - label_width, MAX_COLUMN_WIDTH)
    widths = _column_widths(keys, available) if texts is None else _text_widths(keys, texts)
    tables = [
        _block(weights[:, part], queries, keys[part], widths[part], [row[part] for row in texts or [()] * len(queries)])
        for part in _parts(widths, available)
    ]
    return Group(*(line for table in tables for line in (table, "")))


def _column_widths(keys: Sequence[str], available: int | None) -> list[int]:
    """Widths that fit the keys, or the narrower ones that fit all columns into one table, if there are such."""
    limits = (
        (MAX_COLUMN_WIDTH, *range(MAX_COLUMN_WIDTH - 1, MIN_COLUMN_WIDTH, -1)) if available else (MAX_COLUMN_WIDTH,)
    )
    candidates = [[min(max(cell_len(key) + 1, MIN_COLUMN_WIDTH), limit) for key in keys] for limit in limits]
    return next((widths for widths in candidates if available and sum(widths) <= available), candidates[0])


def _text_widths(keys: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """Widths that fit the keys and, in front of the weights, the texts."""
    columns = zip(keys, *texts, strict=True)
    fitting = (max(cell_len(key) + 1, *(cell_len(text) + 5 for text in column)) for key, *column in columns)
    return [min(width, MAX_TEXT_COLUMN_WIDTH) for width in fitting]


def _parts(widths: Sequence[int], available: int | None) -> Iterator[slice]:
    """Ranges of columns that fit into the available width."""
    start = used = 0
    for i, width in enumerate(widths):
        if available is not None and used and used + width > available:
            yield slice(start, i)
            start, used = i, 0
        used += width
    yield slice(start, len(widths))


def _block(
    weights: Float[Tensor, "T S"],
    queries: Sequence[str],
    keys: Sequence[str],
    widths: Sequence[int],
    texts: Sequence[Sequence[str]],
) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(width=1)
    for width in widths:
        table.add_column(width=width, no_wrap=True)
    headings = [f"{shorten_to_width(key, width - 1):>{width - 1}} " for key, width in zip(keys, widths, strict=True)]
    table.add_row("", "", *(Text(heading, style="bold") for heading in headings))
    for query, row, row_texts in zip(queries, weights.tolist(), texts, strict=True):
        cells = map(_HeatMapCell, row, widths, row_texts or [""] * len(row))
        table.add_row(Text(query, style="bold"), "", *cells)
    return table


@dataclass(frozen=True)
class _HeatMapCell:
    """A text, and a weight in per cent unless it is 0, on a coloured background; with few colours, before a block."""

    weight: float
    width: int
    text: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = shorten_to_width(self.text, self.width - 5) if self.text else ""
        room = self.width - 1 - cell_len(text)
        number = text + (f"{100 * self.weight:{room}.0f}" if self.weight else " " * room)
        if console.color_system is None:
            yield Text(f"{number} ")
        elif console.no_color or console.color_system not in ("256", "truecolor"):
            yield Text(number + QUARTER_BLOCKS[min(ceil(4 * self.weight), 4) if self.weight >= 0.05 else 0])
        else:
            yield Text(f"{number} ", style=shade(self.weight))


def shorten_to_width(text: str, max_width: int) -> str:
    """A text cut to at most `max_width` columns of the terminal.

    >>> shorten_to_width("anticonstitutionnellement", 8)
    'anticon…'
    """
    return text if cell_len(text) <= max_width else set_cell_size(text, max_width - 1).rstrip() + "…"


def shade(weight: float) -> Style:
    """The background colour of a weight between 0 and 1, with black or white text, whichever is more readable."""
    red, green, blue = colour(weight)
    linear = [
        level / 255 / 12.92 if level <= 10 else ((level / 255 + 0.055) / 1.055) ** 2.4 for level in (red, green, blue)
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # as WCAG defines it
    use_black = (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05)
    text_colour = "#000000" if use_black else "#ffffff"  # not "black", which themes redefine
    return Style(color=text_colour, bgcolor=f"rgb({red},{green},{blue})")


def colour(weight: float) -> tuple[int, int, int]:
    """Red, green and blue of a weight, on a square-root scale so that small weights are visible next to large ones."""
    position = min(max(weight, 0.0), 1.0) ** 0.5 * (len(COLOUR_RAMP) - 1)
    low = min(int(position), len(COLOUR_RAMP) - 2)
    fraction = position - low
    red, green, blue = (
        round(a + (b - a) * fraction) for a, b in zip(COLOUR_RAMP[low], COLOUR_RAMP[low + 1], strict=True)
    )
    return red, green, blue
