"""Formatting for people: untrusted text made harmless for terminals and Markdown, quoted values, durations, tables."""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

MAX_QUOTED = 200
"""Maximum length of a value that an error message quotes, in characters."""
JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts need between letters."""
MAX_MARKDOWN_TEXT = 300
"""Maximum length of a text in Markdown, in characters; longer ones are cut."""


def visible(text: str) -> str:
    r"""Return a text as one line that is safe to print: invisible characters are replaced by a symbol or their code.

    >>> visible("a\tb\x1b[2J\u202ec")
    'a␉b␛[2J\\u202ec'
    """
    return text if text.isprintable() else "".join(map(_visible_character, text))


def visible_lines(text: str) -> str:
    r"""Return a text of several lines that is safe to print: like `visible`, but line feeds and tabs are kept.

    >>> print(visible_lines("a\x1b[2J\nb\u202e"))
    a␛[2J
    b\u202e
    """
    return re.sub(r"[^\n\t]+", lambda run: visible(run[0]), text)


def _visible_character(letter: str) -> str:
    if letter.isprintable() or letter in JOINERS:
        return letter
    if unicodedata.category(letter) == "Zs":  # French has narrow spaces before some punctuation
        return " "
    number = ord(letter)
    if number < 0x20 or number == 0x7F:
        return chr(0x2400 + number) if number < 0x20 else "␡"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def escape_markdown(text: str, max_length: int = MAX_MARKDOWN_TEXT) -> str:
    """Return a text for Markdown, as one line in which nothing is markup or a link, cut if it is too long.

    >>> escape_markdown("a | b *c* <d> www.e.org")
    'a \\\\| b \\\\*c\\\\* \\\\<d\\\\> www\\\\.e.org'
    """
    text = visible(text)
    text = text if len(text) <= max_length else f"{text[: max_length - 1]}…"
    escaped = re.sub(r"([\\`*_{}\[\]<>|~$&#!^]|:(?=\S)|(?i:(?<=www))\.)", r"\\\1", text).strip()
    return re.sub(r"@(?=\S)", "@<!-- -->", escaped)  # GitHub links addresses and names even after an escape


def code_cell(text: str) -> str:
    """Return a text as code for a cell of a Markdown table, where a bar would end the cell even within code.

    >>> code_cell("case:lc|tok:13a")
    '`case:lc\\\\|tok:13a`'
    """
    plain = visible(text).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else ""


def duration(seconds: int | float) -> str:
    """Return a duration in a readable form.

    >>> [duration(seconds) for seconds in (0.04, 12.34, 250, 4000, 200_000)]
    ['0.0s', '12s', '4m10s', '1h06m', '2d07h']
    """
    if not math.isfinite(seconds):
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded}s"
    if rounded < 3600:
        return f"{rounded // 60}m{rounded % 60:02}s"
    minutes = rounded // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    return f"{minutes // 60 // 24}d{minutes // 60 % 24:02}h"


def short_number(number: int) -> str:
    """Return a large count in a readable form: in millions from 100,000 on.

    >>> short_number(12_345_678), short_number(512)
    ('12.3 M', '512')
    """
    return f"{number / 1e6:,.1f} M" if number >= 1e5 else f"{number:,}"


def rate(per_second: float) -> str:
    """Return a number of items per second with the digits that a measurement has.

    >>> rate(11_803.26), rate(7.349)
    ('11,803', '7.3')
    """
    return f"{per_second:,.0f}" if per_second >= 99.95 else f"{per_second:.1f}"


def escape_markdown_words(text: str) -> str:
    """Like `escape_markdown` for a text of any length: only single words that are too long are cut."""
    return " ".join(map(escape_markdown, text.split(" ")))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """Return a Markdown table of cells that are Markdown already; `right` marks the right-aligned columns.

    >>> print(markdown_table(["seed", "BLEU"], [["0", "52.7"]], [False, True]))
    | seed | BLEU |
    | --- | ---: |
    | 0 | 52.7 |
    """
    rules = ["---:" if is_right else "---" for is_right in right or [False] * len(heads)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rules, *rows))


def shorten(message: str, max_length: int = 400) -> str:
    """Cut a message that quotes untrusted text to `max_length` characters."""
    return message if len(message) <= max_length else f"{message[: max_length - 1]}…"


def quoted(value: object) -> str:
    """Return a value as error messages quote it, cut if it is long.

    >>> quoted("x" * 1_000)[-3:], quoted(10**5_000)
    ('xx…', 'a number of more than 4,300 digits')
    """
    try:
        return shorten(repr(value), MAX_QUOTED)
    except ValueError:  # Python refuses to write out longer numbers
        return "a number of more than 4,300 digits"
