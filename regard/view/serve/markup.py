"""HTML in parts: what is said, and what is markup. Tags stay as they are, and where they are.

Between the tags of blocks (paragraphs, cells, items) text is translated by itself. A tag within a sentence would need a
place in a sentence with another order of words: that is refused rather than done badly.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

WHOLE = ("script", "style", "pre", "code", "textarea", "template")
"""elements whose content is no prose"""
INLINE = re.compile(
    "a|abbr|b|bdi|bdo|cite|code|data|dfn|em|font|i|img|input|kbd|label|mark|q|s|samp|small|span|strong|sub|sup|time|tt|u"
    "|var|wbr"
)
"""elements that stand within a sentence"""
TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]*)")


@dataclass(frozen=True)
class Part:
    """A stretch of a page."""

    text: str
    said: bool
    """whether it is to be translated: then it is plain text, and without what surrounds it"""


def parts(page: str) -> list[Part]:
    """The page in parts; a ValueError if a tag stands within a sentence.

    >>> [part.text for part in parts("<p>Le chat &amp; <br>moi.</p>") if part.said]
    ['Le chat &', 'moi.']
    """
    found = list(_parts(page))
    within: str | None = None
    apart = True
    for part in found:
        if part.said:
            if not apart and within is not None:
                raise ValueError(
                    f"<{within}> stands within a sentence, and where it belongs in the translation is not known: "
                    "leave such tags out, or send plain text"
                )
            apart, within = False, None
        elif tag := TAG.match(part.text):
            name = tag[1].lower()
            apart, within = apart or not INLINE.fullmatch(name), name
    return found


def escape(text: str) -> str:
    """A text as it stands between tags."""
    return html.escape(text, quote=False)


def _parts(page: str) -> Iterator[Part]:
    place = 0
    while place < len(page):
        opening = page.find("<", place)
        opening = len(page) if opening < 0 else opening
        yield from _said(page[place:opening])
        end = _end(page, opening)
        if end > opening:
            yield Part(page[opening:end], False)
        place = end


def _said(text: str) -> Iterator[Part]:
    stripped = text.strip()
    core = html.unescape(stripped)
    if not core.strip():
        yield Part(text, False)
        return
    before, _, after = text.partition(stripped)
    yield from (Part(before, False), Part(core, True), Part(after, False))


def _end(page: str, opening: int) -> int:
    """Where the markup that begins here ends; the end of the page if it never does."""
    if page.startswith("<!--", opening):
        return _behind(page, "-->", opening)
    name = TAG.match(page, opening)
    if name and page[opening + 1] != "/" and name[1].lower() in WHOLE:
        closing = page.lower().find(f"</{name[1].lower()}", opening)
        return _behind(page, ">", closing) if closing >= 0 else len(page)
    return _behind(page, ">", opening)


def _behind(page: str, mark: str, start: int) -> int:
    place = page.find(mark, start)
    return len(page) if place < 0 else place + len(mark)
