"""A lab's figure as PNG, and its record as a self-contained HTML page that runs no scripts and fetches nothing.

All texts are escaped, so nothing in them acts as markup, except for `code` between backticks in prose.
"""

import base64
import html
import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from regard.formatting import visible
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_markdown import CONFIRMED_HEADING, SIGNS, claims_by_heading, format_code, numeric_columns
from regard.labs.lab_record import LabRecord, sizes_table
from regard.plots import figures

MAX_UNBROKEN_CELL = 40
"""Number of characters above which the text of a table cell may be wrapped."""


def png(result: LabResult) -> bytes:
    """Return the figure as a PNG file."""
    figure = Figure(figsize=result.figure_size, layout="constrained", facecolor="white")
    result.draw(figure)
    return figures.png(figure)


def page(record: LabRecord, picture: bytes) -> str:
    """Return the HTML page, for light and dark colour schemes, large screens and phones."""
    parts = {
        "question": _escape(record.question),
        "about": "\n".join(map(_paragraph, record.about)),
        "picture": base64.b64encode(picture).decode(),
        "tables": "\n".join(map(_table, record.tables)),
        "claims": "\n".join(_claims(*group) for group in claims_by_heading(record.claims).items()),
        "notes": _list(record.notes, "·", "notes"),
        "sizes": _table(sizes_table(record.sizes)),
        "command": _escape(record.command),
        "environment": _escape(record.environment),
    }
    template = Path(__file__).with_name("lab_page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _escape(text: str) -> str:
    return html.escape(visible(text))


def _prose(text: str) -> str:
    return format_code(text, _escape, lambda piece: f"<code>{_escape(piece)}</code>")


def _paragraph(text: str) -> str:
    return _list([text[2:]], "·") if text.startswith("- ") else f"<p>{_prose(text)}</p>"


def _claims(heading: str, claims: Sequence[Claim]) -> str:
    css_class = "held" if heading == CONFIRMED_HEADING else "failed"
    items = _list([claim.text for claim in claims], SIGNS[heading], css_class)
    return f'<h2 class="{css_class}">{heading}</h2>\n{items}'


def _list(texts: Sequence[str], sign: str, css_class: str = "") -> str:
    """A list whose items are marked with a sign."""
    items = "\n".join(f"<li><span>{sign}</span><span>{_prose(text)}</span></li>" for text in texts)
    return f'<ul class="{css_class}">\n{items}\n</ul>' if texts else ""


def _table(table: ResultTable) -> str:
    """A table that scrolls within its own box on a narrow screen."""
    title = f"<h3>{_escape(table.title)}</h3>\n" if table.title else ""
    numeric = numeric_columns(table)
    heads = "".join(_cell("th", *cell) for cell in zip(table.columns, numeric, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(_cell('td', *cell) for cell in zip(row, numeric, strict=True))}</tr>" for row in table.rows
    )
    label = _escape(table.title or "Results")
    return (
        f'{title}<div class="wide" role="region" tabindex="0" aria-label="{label}"><table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _cell(tag: str, text: str, numeric: bool) -> str:
    attribute = ""
    if numeric:
        attribute = ' class="right"'
    elif len(text) > MAX_UNBROKEN_CELL:
        attribute = ' class="words"'
    return f"<{tag}{attribute}>{_escape(text)}</{tag}>"
