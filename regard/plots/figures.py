"""Figures as PNG, on a light ground.

A figure of attention is laid out by hand, in inches from the top left, so that labels have the room they need: for
each kind all layers and heads small on the left, one of them large on the right. The curves of a run stand one below
the other, over the same steps.

Dimensions: L layers, H heads, T queries, S keys.
"""

import math
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from rich.cells import cell_len
from torch import Tensor

from regard.decoding.attention_maps import Attention, AttentionMap
from regard.errors import RegardError
from regard.plots.attention_view import KIND_TITLES, describe_selection
from regard.plots.heat_map import shorten_to_width
from regard.training.events import Stepped, Validated

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
CURVES = 8.0
"""inches that the curves of a run are wide"""
CALM, FRAME, GRID = "#388cb2", "#d5dae3", "#eceff4"


def attention_png(attention: Attention, layer: int | None = None, head: int | None = None) -> bytes:
    """Every layer and head small and one of them large, for each kind: a head, or the mean of a layer's heads."""
    return png(attention_figure(attention, layer, head))


def curves_png(stepped: Sequence[Stepped], validated: Sequence[Validated], title: str) -> bytes:
    """Losses, score and learning rate of a run over its steps."""
    return png(curves_figure(stepped, validated, title))


def curves_figure(stepped: Sequence[Stepped], validated: Sequence[Validated], title: str) -> Figure:
    """The figure of `curves_png`; what there is nothing of is left out."""
    scored = [each for each in validated if each.score is not None]
    heights = [2.6] + [1.5] * bool(scored) + [1.1] * bool(stepped)
    top, bottom, gap, label = MARGIN + 0.2, 0.55, 0.42, 0.6
    height = top + sum(heights) + gap * len(heights) + bottom
    sheet = _Sheet(Figure(figsize=(CURVES, height), facecolor="white"))
    sheet.text(MARGIN, MARGIN, shorten_to_width(title, _letters(CURVES, LARGE)), size=LARGE, weight="bold")
    last = max([*(each.step for each in stepped), *(each.step for each in validated)], default=1)
    axes = []
    for high in heights:
        axes.append(_curve_axes(sheet, MARGIN + label, top + gap, CURVES - 2 * MARGIN - label, high, last))
        top += high + gap
    _draw_losses(axes[0], stepped, validated)
    if scored:
        _draw_scores(axes[1], scored)
    if stepped:
        _name(axes[-1], "learning rate")
        axes[-1].plot([each.step for each in stepped], [each.lr for each in stepped], color=DIM, linewidth=1.2)
        axes[-1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.1e}" if value else "0"))
        axes[-1].set_ylim(bottom=0)
    for upper in axes[:-1]:
        upper.tick_params(labelbottom=False)
    axes[-1].set_xlabel("steps", size=NORMAL - 1, color=DIM)
    return sheet.figure


def png(figure: Figure) -> bytes:
    """A figure as a file; the same figure gives the same bytes."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a script that the font lacks shows as boxes
        figure.savefig(buffer, dpi=DPI, format="png", metadata={"Software": None})
    return buffer.getvalue()


def attention_figure(attention: Attention, layer: int | None = None, head: int | None = None) -> Figure:
    """The figure of `attention_png`."""
    for kind, each in attention.maps.items():
        if max(each.weights.shape[2:]) > MOST:
            size = " × ".join(map(str, each.weights.shape[2:]))
            raise RegardError(f"{kind}: {size} tokens are too many for a picture ({MOST} a side): shorten the text")
    blocks = [(kind, each, _Sizes(each)) for kind, each in attention.maps.items()]
    _align([sizes for *_, sizes in blocks])
    width = max(7.0, *(sizes.width for *_, sizes in blocks)) + 2 * MARGIN
    lines = _heading(attention, width)
    head_height = MARGIN + 0.35 + 0.2 * len(lines) + 0.2
    heights = [TITLE + sizes.height + GAP for *_, sizes in blocks]
    sheet = _Sheet(Figure(figsize=(width, head_height + sum(heights) + 0.3 + MARGIN), facecolor="white"))
    name = shorten_to_width(attention.model, _letters(width, LARGE) - len("What every head of  looks at"))
    sheet.text(MARGIN, MARGIN, f"What every head of {name} looks at", size=LARGE, weight="bold")
    for i, line in enumerate(lines):
        sheet.text(MARGIN, MARGIN + 0.35 + 0.2 * i, line, size=NORMAL, color=DIM)
    top = head_height
    for (kind, each, sizes), height in zip(blocks, heights, strict=True):
        sheet.text(MARGIN, top, KIND_TITLES[kind], size=NORMAL + 1, weight="bold")
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
            spine.set_color(FRAME)
        return axes

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """A text whose top left is at a place, word for word: a $ is no formula."""
        w, h = self.figure.get_size_inches()
        look: dict[str, Any] = {"color": INK, "va": "top", "parse_math": False} | style
        self.figure.text(x / w, 1 - y / h, text, **look)


class _Sizes:
    """The inches that a kind's pictures take."""

    def __init__(self, each: AttentionMap) -> None:
        self.layers, self.heads, t, s = each.weights.shape
        self.rows = [shorten_to_width(row, 26) for row in each.rows]
        self.columns = [shorten_to_width(key, 14) for key in each.keys]
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


def _draw_all(
    sheet: _Sheet, each: AttentionMap, sizes: _Sizes, top: float, layer: int | None, head: int | None
) -> None:
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


def _draw_one(
    sheet: _Sheet, each: AttentionMap, sizes: _Sizes, top: float, layer: int | None, head: int | None
) -> None:
    """One map with its tokens and, where there is room, its numbers."""
    weights = each.open(layer, head)  # [T, S]
    t, s = weights.shape
    left = MARGIN + sizes.all[0] + GAP + sizes.left
    sheet.text(left, top, describe_selection(each, layer, head), size=NORMAL - 1, color=MARK)
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


def _curve_axes(sheet: _Sheet, x: float, y: float, width: float, height: float, last: int) -> Axes:
    """Axes over steps, with a faint grid."""
    axes = sheet.axes(x, y, width, height)
    axes.set_xlim(0, last * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(6 if height > 2 else 3, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(labelsize=SMALL, labelcolor=DIM, length=0)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return axes


def _name(axes: Axes, name: str) -> None:
    """What a curve is of, above it on the left."""
    axes.set_title(name, loc="left", size=NORMAL, color=INK, pad=5, parse_math=False)


def _draw_losses(axes: Axes, stepped: Sequence[Stepped], validated: Sequence[Validated]) -> None:
    _name(axes, "loss, in nats")
    axes.margins(y=0.1)
    axes.plot([each.step for each in stepped], _finite(each.loss for each in stepped), color=CALM, label="training")
    if validated:
        _draw_validated(axes, validated, _finite(each.loss for each in validated), "validation", ".3f", below=True)
    if stepped or validated:
        axes.legend(frameon=False, fontsize=NORMAL - 1, labelcolor=INK, loc="upper right")


def _draw_scores(axes: Axes, scored: Sequence[Validated]) -> None:
    _name(axes, "accuracy, per cent" if scored[0].measure == "accuracy" else f"{scored[0].measure} on validation")
    values = _finite(each.score or 0.0 for each in scored)
    _draw_validated(axes, scored, values)
    axes.set_ylim(0, 1.2 * max([value for value in values if value > 0], default=1.0))


def _draw_validated(
    axes: Axes,
    validated: Sequence[Validated],
    values: Sequence[float],
    label: str = "",
    digits: str = ".1f",
    below: bool = False,
) -> None:
    """A line with a point for each validation, and a ring around the best, which is the last one that was."""
    steps = [each.step for each in validated]
    axes.plot(steps, values, color=MARK, marker="o", markersize=3, linewidth=1.2, label=label or None, clip_on=False)
    best = [(each.step, value) for each, value in zip(validated, values, strict=True) if each.best]
    for step, value in best[-1:]:
        ring: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none", "linestyle": "none", "clip_on": False}
        axes.plot([step], [value], marker="o", color=MARK, label="the best" if label else None, **ring)
        side = "right" if step > 0.9 * axes.get_xlim()[1] else "center"  # not over the edge
        place: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "top" if below else "bottom"}
        axes.annotate(f"{value:{digits}}", (step, value), (0, -7 if below else 7), size=NORMAL - 1, color=MARK, **place)


def _finite(values: Iterable[float]) -> list[float]:
    """What is not finite is a gap."""
    return [value if math.isfinite(value) else math.nan for value in values]
