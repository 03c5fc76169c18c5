"""What tests of labs have in common."""

from io import BytesIO

from matplotlib.figure import Figure

from regard.labs.lab import Result, lab


def measured(name: str, *changes: str) -> Result:
    """What a lab finds in other sizes than its usual ones."""
    chosen = lab(name).sized(changes)
    return chosen.run(chosen.sizes)


def failing(result: Result) -> list[int]:
    """Which claims the measurement does not bear out, by number."""
    return [number for number, claim in enumerate(result.claims) if not claim.holds]


def drawn(result: Result) -> Figure:
    """The picture, rendered."""
    figure = Figure(figsize=result.size, layout="constrained")
    result.draw(figure)
    figure.savefig(BytesIO())
    return figure


def check_whole(result: Result) -> None:
    """Tables of equal rows, and a picture whose every panel has a title and something in it."""
    for table in result.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert all(axes.has_data() and axes.get_title(loc="left") for axes in drawn(result).axes)
