"""PNG figures of attention and of training curves, on a light background.

A figure of attention is laid out by hand, in inches from the top left, so that labels have enough room: for each kind,
all layers and heads small on the left and one of them large on the right. The curves of a run are stacked over a common
axis of steps.

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
SMALL_FONT, NORMAL_FONT, LARGE_FONT = 7, 9, 13
"""Font sizes in points."""
LETTER_WIDTH = 0.65
"""Width of a letter relative to its font size; a generous estimate for most texts."""
MARGIN, GAP = 0.3, 0.5
"""Outer margin, and gap between the small and the large maps, in inches."""
TITLE_HEIGHT, HEADS_HEIGHT = 0.34, 0.25
"""Height of a kind's title, and of the line that numbers its heads, in inches."""
HEAD_SPACING = 0.08
"""Space between two heads, in inches."""
TEXT_COLOUR, DIM_COLOUR, HIGHLIGHT_COLOUR = "#171c28", "#566072", "#c2410c"
WEIGHT_COLOURS = LinearSegmentedColormap.from_list(
    "attention", ["#f6f7fa", "#cbe6dd", "#7ec2be", "#388cb2", "#255496", "#161c50"]
)
WEIGHT_SCALE = PowerNorm(0.5, 0, 1)
"""Square-root scale, so that small weights are visible next to large ones."""
SCALE_TICKS = (0, 0.01, 0.1, 0.25, 0.5, 1)
MAX_NUMBERED_TOKENS = 24
"""Maximum number of tokens on a side for which each cell shows its number."""
MAX_TOKENS = 400
"""Maximum number of tokens on a side of a picture; more could not be distinguished."""
CURVES_WIDTH = 8.0
"""Width of the figure of training curves, in inches."""
TRAINING_COLOUR, FRAME_COLOUR, GRID_COLOUR = "#388cb2", "#d5dae3", "#eceff4"


def attention_png(attention: Attention, layer: int | None = None, head: int | None = None) -> bytes:
    """A picture of every layer and head, with one head or the mean of a layer's heads enlarged, for each kind."""
    return png(attention_figure(attention, layer, head))


def curves_png(stepped: Sequence[Stepped], validated: Sequence[Validated], title: str) -> bytes:
    """A picture of a run's losses, score and learning rate over its steps."""
    return png(curves_figure(stepped, validated, title))


def curves_figure(stepped: Sequence[Stepped], validated: Sequence[Validated], title: str) -> Figure:
    """The figure of `curves_png`; curves without data are left out."""
    scored = [event for event in validated if event.score is not None]
    heights = [2.6]
    if scored:
        heights.append(1.5)
    if stepped:
        heights.append(1.1)
    top, bottom, gap, label = MARGIN + 0.2, 0.55, 0.42, 0.6
    height = top + sum(heights) + gap * len(heights) + bottom
    sheet = _Sheet(Figure(figsize=(CURVES_WIDTH, height), facecolor="white"))
    sheet.text(
        MARGIN, MARGIN, shorten_to_width(title, _letters(CURVES_WIDTH, LARGE_FONT)), size=LARGE_FONT, weight="bold"
    )
    last_step = max([*(event.step for event in stepped), *(event.step for event in validated)], default=1)
    axes = []
    for curve_height in heights:
        width = CURVES_WIDTH - 2 * MARGIN - label
        axes.append(_curve_axes(sheet, MARGIN + label, top + gap, width, curve_height, last_step))
        top += curve_height + gap
    _draw_losses(axes[0], stepped, validated)
    if scored:
        _draw_scores(axes[1], scored)
    if stepped:
        _name(axes[-1], "learning rate")
        axes[-1].plot(
            [event.step for event in stepped], [event.lr for event in stepped], color=DIM_COLOUR, linewidth=1.2
        )
        axes[-1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.1e}" if value else "0"))
        axes[-1].set_ylim(bottom=0)
    for upper in axes[:-1]:
        upper.tick_params(labelbottom=False)
    axes[-1].set_xlabel("steps", size=NORMAL_FONT - 1, color=DIM_COLOUR)
    return sheet.figure


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file; the same figure gives the same bytes."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a script that the font lacks is shown as boxes
        figure.savefig(buffer, dpi=DPI, format="png", metadata={"Software": None})
    return buffer.getvalue()


def attention_figure(attention: Attention, layer: int | None = None, head: int | None = None) -> Figure:
    """The figure of `attention_png`."""
    for kind, attention_map in attention.maps.items():
        if max(attention_map.weights.shape[2:]) > MAX_TOKENS:
            size = " × ".join(map(str, attention_map.weights.shape[2:]))
            raise RegardError(
                f"{kind}: {size} tokens are too many for a picture (at most {MAX_TOKENS} on a side): shorten the text"
            )
    blocks = [(kind, attention_map, _MapLayout(attention_map)) for kind, attention_map in attention.maps.items()]
    _align([sizes for *_, sizes in blocks])
    width = max(7.0, *(sizes.width for *_, sizes in blocks)) + 2 * MARGIN
    lines = _heading(attention, width)
    head_height = MARGIN + 0.35 + 0.2 * len(lines) + 0.2
    heights = [TITLE_HEIGHT + sizes.height + GAP for *_, sizes in blocks]
    sheet = _Sheet(Figure(figsize=(width, head_height + sum(heights) + 0.3 + MARGIN), facecolor="white"))
    name = shorten_to_width(attention.model, _letters(width, LARGE_FONT) - len("Attention of every head of "))
    sheet.text(MARGIN, MARGIN, f"Attention of every head of {name}", size=LARGE_FONT, weight="bold")
    for i, line in enumerate(lines):
        sheet.text(MARGIN, MARGIN + 0.35 + 0.2 * i, line, size=NORMAL_FONT, color=DIM_COLOUR)
    top = head_height
    for (kind, attention_map, sizes), height in zip(blocks, heights, strict=True):
        sheet.text(MARGIN, top, KIND_TITLES[kind], size=NORMAL_FONT + 1, weight="bold")
        _draw_all(sheet, attention_map, sizes, top + TITLE_HEIGHT, layer, head)
        _draw_one(sheet, attention_map, sizes, top + TITLE_HEIGHT, layer, head)
        top += height
    _draw_scale(sheet, top)
    return sheet.figure


@dataclass(frozen=True)
class _Sheet:
    """A figure addressed in inches from its top left."""

    figure: Figure

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes without ticks at a position."""
        w, h = self.figure.get_size_inches()
        axes = self.figure.add_axes((x / w, 1 - (y + height) / h, width / w, height / h))
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(FRAME_COLOUR)
        return axes

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """A text with its top left at a position, taken literally: a $ does not start a formula."""
        w, h = self.figure.get_size_inches()
        options: dict[str, Any] = {"color": TEXT_COLOUR, "va": "top", "parse_math": False} | style
        self.figure.text(x / w, 1 - y / h, text, **options)


class _MapLayout:
    """The sizes of one kind's pictures, in inches."""

    def __init__(self, attention_map: AttentionMap) -> None:
        self.layers, self.heads, t, s = attention_map.weights.shape
        self.rows = [shorten_to_width(row, 26) for row in attention_map.rows]
        self.columns = [shorten_to_width(key, 14) for key in attention_map.keys]
        self.cell = 0.24 if max(t, s) <= MAX_NUMBERED_TOKENS else 0.15
        self.font = NORMAL_FONT - 1 if max(t, s) <= MAX_NUMBERED_TOKENS else SMALL_FONT
        letter = LETTER_WIDTH * self.font / 72
        self.left = letter * max(map(cell_len, self.rows)) + 0.1
        slanted = letter * max(map(cell_len, self.columns))
        self.above, self.label_overhang = 0.3 + 0.87 * slanted, 0.5 * slanted + 0.1  # labels are rotated by 60 degrees
        self.one = s * self.cell + self.label_overhang, self.above + t * self.cell
        high = (
            self.one[1] - HEADS_HEIGHT + HEAD_SPACING
        ) / self.layers - HEAD_SPACING  # so that all heads together are as high as the large map
        self.high = min(max(high, 0.5), 2.0)
        self.wide = self.high * min(max(s / t, 0.6), 1.4)
        self.label = 0.6

    @property
    def all(self) -> tuple[float, float]:
        """Width and height of all heads together."""
        high = HEADS_HEIGHT + self.layers * (self.high + HEAD_SPACING) - HEAD_SPACING
        return self.label + self.heads * (self.wide + HEAD_SPACING) - HEAD_SPACING, high

    @property
    def width(self) -> float:
        """Width of all heads and the large map."""
        return self.all[0] + GAP + self.left + max(self.one[0], 3.0)

    @property
    def height(self) -> float:
        """Height of the taller of the two."""
        return max(self.all[1], self.one[1])


def _align(blocks: list[_MapLayout]) -> None:
    """Align the heads and the large maps of all kinds."""
    wide = min(max(sizes.wide for sizes in blocks), max(8.0 / blocks[0].heads, 0.5))
    left = max(sizes.left for sizes in blocks)
    for sizes in blocks:
        sizes.wide, sizes.left = wide, left
        sizes.high = min(sizes.high, wide / 0.6)


def _heading(attention: Attention, width: float) -> list[str]:
    """Source and target, wrapped to at most three lines each."""
    texts = [attention.source] if attention.target is None else [attention.source, f"→ {attention.target}"]
    wrapped = [textwrap.wrap(text, _letters(width, NORMAL_FONT), max_lines=3, placeholder=" …") for text in texts]
    return [line for lines in wrapped for line in lines]


def _letters(width: float, size: int) -> int:
    """Number of letters of a font size that fit between the margins."""
    return int((width - 2 * MARGIN) * 72 / (LETTER_WIDTH * size))


def _draw_all(
    sheet: _Sheet, attention_map: AttentionMap, sizes: _MapLayout, top: float, layer: int | None, head: int | None
) -> None:
    """Draw a row for each layer and a column for each head, with a frame around what is enlarged."""
    layers, heads = attention_map.weights.shape[:2]
    shown = layers - 1 if layer is None else layer
    wide, high = sizes.wide, sizes.high
    for h in range(heads):
        middle = MARGIN + sizes.label + h * (wide + HEAD_SPACING) + wide / 2
        sheet.text(middle, top, f"head {h}" if heads <= 12 else str(h), size=SMALL_FONT, ha="center", color=DIM_COLOUR)
    for number in range(layers):
        y = top + HEADS_HEIGHT + number * (high + HEAD_SPACING)
        sheet.text(MARGIN, y + high / 2, f"layer {number}", size=SMALL_FONT, va="center", color=DIM_COLOUR)
        for h in range(heads):
            axes = sheet.axes(MARGIN + sizes.label + h * (wide + HEAD_SPACING), y, wide, high)
            _image(axes, attention_map.weights[number, h])
            if number == shown and head in (None, h):
                _frame(axes)


def _draw_one(
    sheet: _Sheet, attention_map: AttentionMap, sizes: _MapLayout, top: float, layer: int | None, head: int | None
) -> None:
    """Draw one map with its tokens and, if there is room, its numbers."""
    weights = attention_map.open(layer, head)  # [T, S]
    t, s = weights.shape
    left = MARGIN + sizes.all[0] + GAP + sizes.left
    sheet.text(left, top, describe_selection(attention_map, layer, head), size=NORMAL_FONT - 1, color=HIGHLIGHT_COLOUR)
    axes = sheet.axes(left, top + sizes.above, s * sizes.cell, t * sizes.cell)
    _image(axes, weights)
    label: dict[str, Any] = {"size": sizes.font, "color": TEXT_COLOUR, "parse_math": False, "clip_on": False}
    for i, row in enumerate(sizes.rows):
        axes.text(-0.7, i, row, ha="right", va="center", **label)
    for i, column in enumerate(sizes.columns):
        axes.text(i - 0.2, -0.65, column, ha="left", va="bottom", rotation=60, rotation_mode="anchor", **label)
    if max(t, s) <= MAX_NUMBERED_TOKENS:
        _number(axes, weights)
    _frame(axes)


def _number(axes: Axes, weights: Float[Tensor, "T S"]) -> None:
    """Write the weight in per cent into each cell that is not close to 0."""
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            if weight >= 0.005:
                color = "white" if weight > 0.25 else TEXT_COLOUR
                axes.text(j, i, f"{100 * weight:.0f}", ha="center", va="center", size=SMALL_FONT - 1, color=color)


def _frame(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set(color=HIGHLIGHT_COLOUR, linewidth=1.5)


def _image(axes: Axes, weights: Float[Tensor, "T S"]) -> None:
    axes.imshow(weights.numpy(), cmap=WEIGHT_COLOURS, norm=WEIGHT_SCALE, aspect="auto", interpolation="nearest")


def _draw_scale(sheet: _Sheet, top: float) -> None:
    """Draw the legend of the colours."""
    axes = sheet.axes(MARGIN + 0.6, top, 2.4, 0.12)
    axes.imshow([[i / 255 for i in range(256)]], cmap=WEIGHT_COLOURS, aspect="auto", extent=(0, 1, 0, 1))
    axes.set_xticks(
        [tick**0.5 for tick in SCALE_TICKS],
        [f"{100 * tick:g}" for tick in SCALE_TICKS],
        size=SMALL_FONT,
        color=DIM_COLOUR,
    )
    axes.tick_params(length=2, color=DIM_COLOUR)
    sheet.text(MARGIN, top + 0.06, "per cent", size=SMALL_FONT, va="center", color=DIM_COLOUR)


def _curve_axes(sheet: _Sheet, x: float, y: float, width: float, height: float, last: int) -> Axes:
    """Axes over the steps, with a faint grid."""
    axes = sheet.axes(x, y, width, height)
    axes.set_xlim(0, last * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(6 if height > 2 else 3, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(labelsize=SMALL_FONT, labelcolor=DIM_COLOUR, length=0)
    axes.grid(color=GRID_COLOUR, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return axes


def _name(axes: Axes, name: str) -> None:
    """Set the title of a curve, above it on the left."""
    axes.set_title(name, loc="left", size=NORMAL_FONT, color=TEXT_COLOUR, pad=5, parse_math=False)


def _draw_losses(axes: Axes, stepped: Sequence[Stepped], validated: Sequence[Validated]) -> None:
    _name(axes, "loss, in nats")
    axes.margins(y=0.1)
    axes.plot(
        [event.step for event in stepped],
        _finite(event.loss for event in stepped),
        color=TRAINING_COLOUR,
        label="training",
    )
    if validated:
        _draw_validated(axes, validated, _finite(event.loss for event in validated), "validation", ".3f", below=True)
    if stepped or validated:
        axes.legend(frameon=False, fontsize=NORMAL_FONT - 1, labelcolor=TEXT_COLOUR, loc="upper right")


def _draw_scores(axes: Axes, scored: Sequence[Validated]) -> None:
    _name(axes, "accuracy, per cent" if scored[0].measure == "accuracy" else f"{scored[0].measure} on validation")
    values = _finite(event.score or 0.0 for event in scored)
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
    """Draw a line with a point for each validation, and a ring around the best, which is the last marked as such."""
    steps = [event.step for event in validated]
    axes.plot(
        steps,
        values,
        color=HIGHLIGHT_COLOUR,
        marker="o",
        markersize=3,
        linewidth=1.2,
        label=label or None,
        clip_on=False,
    )
    best = [(event.step, value) for event, value in zip(validated, values, strict=True) if event.best]
    for step, value in best[-1:]:
        ring: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none", "linestyle": "none", "clip_on": False}
        axes.plot([step], [value], marker="o", color=HIGHLIGHT_COLOUR, label="best" if label else None, **ring)
        side = "right" if step > 0.9 * axes.get_xlim()[1] else "center"  # so that it stays inside the figure
        position: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "top" if below else "bottom"}
        axes.annotate(
            f"{value:{digits}}",
            (step, value),
            (0, -7 if below else 7),
            size=NORMAL_FONT - 1,
            color=HIGHLIGHT_COLOUR,
            **position,
        )


def _finite(values: Iterable[float]) -> list[float]:
    """The values with NaN, which leaves a gap, for those that are not finite."""
    return [value if math.isfinite(value) else math.nan for value in values]
