"""Bold and italic marks, links and HTML within a sentence: the sentence is translated without them, and they are put
around the translations of their words.

Models drop and garble marks, and translate what is next to them worse. Where words in a mark have no translation of
their own in the sentence, the mark is put around words near the same position.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regard.decoding.quotation_marks import quoted_spans

MAX_MARKS = 20
"""Pairs of marks of a sentence, or of a pair, that are put into its translation."""
MAX_DEPTH = 3
"""Levels of marks within marks."""

_FIRST, _LAST = r"(?=[\w\"'«“(€$£¡¿])", r"(?<=[\w\"'»”).,;:!?…%€$£])"
_PAIR = re.compile(
    rf"(?<![\w*/\\])(?P<stars>\*{{1,3}}){_FIRST}(?P<starred>[^*\n]{{1,300}}){_LAST}(?P=stars)(?![\w*])"
    rf"|(?<![\w/\\.:=@#-])(?!__[a-z]{{1,50}}__)(?P<lines>_{{1,2}}|~~){_FIRST}(?P<lined>[^_~\n]{{1,300}}){_LAST}(?P=lines)"
    r"(?![\w/])"
    r"|(?<!\w)<(?P<tag>a|abbr|b|big|cite|del|em|font|i|ins|mark|q|s|small|span|strong|sub|sup|u)(?:\s[^<>]{0,500})?>"
    r"(?P<tagged>.{1,300}?)</(?P=tag)\s?>(?!\w)"
    r"|(?<![!\\])\[(?P<linked>[^\[\]\n]{1,300})\]\([^()\s]{1,500}\)",
    re.IGNORECASE,
)
"""Marks around words: of Markdown, but no names such as __init__, and of HTML, but no code and no parts of words."""
_MAY_BE_MARK = re.compile(r"[*_~<\[]")
_CONTENTS = ("starred", "lined", "tagged", "linked")
_WORD = re.compile(r"\w+(?:[-.,'’]\w+)*")
_NUMBER = re.compile(r"[€$£¥]?\d(?:[\d., \u00a0\u202f]*\d)?(?:[ \u00a0\u202f]?[€$£¥%])?")
MAX_WORDS = 10
"""Words of the translation of a phrase that are looked for in the translation of its sentence."""
MIN_RUN = 3
"""Letters of a word that is looked for."""
Span = tuple[int, int]


@dataclass(frozen=True)
class InlineMark:
    """Marks before and after some words."""

    opening: str
    closing: str
    start: int
    """Where the words begin, in the text without marks."""
    end: int
    """Where they end."""
    inner: tuple["InlineMark", ...] = ()
    """Marks of these words, whose positions are relative to the beginning of the words."""

    def phrases(self, text: str) -> Iterator[str]:
        """The words in this mark and those in it, given the text without marks."""
        words = text[self.start : self.end]
        yield words.strip()
        for mark in self.inner:
            yield from mark.phrases(words)


def without_inline_marks(text: str, depth: int = MAX_DEPTH) -> tuple[str, tuple[InlineMark, ...]]:
    """A text without marks around some of its words, and these marks.

    >>> without_inline_marks("un mot **important**")
    ('un mot important', (InlineMark(opening='**', closing='**', start=7, end=16, inner=()),))
    """
    plain, end = "", 0
    marks: list[InlineMark] = []
    for match in _PAIR.finditer(text) if depth else ():
        group = next(name for name in _CONTENTS if match[name])
        if len(marks) == MAX_MARKS or not _WORD.search(match[group]):
            continue
        content, inner = without_inline_marks(match[group], depth - 1)
        plain += text[end : match.start()]
        opening, closing = text[match.start() : match.start(group)], text[match.end(group) : match.end()]
        marks.append(InlineMark(opening, closing, len(plain), len(plain) + len(content), inner))
        plain += content
        end = match.end()
    return plain + text[end:], tuple(marks)


def has_inline_marks(text: str) -> bool:
    """Whether a text has characters of inline marks."""
    return _MAY_BE_MARK.search(text) is not None


def with_inline_marks(translation: str, source: str, marks: Sequence[InlineMark], phrases: Mapping[str, str]) -> str:
    """A translation with the marks of its source, given translations of the phrases in them.

    >>> _, marks = without_inline_marks("un mot **important**")
    >>> with_inline_marks("an important word", "un mot important", marks, {"important": "important"})
    'an **important** word'
    """
    if not translation:
        return ""
    placed: dict[Span, str] = {}
    for mark, span in zip(marks, _spans(translation, source, marks, phrases), strict=True):
        words = source[mark.start : mark.end]
        text = placed.get(span) or with_inline_marks(translation[slice(*span)], words, mark.inner, phrases)
        placed[span] = mark.opening + text + mark.closing
    text, end = "", 0
    for start, stop in sorted(placed):
        text += translation[end:start] + placed[start, stop]
        end = stop
    return text + translation[end:]


def _spans(translation: str, source: str, marks: Sequence[InlineMark], phrases: Mapping[str, str]) -> list[Span]:
    """What to mark in a translation: first where a translated phrase certainly is, last any words near the position.

    No two spans overlap; if there are too few words, some are equal.
    """
    if len(marks) == 1 and source[marks[0].start : marks[0].end].strip() == source.strip():
        return [(0, len(translation))]
    searches: tuple[Callable[[str], Iterator[list[Span]]], ...] = (
        lambda phrase: _exact(translation, phrase, phrases.get(phrase, phrase)),
        lambda phrase: _partial(translation, phrases.get(phrase, phrase)),
        lambda phrase: _any_words(translation, phrase),
    )
    spans = _quoted(translation, source, marks)
    for search in searches:
        for mark in marks:
            center = (mark.start + mark.end) / 2 / len(source) * len(translation)
            for candidates in search(source[mark.start : mark.end].strip()) if mark not in spans else ():
                free = [each for each in candidates if all(each[1] <= a or b <= each[0] for a, b in spans.values())]
                if free:
                    spans[mark] = min(free, key=lambda span: abs(sum(span) / 2 - center))
                    break
    last = max(spans.values(), default=(0, len(translation)))
    return [spans.get(mark, last) for mark in marks]


def _quoted(translation: str, source: str, marks: Sequence[InlineMark]) -> dict[InlineMark, Span]:
    """Where the quotations are that have inline marks around them, if a translation has all quotations."""
    quoted, translated = quoted_spans(source), quoted_spans(translation)
    if len(quoted) != len(translated):
        return {}
    span_of = dict(zip(quoted, translated, strict=True))
    return {mark: span_of[mark.start, mark.end] for mark in marks if (mark.start, mark.end) in span_of}


def _exact(text: str, phrase: str, translated: str) -> Iterator[list[Span]]:
    """Where the translation of a phrase is in a text, the phrase itself, or its number."""
    yield _occurrences(text, translated)
    yield _occurrences(text, phrase)
    digits = re.sub(r"\D", "", phrase)
    if digits:
        yield [match.span() for match in _NUMBER.finditer(text) if re.sub(r"\D", "", match[0]) == digits]


def _partial(text: str, translated: str) -> Iterator[list[Span]]:
    """Where some consecutive words of the translation of a phrase are in a text: many before few, last before first."""
    words = _WORD.findall(translated)[:MAX_WORDS]
    for count in range(len(words) - 1, 0, -1):
        for start in reversed(range(len(words) - count + 1)):
            run = " ".join(words[start : start + count])
            if len(run) >= MIN_RUN:
                yield _occurrences(text, run)


def _any_words(text: str, phrase: str) -> Iterator[list[Span]]:
    """As many words of a text as a phrase has, or fewer."""
    positions = [match.span() for match in _WORD.finditer(text)]
    for count in range(min(len(_WORD.findall(phrase)), len(positions)), 0, -1):
        yield [(first[0], last[1]) for first, last in zip(positions, positions[count - 1 :], strict=False)]


def _occurrences(text: str, words: str) -> list[Span]:
    pattern = rf"(?<!\w){re.escape(words)}(?!\w)"
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE) if words]
