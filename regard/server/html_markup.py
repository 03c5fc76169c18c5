"""HTML in parts: what is said, and what is markup. Tags stay as they are, and where they are.

Between the tags of blocks (paragraphs, cells, items) text is translated by itself. A tag within a sentence would need a
place in a sentence with another order of words: that is refused rather than done badly.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from regard.errors import RegardError

WHOLE = ("script", "style", "pre", "code", "textarea", "template")
"""elements whose content is no prose"""
RAW = ("script", "style", "textarea")
"""those whose content lasts to the end of the page if they are not closed"""
INLINE = re.compile(
    "a|abbr|b|bdi|bdo|cite|code|data|dfn|em|font|i|img|input|kbd|label|mark|q|s|samp|small|span|strong|sub|sup|time|tt|u"
    "|var|wbr"
)
"""elements that stand within a sentence"""
OPENING = re.compile(r"<!--|<(?=[a-zA-Z/!?])")
"""where markup may begin: any other `<` is text"""
TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]*)")
COMPLETE_TAG = re.compile(r"</?[a-zA-Z](?:=\s*+(?:\"[^\"]*+\"|'[^']*+')|[^>]){0,4096}+>")
"""a tag, in whose quoted values a `>` may stand"""
CLOSING = {name: re.compile(f"</{name}(?=[\\s/>]|$)", re.ASCII | re.IGNORECASE) for name in WHOLE}


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
                raise RegardError(
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
    """The page in parts, of which none is lost: every character is in one of them, those of entities as one."""
    place, last = 0, page.rfind(">")
    for opening in OPENING.finditer(page):
        start = opening.start()
        if start < place or (start > last and opening[0] != "<!--"):  # within what was taken, or never closed: text
            continue
        yield from _said(page[place:start])
        place = _end(page, start)
        yield Part(page[start:place], False)
    yield from _said(page[place:])


def _said(text: str) -> Iterator[Part]:
    stripped = text.strip()
    core = html.unescape(stripped)
    if not core.strip():
        yield Part(text, False)
        return
    before, _, after = text.partition(stripped)
    yield from (Part(before, False), Part(core, True), Part(after, False))


def _end(page: str, opening: int) -> int:
    """Where the markup that begins here ends."""
    if page.startswith("<!--", opening):
        return _behind(page, "-->", opening)
    tag = TAG.match(page, opening)
    complete = COMPLETE_TAG.match(page, opening)
    end = complete.end() if complete else _behind(page, ">", opening)
    if tag and page[opening + 1] != "/" and (name := tag[1].lower()) in WHOLE:
        # Found in the page itself: in lower case a text can be longer or shorter, as "İ" is.
        closing = CLOSING[name].search(page, end)
        if closing:
            return _behind(page, ">", closing.start())
        return len(page) if name in RAW else end
    return end


def _behind(page: str, mark: str, start: int) -> int:
    place = page.find(mark, start)
    return len(page) if place < 0 else place + len(mark)
