"""Drawing functions that labs share, with colours that colour-blind people can distinguish (Okabe and Ito)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    *("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#767676"),
)
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY)


def panel(figure: "Figure", columns: int, number: int, title: str, x: str = "", y: str = "", rows: int = 1) -> "Axes":
    """Add a panel to a figure with a grid of panels; `number` counts from 1, row by row."""
    axes = figure.add_subplot(rows, columns, number)
    axes.set_title(title, fontsize=10, loc="left", color="#222222")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8, colors="#444444")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def legend(axes: "Axes") -> None:
    """Add a legend without a frame."""
    axes.legend(frameon=False, fontsize=8)


def heatmap(axes: "Axes", values: "Tensor", low: float = 0.0, high: float = 1.0, digits: int | None = None) -> None:
    """Draw a matrix with its first row on top and higher values darker; -∞ is grey. With `digits`, print the values."""
    import matplotlib as mpl

    colours = mpl.colormaps["Blues"].with_extremes(bad="#d9d9d9")
    finite = values.masked_fill(values.isinf(), float("nan")).numpy()
    axes.imshow(finite, cmap=colours, vmin=low, vmax=high, aspect="auto")
    for side in axes.spines.values():
        side.set_visible(False)
    for i, row in enumerate(values.tolist() if digits is not None else []):
        for j, value in enumerate(row):
            text = "−∞" if value == float("-inf") else f"{value:.{digits}f}"
            colour = "white" if value > low + 0.6 * (high - low) else "#222222"
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
