"""Lab records as Markdown: a page for each lab, and the index of the gallery.

All texts are escaped, so nothing in them acts as markup, except for `code` between backticks in prose.
"""

import re
from collections.abc import Callable, Sequence

from regard.formatting import code_cell, escape_markdown_words, markdown_table, visible
from regard.labs.lab import Claim, ResultTable
from regard.labs.lab_record import FULL_SUFFIX, LabRecord, sizes_table

THUMBNAIL_WIDTH = 320
"""Width in pixels of the figures in the index."""
CONFIRMED_HEADING, REFUTED_HEADING = "Conclusions", "Not confirmed this time"
SIGNS = {CONFIRMED_HEADING: "✓", REFUTED_HEADING: "✗"}
NUMBER_START = re.compile(r"[+\-−±≈<>≤≥~]?\s?[\d.]|[–-]$")
"""Pattern for the start of a cell with a number; also matches a dash that marks a missing number."""


def markdown(record: LabRecord) -> str:
    """Return a lab's page."""
    sections = [f"# {escape_markdown_words(record.question)}"]
    sections += [f"- {_prose(text[2:])}" if text.startswith("- ") else _prose(text) for text in record.about]
    sections += [f"![Figure of the lab {record.name}]({record.picture})", *map(_table, record.tables)]
    for heading, claims in claims_by_heading(record.claims).items():
        sections += [f"## {heading}", "\n".join(f"- {SIGNS[heading]} {_prose(claim.text)}" for claim in claims)]
    if record.notes:
        sections += ["## Notes", "\n".join(f"- {_prose(note)}" for note in record.notes)]
    sections += ["## Sizes", _table(sizes_table(record.sizes))]
    sections += [f"Produced by `{visible(record.command)}` with {escape_markdown_words(record.environment)}."]
    return "\n\n".join(sections) + "\n"


def index(records: Sequence[LabRecord], full_forms: Sequence[str], command: str) -> str:
    """Return the index of the gallery; `full_forms` names the labs whose full form is in the gallery as well."""
    rows = []
    for record in records:
        name = record.name
        lines = [f"**[{name}]({name}.md)**", escape_markdown_words(record.question), code_cell(record.command)]
        if not record.holds:
            lines.append(f"✗ {record.confirmed} this time")
        if name in full_forms:
            lines.append(f"[full form]({name}{FULL_SUFFIX}.md)")
        picture = f'[<img src="{record.picture}" width="{THUMBNAIL_WIDTH}" alt="Figure of the lab {name}">]({name}.md)'
        rows.append(f"| {picture} | {'<br>'.join(lines)} |")
    introduction = (
        "Questions that every course on the Transformer asks, answered by measurement.\n"
        "Each page describes the experiment, shows the results, and lists the conclusions that they confirm."
    )
    head = ["# Labs", "", introduction, "", "| | |", "|---|---|"]
    return "\n".join([*head, *rows, "", f"Produced by `{visible(command)}`."]) + "\n"


def paragraphs(text: str) -> list[str]:
    r"""Split a text into paragraphs of one line each; a list item is a paragraph of its own.

    >>> paragraphs("One\nline.\n\n- two\n- three,\n  still")
    ['One line.', '- two', '- three, still']
    """
    blocks = re.split(r"\n\s*\n|\n(?=\s*- )", text)
    return [" ".join(block.split()) for block in blocks if block.strip()]


def claims_by_heading(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Group claims by heading: those that the measurement confirms, and those that it does not."""
    groups = {
        CONFIRMED_HEADING: [claim for claim in claims if claim.holds],
        REFUTED_HEADING: [claim for claim in claims if not claim.holds],
    }
    return {heading: group for heading, group in groups.items() if group}


def numeric_columns(table: ResultTable) -> list[bool]:
    """Return for each column whether it holds numbers, which are aligned to the right; the first column never does."""
    columns = [[row[i] for row in table.rows if row[i].strip()] for i in range(len(table.columns))]
    return [i > 0 and all(NUMBER_START.match(cell) for cell in cells) for i, cells in enumerate(columns)]


def format_code(text: str, plain: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Apply `code` to the parts of a text between backticks, and `plain` to all other parts.

    >>> format_code("so `x` is", str.upper, repr)
    "SO 'x' IS"
    """
    pieces = re.split(r"`([^`]+)`", text)
    return "".join(code(piece) if i % 2 else plain(piece) for i, piece in enumerate(pieces))


def _prose(text: str) -> str:
    return format_code(text, escape_markdown_words, lambda piece: f"`{visible(piece)}`")


def _table(table: ResultTable) -> str:
    title = f"**{escape_markdown_words(table.title)}**\n\n" if table.title else ""
    heads, *rows = [[escape_markdown_words(cell) for cell in row] for row in (table.columns, *table.rows)]
    return title + markdown_table(heads, rows, numeric_columns(table))
