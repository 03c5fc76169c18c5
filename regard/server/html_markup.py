"""Splits HTML into text and markup, so that only the text is translated.

The text between two block-level tags (of paragraphs, table cells, list items) is translated separately. A tag inside a
sentence has no known position in the translation, so it is rejected.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from regard.errors import RegardError

OPAQUE_ELEMENTS = ("script", "style", "pre", "code", "textarea", "template")
"""Elements whose content is not translated."""
RAW_TEXT_ELEMENTS = ("script", "style", "textarea")
"""Elements whose content extends to the end of the page if they are not closed."""
INLINE_ELEMENT = re.compile(
    "a|abbr|b|bdi|bdo|cite|code|data|dfn|em|font|i|img|input|kbd|label|mark|q|s|samp|small|span|strong|sub|sup|time|tt|u"
    "|var|wbr"
)
"""Names of elements that occur inside a sentence."""
MARKUP_START = re.compile(r"<!--|<(?=[a-zA-Z/!?])")
"""The start of markup. Any other `<` is text."""
TAG_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]*)")
COMPLETE_TAG = re.compile(r"</?[a-zA-Z](?:=\s*+(?:\"[^\"]*+\"|'[^']*+')|[^>]){0,4096}+>")
"""A complete tag. Its quoted attribute values may contain `>`."""
CLOSING_TAG = {name: re.compile(f"</{name}(?=[\\s/>]|$)", re.ASCII | re.IGNORECASE) for name in OPAQUE_ELEMENTS}


@dataclass(frozen=True)
class HtmlSegment:
    """A part of a page: text or markup."""

    text: str
    translatable: bool
    """Whether this is text to translate: unescaped, without the white space around it."""


def split_html(page: str) -> list[HtmlSegment]:
    """Split a page into segments. A RegardError if there is a tag inside a sentence.

    >>> [segment.text for segment in split_html("<p>Le chat &amp; <br>moi.</p>") if segment.translatable]
    ['Le chat &', 'moi.']
    """
    segments = list(_segments(page))
    inline_tag: str | None = None  # the last tag since the previous text
    separated = True  # whether a block-level tag followed the previous text
    for segment in segments:
        if segment.translatable:
            if not separated and inline_tag is not None:
                raise RegardError(
                    f"the tag <{inline_tag}> is inside a sentence, and its position in the translation is unknown: "
                    "remove such tags, or send plain text"
                )
            separated, inline_tag = False, None
        elif tag := TAG_NAME.match(segment.text):
            name = tag[1].lower()
            separated, inline_tag = separated or not INLINE_ELEMENT.fullmatch(name), name
    return segments


def escape(text: str) -> str:
    """Escape a text for use between tags."""
    return html.escape(text, quote=False)


def _segments(page: str) -> Iterator[HtmlSegment]:
    """The segments of a page. Joined, they are the page with its entities unescaped."""
    position, last_bracket = 0, page.rfind(">")
    for match in MARKUP_START.finditer(page):
        start = match.start()
        is_unclosed = start > last_bracket and match[0] != "<!--"  # then it is text
        if start < position or is_unclosed:
            continue
        yield from _text_segments(page[position:start])
        position = _markup_end(page, start)
        yield HtmlSegment(page[start:position], False)
    yield from _text_segments(page[position:])


def _text_segments(text: str) -> Iterator[HtmlSegment]:
    """A text and the white space before and after it."""
    stripped = text.strip()
    unescaped = html.unescape(stripped)
    if not unescaped.strip():
        yield HtmlSegment(text, False)
        return
    before, _, after = text.partition(stripped)
    yield from (HtmlSegment(before, False), HtmlSegment(unescaped, True), HtmlSegment(after, False))


def _markup_end(page: str, start: int) -> int:
    """The end of the markup that starts at this position."""
    if page.startswith("<!--", start):
        return _find_end(page, "-->", start)
    tag = TAG_NAME.match(page, start)
    complete = COMPLETE_TAG.match(page, start)
    end = complete.end() if complete else _find_end(page, ">", start)
    if tag and page[start + 1] != "/" and (name := tag[1].lower()) in OPAQUE_ELEMENTS:
        # Search the page itself and not its lower-case copy, whose length may differ (as for "İ").
        closing = CLOSING_TAG[name].search(page, end)
        if closing:
            return _find_end(page, ">", closing.start())
        return len(page) if name in RAW_TEXT_ELEMENTS else end
    return end


def _find_end(page: str, mark: str, start: int) -> int:
    """The position after the next occurrence of the mark, or the end of the page."""
    position = page.find(mark, start)
    return len(page) if position < 0 else position + len(mark)
