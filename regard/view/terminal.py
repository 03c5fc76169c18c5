"""Attention in the terminal: a heat map whose figures can be read without its colours.

Dimensions: T queries, S keys.
"""

from collections.abc import Sequence

from jaxtyping import Float
from rich.style import Style
from rich.table import Table
from rich.text import Text
from torch import Tensor

# From nothing to everything, through hues that the colour-blind tell apart by their lightness alone.
RAMP = ((13, 17, 40), (36, 56, 116), (28, 112, 148), (53, 168, 140), (160, 214, 96), (253, 231, 76))


def heat_map(weights: Float[Tensor, "T S"], queries: Sequence[str], keys: Sequence[str]) -> Table:
    """A row for each query, a column for each key, the weight in per cent."""
    if (len(queries), len(keys)) != tuple(weights.shape):
        raise ValueError(f"weights {list(weights.shape)} need as many names: got {len(queries)} and {len(keys)}")
    table = Table(box=None, padding=0, pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("", width=1)
    for key in keys:
        table.add_column(Text(f" {key[:8]} ", style="bold"), justify="center", no_wrap=True, min_width=5)
    for query, row in zip(queries, weights.tolist(), strict=True):
        cells = [Text(f"{100 * weight:3.0f} ", style=shade(weight), justify="center") for weight in row]
        table.add_row(Text(query, style="bold"), "", *cells)
    return table


def shade(weight: float) -> Style:
    """Background for a weight between 0 and 1, and black or white to be read on it."""
    place = min(max(weight, 0.0), 1.0) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    red, green, blue = (round(a + (b - a) * (place - low)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))
    linear = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # as WCAG counts it
    dark_text = (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05)
    readable = "#000000" if dark_text else "#ffffff"  # not "black": themes have their own idea of it
    return Style(color=readable, bgcolor=f"rgb({red},{green},{blue})")
