"""Drawing without a screen, for tests of code that shows pictures."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def drawing_to_memory() -> Iterator[list[object]]:
    """Collect the figures that `plt.show()` would show. Skips the test if matplotlib is not installed."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figures: list[object] = []

    def show() -> None:
        figures.append(plt.gcf())
        plt.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plt, "show", show)
        yield figures
