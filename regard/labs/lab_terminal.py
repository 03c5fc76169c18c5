"""A lab's result in the terminal: all of it can be read without colours.

What is not borne out is never printed as a conclusion: it stands apart, under a heading that says so.
"""

import ast
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from itertools import pairwise
from textwrap import dedent
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from regard import __version__
from regard.formatting import duration, visible
from regard.labs.lab import Claim, Lab, Result, Table
from regard.plots.score_tables import plain_table

WIDEST = 100
"""columns of prose: longer lines are no joy to read"""
HELD, FAILED = "Conclusions", "Not borne out this time"
SIGNS = {HELD: "✓", FAILED: "✗"}
FIGURE = re.compile(r"[+\-−±≈<>≤≥~]?\s?[\d.]|[–-]$")
"""how a cell that is a figure begins, or says that there is none"""


@dataclass(frozen=True)
class Done:
    """A lab that was run."""

    lab: Lab
    result: Result
    command: str
    """what ran it"""
    seconds: float

    @property
    def circumstances(self) -> str:
        """With what it was measured, and how long that took."""
        return f"Regard {__version__}, PyTorch {version('torch')}, {duration(self.seconds)}."


def show_sizes(console: Console, lab: Lab) -> None:
    """What can be made larger or smaller."""
    console.print(Text(visible(lab.question), "bold"))
    console.print()
    _show_table(console, sizes_table(lab.sizes))
    name = fields(lab.sizes)[0].name
    console.print(f"Change one by --set {name}=VALUE; several numbers are parted by commas.", style="dim")


def show(console: Console, done: Done) -> None:
    """Question, set-up, what was measured, what follows from it and what does not."""
    lab, result = done.lab, done.result
    console.print(Text(visible(lab.question), "bold"))
    for paragraph in paragraphs(lab.set_up):
        console.print()
        _say(console, paragraph)
    for table in result.tables:
        console.print()
        _show_table(console, table)
    for heading, claims in verdicts(result.claims).items():
        console.print()
        console.print(Text(heading, "bold" if heading == HELD else "bold red"))
        for claim in claims:
            _item(console, Text(SIGNS[heading], "green" if heading == HELD else "red"), claim.says)
    if result.notes:
        console.print()
        for note in result.notes:
            _item(console, Text("·", "dim"), note, "dim")
    console.print(Text(f"\n{held(result)}; {duration(done.seconds)}", "dim"))


def verdicts(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Claims under what may be said of them: those that hold, and those that do not."""
    found = {HELD: [each for each in claims if each.holds], FAILED: [each for each in claims if not each.holds]}
    return {heading: those for heading, those in found.items() if those}


def held(result: Result) -> str:
    """How many of the claims hold.

    >>> held(Result((), (Claim("so", True), Claim("not so", False)), draw=print))
    '1 of 2 conclusions borne out'
    """
    return f"{sum(claim.holds for claim in result.claims)} of {len(result.claims)} conclusions borne out"


def paragraphs(text: str) -> list[str]:
    r"""The paragraphs of a text, each in one line; an item of a list is one of its own.

    >>> paragraphs("One\nline.\n\n- two\n- three,\n  still")
    ['One line.', '- two', '- three, still']
    """
    blocks = re.split(r"\n\s*\n|\n(?=\s*- )", text)
    return [" ".join(block.split()) for block in blocks if block.strip()]


def numbers(table: Table) -> list[bool]:
    """Which columns hold figures, to be set to the right; the first never does."""
    told = [[row[i] for row in table.rows if row[i].strip()] for i in range(len(table.columns))]
    return [i > 0 and all(FIGURE.match(cell) for cell in cells) for i, cells in enumerate(told)]


def sizes_table(sizes: Any) -> Table:
    """Each size, what it is, and what that means."""
    meanings = _meanings(type(sizes))
    rows = [(each.name, given(getattr(sizes, each.name)), meanings.get(each.name, "")) for each in fields(sizes)]
    return Table(("size", "value", "meaning"), tuple(rows))


def given(value: Any) -> str:
    """A value as it is given to --set."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meanings(kind: type[Any]) -> dict[str, str]:
    """The string below each field, as the source has it."""
    (body,) = (node.body for node in ast.parse(dedent(inspect.getsource(kind))).body if isinstance(node, ast.ClassDef))
    return {
        node.target.id: " ".join(str(below.value.value).split())
        for node, below in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _say(console: Console, text: str) -> None:
    if text.startswith("- "):
        _item(console, Text("·"), text[2:])
    else:
        console.print(Text(visible(text)), width=min(console.width, WIDEST))


def _item(console: Console, sign: Text, text: str, style: str = "") -> None:
    """A sign, and a text beside it."""
    row = plain_table("", "")
    row.add_row(sign, Text(visible(text), style))
    console.print(Padding(row, (0, 0, 0, 2), expand=False), width=min(console.width, WIDEST))


def _show_table(console: Console, table: Table) -> None:
    if table.title:
        console.print(Text(visible(table.title), "bold"))
    right = numbers(table)
    drawn = plain_table()
    drawn.show_header = True
    for name, figures in zip(table.columns, right, strict=True):
        drawn.add_column(Text(visible(name)), justify="right" if figures else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    console.print(drawn)
