"""What is told to people: texts of strangers that do nothing but stand there, and times."""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

JOINERS = "\u200c\u200d"
"""not seen, and part of how some scripts are written"""
LONGEST = 300
"""characters of a text"""


def visible(text: str) -> str:
    r"""A text in one line that does nothing to a terminal: what cannot be seen is shown by a sign or its number.

    >>> visible("a\tb\x1b[2J\u202ec")
    'a␉b␛[2J\\u202ec'
    """
    return text if text.isprintable() else "".join(map(_seen, text))


def visible_lines(text: str) -> str:
    r"""A text of several lines that does nothing to a terminal: as `visible`, but line feeds and tabs are kept.

    >>> print(visible_lines("a\x1b[2J\nb\u202e"))
    a␛[2J
    b\u202e
    """
    return re.sub(r"[^\n\t]+", lambda run: visible(run[0]), text)


def _seen(letter: str) -> str:
    if letter.isprintable() or letter in JOINERS:
        return letter
    if unicodedata.category(letter) == "Zs":  # French has some before its marks
        return " "
    number = ord(letter)
    if number < 0x20 or number == 0x7F:
        return chr(0x2400 + number) if number < 0x20 else "␡"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def safe(text: str, most: int = LONGEST) -> str:
    """A text in Markdown as it is: nothing in it is markup or a link, and all of it is in one line, not too long.

    >>> safe("a | b *c* <d> www.e.org")
    'a \\\\| b \\\\*c\\\\* \\\\<d\\\\> www\\\\.e.org'
    """
    text = visible(text)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    escaped = re.sub(r"([\\`*_{}\[\]<>|~$&#!^]|:(?=\S)|(?i:(?<=www))\.)", r"\\\1", text).strip()
    return re.sub(r"@(?=\S)", "@<!-- -->", escaped)  # GitHub finds addresses and names behind all escapes


def code_cell(text: str) -> str:
    """A text word for word in a table of Markdown, where a bar would end the cell even within code.

    >>> code_cell("case:lc|tok:13a")
    '`case:lc\\\\|tok:13a`'
    """
    plain = visible(text).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else ""


def duration(seconds: int | float) -> str:
    """Time as people say it.

    >>> [duration(each) for each in (0.04, 12.34, 250, 4000, 200_000)]
    ['0.0s', '12s', '4m10s', '1h06m', '2d07h']
    """
    if not math.isfinite(seconds):
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    return f"{minutes // 60 // 24}d{minutes // 60 % 24:02}h"


def safe_whole(text: str) -> str:
    """As `safe`, however long the text is: its words alone are cut."""
    return " ".join(map(safe, text.split(" ")))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """A table of cells that are Markdown already; `right` says of each column whether it holds numbers.

    >>> print(markdown_table(["seed", "BLEU"], [["0", "52.7"]], [False, True]))
    | seed | BLEU |
    | --- | ---: |
    | 0 | 52.7 |
    """
    rules = ["---:" if each else "---" for each in right or [False] * len(heads)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rules, *rows))


def shorten(message: str, most: int = 400) -> str:
    """A message that quotes a stranger, cut where the stranger goes on too long."""
    return message if len(message) <= most else f"{message[: most - 1]}…"


def quoted(value: object) -> str:
    """A stranger's value in a message, however long it is."""
    return shorten(repr(value), 100)
