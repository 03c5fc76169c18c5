"""Helpers for tests of labs: running a lab with other sizes, and checking its result."""

from io import BytesIO

from matplotlib.figure import Figure

from regard.labs.lab import LabResult, load_lab


def run_lab_with(name: str, *changes: str) -> LabResult:
    """Run a lab with some sizes changed."""
    lab = load_lab(name).with_sizes(changes)
    return lab.run(lab.sizes)


def failing(result: LabResult) -> list[int]:
    """Return the indices of the claims that the measurement does not confirm."""
    return [number for number, claim in enumerate(result.claims) if not claim.holds]


def render(result: LabResult) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=result.figure_size, layout="constrained")
    result.draw(figure)
    figure.savefig(BytesIO())
    return figure


def check_complete(result: LabResult) -> None:
    """Check that every table has rows of equal length, and every panel of the figure has a title and data."""
    for table in result.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert all(axes.has_data() and axes.get_title(loc="left") for axes in render(result).axes)
