"""Text and code in the Markdown of the generated reference pages."""

import html


def as_code(value: object) -> str:
    """A value as code in a cell of a table, where backticks would keep the backslash of an escaped bar.

    >>> as_code("a|b")
    '<code>a&#124;b</code>'
    """
    return f"<code>{html.escape(str(value), quote=False).replace('|', '&#124;')}</code>"


def as_line(text: str) -> str:
    """Text in one line, with angle brackets outside of code shown as they are.

    >>> as_line("a <pad> and `<mask>`")
    'a \\\\<pad> and `<mask>`'
    """
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else part.replace("<", "\\<") for number, part in enumerate(parts))


def in_cell(text: str) -> str:
    """Text in a cell of a table."""
    return as_line(text).replace("|", "\\|")
