"""Figures as PNG, on a light ground.

A figure of attention is laid out by hand, in inches from the top left, so that labels have the room they need: for
each kind all layers and heads small on the left, one of them large on the right.

Dimensions: L layers, H heads, T queries, S keys.
"""

import textwrap
import warnings
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from rich.cells import cell_len
from torch import Tensor

from regard.decode.attend import Attention, Map
from regard.view.attend import WHAT, opened
from regard.view.terminal import short

DPI = 150
SMALL, NORMAL, LARGE = 7, 9, 13
"""of letters, in points"""
WIDTH = 0.65
"""of a letter, by its size: generous, for most texts"""
MARGIN, GAP = 0.3, 0.5
"""inches"""
TITLE, HEADS = 0.34, 0.25
"""inches of a kind's title, and of the line that numbers its heads"""
SPACE = 0.08
"""inches between two heads"""
INK, DIM, MARK = "#171c28", "#566072", "#c2410c"
LIGHT = LinearSegmentedColormap.from_list("look", ["#f6f7fa", "#cbe6dd", "#7ec2be", "#388cb2", "#255496", "#161c50"])
SCALE = PowerNorm(0.5, 0, 1)
"""by the square root, so that small weights are seen beside large ones"""
TICKS = (0, 0.01, 0.1, 0.25, 0.5, 1)
NUMBERED = 24
"""tokens of a side up to which each cell says its number"""
MOST = 400
"""tokens of a side that can be drawn: more would not be seen"""


def attention_png(attention: Attention, layer: int | None = None, head: int | None = None) -> bytes:
    """Every layer and head small and one of them large, for each kind: a head, or the mean of a layer's heads."""
    figure, buffer = attention_figure(attention, layer, head), BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a script that the font lacks shows as boxes
        figure.savefig(buffer, dpi=DPI, format="png")
    return buffer.getvalue()


def attention_figure(attention: Attention, layer: int | None = None, head: int | None = None) -> Figure:
    """The figure of `attention_png`."""
    for kind, each in attention.maps.items():
        if max(each.weights.shape[2:]) > MOST:
            size = " × ".join(map(str, each.weights.shape[2:]))
            raise ValueError(f"{kind}: {size} tokens are too many for a picture ({MOST} a side): shorten the text")
    blocks = [(kind, each, _Sizes(each)) for kind, each in attention.maps.items()]
    _align([sizes for *_, sizes in blocks])
    width = max(7.0, *(sizes.width for *_, sizes in blocks)) + 2 * MARGIN
    lines = _heading(attention, width)
    head_height = MARGIN + 0.35 + 0.2 * len(lines) + 0.2
    heights = [TITLE + sizes.height + GAP for *_, sizes in blocks]
    sheet = _Sheet(Figure(figsize=(width, head_height + sum(heights) + 0.3 + MARGIN), facecolor="white"))
    name = short(attention.model, _letters(width, LARGE) - len("What every head of  looks at"))
    sheet.text(MARGIN, MARGIN, f"What every head of {name} looks at", size=LARGE, weight="bold")
    for i, line in enumerate(lines):
        sheet.text(MARGIN, MARGIN + 0.35 + 0.2 * i, line, size=NORMAL, color=DIM)
    top = head_height
    for (kind, each, sizes), height in zip(blocks, heights, strict=True):
        sheet.text(MARGIN, top, WHAT[kind], size=NORMAL + 1, weight="bold")
        _draw_all(sheet, each, sizes, top + TITLE, layer, head)
        _draw_one(sheet, each, sizes, top + TITLE, layer, head)
        top += height
    _draw_scale(sheet, top)
    return sheet.figure


@dataclass(frozen=True)
class _Sheet:
    """A figure by inches from its top left."""

    figure: Figure

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Bare axes at a place."""
        w, h = self.figure.get_size_inches()
        axes = self.figure.add_axes((x / w, 1 - (y + height) / h, width / w, height / h))
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color("#d5dae3")
        return axes

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """A text whose top left is at a place, word for word: a $ is no formula."""
        w, h = self.figure.get_size_inches()
        look: dict[str, Any] = {"color": INK, "va": "top", "parse_math": False} | style
        self.figure.text(x / w, 1 - y / h, text, **look)


class _Sizes:
    """The inches that a kind's pictures take."""

    def __init__(self, each: Map) -> None:
        self.layers, self.heads, t, s = each.weights.shape
        self.rows = [short(row, 26) for row in each.rows]
        self.columns = [short(key, 14) for key in each.keys]
        self.cell = 0.24 if max(t, s) <= NUMBERED else 0.15
        self.font = NORMAL - 1 if max(t, s) <= NUMBERED else SMALL
        letter = WIDTH * self.font / 72
        self.left = letter * max(map(cell_len, self.rows)) + 0.1
        slanted = letter * max(map(cell_len, self.columns))
        self.above, self.beside = 0.3 + 0.87 * slanted, 0.5 * slanted + 0.1  # labels lean by 60 degrees
        self.one = s * self.cell + self.beside, self.above + t * self.cell
        high = (self.one[1] - HEADS + SPACE) / self.layers - SPACE  # of a head, so that all are as high as the one
        self.high = min(max(high, 0.5), 2.0)
        self.wide = self.high * min(max(s / t, 0.6), 1.4)
        self.label = 0.6

    @property
    def all(self) -> tuple[float, float]:
        """How wide and high all heads are together."""
        high = HEADS + self.layers * (self.high + SPACE) - SPACE
        return self.label + self.heads * (self.wide + SPACE) - SPACE, high

    @property
    def width(self) -> float:
        """Of all heads and the one."""
        return self.all[0] + GAP + self.left + max(self.one[0], 3.0)

    @property
    def height(self) -> float:
        """Of the higher of both."""
        return max(self.all[1], self.one[1])


def _align(blocks: list[_Sizes]) -> None:
    """Every kind's heads, and its large map, begin where those of the others do."""
    wide = min(max(sizes.wide for sizes in blocks), max(8.0 / blocks[0].heads, 0.5))
    left = max(sizes.left for sizes in blocks)
    for sizes in blocks:
        sizes.wide, sizes.left = wide, left
        sizes.high = min(sizes.high, wide / 0.6)


def _heading(attention: Attention, width: float) -> list[str]:
    """Source and target, in lines that fit and no more than a few."""
    texts = [attention.source] if attention.target is None else [attention.source, f"→ {attention.target}"]
    wrapped = [textwrap.wrap(text, _letters(width, NORMAL), max_lines=3, placeholder=" …") for text in texts]
    return [line for lines in wrapped for line in lines]


def _letters(width: float, size: int) -> int:
    """How many letters of a size fit between the margins."""
    return int((width - 2 * MARGIN) * 72 / (WIDTH * size))


def _draw_all(sheet: _Sheet, each: Map, sizes: _Sizes, top: float, layer: int | None, head: int | None) -> None:
    """A row for each layer, a column for each head, and a frame around what is shown large."""
    layers, heads = each.weights.shape[:2]
    shown = layers - 1 if layer is None else layer
    wide, high = sizes.wide, sizes.high
    for h in range(heads):
        middle = MARGIN + sizes.label + h * (wide + SPACE) + wide / 2
        sheet.text(middle, top, f"head {h}" if heads <= 12 else str(h), size=SMALL, ha="center", color=DIM)
    for number in range(layers):
        y = top + HEADS + number * (high + SPACE)
        sheet.text(MARGIN, y + high / 2, f"layer {number}", size=SMALL, va="center", color=DIM)
        for h in range(heads):
            axes = sheet.axes(MARGIN + sizes.label + h * (wide + SPACE), y, wide, high)
            _image(axes, each.weights[number, h])
            if number == shown and head in (None, h):
                _frame(axes)


def _draw_one(sheet: _Sheet, each: Map, sizes: _Sizes, top: float, layer: int | None, head: int | None) -> None:
    """One map with its tokens and, where there is room, its numbers."""
    weights = each.open(layer, head)  # [T, S]
    t, s = weights.shape
    left = MARGIN + sizes.all[0] + GAP + sizes.left
    sheet.text(left, top, opened(each, layer, head), size=NORMAL - 1, color=MARK)
    axes = sheet.axes(left, top + sizes.above, s * sizes.cell, t * sizes.cell)
    _image(axes, weights)
    label: dict[str, Any] = {"size": sizes.font, "color": INK, "parse_math": False, "clip_on": False}
    for i, row in enumerate(sizes.rows):
        axes.text(-0.7, i, row, ha="right", va="center", **label)
    for i, column in enumerate(sizes.columns):
        axes.text(i - 0.2, -0.65, column, ha="left", va="bottom", rotation=60, rotation_mode="anchor", **label)
    if max(t, s) <= NUMBERED:
        _number(axes, weights)
    _frame(axes)


def _number(axes: Axes, weights: Float[Tensor, "T S"]) -> None:
    """Per cent in each cell that has one."""
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            if weight >= 0.005:
                color = "white" if weight > 0.25 else INK
                axes.text(j, i, f"{100 * weight:.0f}", ha="center", va="center", size=SMALL - 1, color=color)


def _frame(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set(color=MARK, linewidth=1.5)


def _image(axes: Axes, weights: Float[Tensor, "T S"]) -> None:
    axes.imshow(weights.numpy(), cmap=LIGHT, norm=SCALE, aspect="auto", interpolation="nearest")


def _draw_scale(sheet: _Sheet, top: float) -> None:
    """Which colour is how much."""
    axes = sheet.axes(MARGIN + 0.6, top, 2.4, 0.12)
    axes.imshow([[i / 255 for i in range(256)]], cmap=LIGHT, aspect="auto", extent=(0, 1, 0, 1))
    axes.set_xticks([tick**0.5 for tick in TICKS], [f"{100 * tick:g}" for tick in TICKS], size=SMALL, color=DIM)
    axes.tick_params(length=2, color=DIM)
    sheet.text(MARGIN, top + 0.06, "per cent", size=SMALL, va="center", color=DIM)
