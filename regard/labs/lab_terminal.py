"""A lab's record in the terminal, readable without colours.

Claims that the measurement does not confirm are never printed as conclusions; they have a heading of their own.
"""

from dataclasses import fields

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from regard.formatting import duration, visible
from regard.labs.lab import Lab, ResultTable
from regard.labs.lab_markdown import CONFIRMED_HEADING, SIGNS, claims_by_heading, numeric_columns
from regard.labs.lab_record import LabRecord, described_sizes, sizes_table
from regard.plots.score_tables import plain_table

MAX_PROSE_WIDTH = 100
"""Maximum number of columns that prose is wrapped to; longer lines are hard to read."""


def show_sizes(console: Console, lab: Lab) -> None:
    """Print a lab's sizes and their meanings."""
    console.print(Text(visible(lab.question), "bold"))
    console.print()
    _show_table(console, sizes_table(described_sizes(lab.sizes)))
    name = fields(lab.sizes)[0].name
    console.print(f"Change a size with --set {name}=VALUE. Separate several numbers with commas.", style="dim")


def show(console: Console, record: LabRecord) -> None:
    """Print the question, the description, the tables, the claims and the notes."""
    console.print(Text(visible(record.question), "bold"))
    for paragraph in record.about:
        console.print()
        _show_paragraph(console, paragraph)
    for table in record.tables:
        console.print()
        _show_table(console, table)
    for heading, claims in claims_by_heading(record.claims).items():
        confirmed = heading == CONFIRMED_HEADING
        console.print()
        console.print(Text(heading, "bold" if confirmed else "bold red"))
        for claim in claims:
            _show_item(console, Text(SIGNS[heading], "green" if confirmed else "red"), claim.text)
    if record.notes:
        console.print()
        for note in record.notes:
            _show_item(console, Text("·", "dim"), note, "dim")
    console.print(Text(f"\n{record.confirmed}; {duration(record.seconds)}", "dim"))


def _show_paragraph(console: Console, text: str) -> None:
    if text.startswith("- "):
        _show_item(console, Text("·"), text[2:])
    else:
        console.print(Text(visible(text)), width=min(console.width, MAX_PROSE_WIDTH))


def _show_item(console: Console, sign: Text, text: str, style: str = "") -> None:
    """Print a sign and, next to it, a text."""
    row = plain_table("", "")
    row.add_row(sign, Text(visible(text), style))
    console.print(Padding(row, (0, 0, 0, 2), expand=False), width=min(console.width, MAX_PROSE_WIDTH))


def _show_table(console: Console, table: ResultTable) -> None:
    if table.title:
        console.print(Text(visible(table.title), "bold"))
    grid = plain_table()
    grid.show_header = True
    for name, numeric in zip(table.columns, numeric_columns(table), strict=True):
        grid.add_column(Text(visible(name)), justify="right" if numeric else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(visible(cell)) for cell in row))
    console.print(grid)
