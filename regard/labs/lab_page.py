"""A lab's result as a picture, and as a page in one file: it runs no script and fetches nothing.

Whatever the texts hold, nothing in them is markup, but for `code` between backticks in prose.
"""

import base64
import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from regard.formatting import visible
from regard.labs.lab import Claim, Result, Table
from regard.labs.lab_terminal import HELD, SIGNS, Done, numbers, paragraphs, sizes_table, verdicts
from regard.plots import figures

LONG = 40
"""characters from which a cell is prose, and may be broken"""


def png(result: Result) -> bytes:
    """The picture."""
    figure = Figure(figsize=result.size, layout="constrained", facecolor="white")
    result.draw(figure)
    return figures.png(figure)


def page(done: Done, picture: bytes) -> str:
    """The page, for light and dark, large screens and phones."""
    result = done.result
    parts = {
        "question": _escaped(done.lab.question),
        "set_up": "\n".join(map(_paragraph, paragraphs(done.lab.set_up))),
        "picture": base64.b64encode(picture).decode(),
        "tables": "\n".join(map(_table, result.tables)),
        "claims": "\n".join(_claims(*each) for each in verdicts(result.claims).items()),
        "notes": _list(result.notes, "·", "notes"),
        "sizes": _table(sizes_table(done.lab.sizes)),
        "command": _escaped(done.command),
        "made": _escaped(done.circumstances),
    }
    template = Path(__file__).with_name("lab_page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def code_apart(text: str, plain: Callable[[str], str], code: Callable[[str], str]) -> str:
    """A text whose pieces between backticks are code, each in its own way.

    >>> code_apart("so `x` is", str.upper, repr)
    "SO 'x' IS"
    """
    pieces = re.split(r"`([^`]+)`", text)
    return "".join(code(piece) if i % 2 else plain(piece) for i, piece in enumerate(pieces))


def _escaped(text: str) -> str:
    return html.escape(visible(text))


def _prose(text: str) -> str:
    return code_apart(text, _escaped, lambda piece: f"<code>{_escaped(piece)}</code>")


def _paragraph(text: str) -> str:
    return _list([text[2:]], "·") if text.startswith("- ") else f"<p>{_prose(text)}</p>"


def _claims(heading: str, claims: Sequence[Claim]) -> str:
    kind = "held" if heading == HELD else "failed"
    return f'<h2 class="{kind}">{heading}</h2>\n{_list([claim.says for claim in claims], SIGNS[heading], kind)}'


def _list(texts: Sequence[str], sign: str, kind: str = "") -> str:
    """Texts, each beside a sign."""
    items = "\n".join(f"<li><span>{sign}</span><span>{_prose(text)}</span></li>" for text in texts)
    return f'<ul class="{kind}">\n{items}\n</ul>' if texts else ""


def _table(table: Table) -> str:
    """A table that a narrow screen scrolls by itself, not with the page."""
    title = f"<h3>{_escaped(table.title)}</h3>\n" if table.title else ""
    right = numbers(table)
    heads = "".join(_cell("th", *each) for each in zip(table.columns, right, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(_cell('td', *each) for each in zip(row, right, strict=True))}</tr>" for row in table.rows
    )
    label = _escaped(table.title or "figures")
    return (
        f'{title}<div class="wide" role="region" tabindex="0" aria-label="{label}"><table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _cell(tag: str, text: str, right: bool) -> str:
    kind = ' class="right"' if right else ' class="words"' if len(text) > LONG else ""
    return f"<{tag}{kind}>{_escaped(text)}</{tag}>"
