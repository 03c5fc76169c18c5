"""Quotation marks of translations: as many as the source has, in one style.

The training text of translation models mixes the styles of its corpora: "liberté" becomes 'freedom'. Into English, « »
become " ", and other marks stay as they are. Into French, “ ” and ‘ ’ become « », and straight marks are double.
Apostrophes and inches are no quotation marks.
"""

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import islice, pairwise

MAX_MARKS = 100
"""Quotation marks of a text that are looked at."""
MAX_QUOTED = 300
"""Characters between single quotation marks."""

_STYLE_NAMES = {'"': '"', "“": "“", "”": "“", "„": "“", "«": "«", "»": "«", "'": "'", "‘": "‘", "’": "‘"}
"""The style of each mark, by its opening mark."""
_STYLES = {'"': ('"', '"'), "“": ("“", "”"), "«": ("« ", " »"), "'": ("'", "'"), "‘": ("‘", "’")}
_TARGET_STYLES = {
    "en": {'"': '"', "“": "“", "«": '"', "'": "'", "‘": "‘"},
    "fr": {'"': '"', "“": "«", "«": "«", "'": '"', "‘": "«"},
}
"""Styles of translations by the styles of their sources."""
_INNER_STYLES = {'"': "'", "“": "‘", "«": "“", "'": '"', "‘": "“"}
"""Styles of quotations within quotations."""
_ELISION = r"(?i:tis|twas|em|cause|til|till|bout|round|n|\d{1,2}\d?s?)\b"
"""What follows an apostrophe at the beginning of a word."""
_APOSTROPHE = (
    rf"(?<=\w)['’](?=\w)|(?<=\s)['’](?={_ELISION})" + r"|(?<=s)['’](?=\s\w[^'’\"“”«»]{0,100}[^\s'’\"“”«»]['’](?!\w))"
)
"""An apostrophe between single marks: in a word, or after one as in the dogs' bowls if another mark follows."""
_SINGLE = re.compile(
    rf"(?<![\w.,!?'’])['‘](?!{_ELISION})(?=[\w«“\"¿¡])"
    rf"(?:[^'‘’\n]|{_APOSTROPHE}){{1,{MAX_QUOTED}}}(?<!\s)['’](?!\w)"
)
_LOOSE_SINGLE = re.compile(
    rf"(?P<open>(?<![\w.,!?'’])['‘](?!{_ELISION})(?=\w))"
    r"|(?P<either>(?<=\s)'(?=\s?\w))"
    r"|(?<=[\w.,!?…\s])(?<!\b[nN])(?!(?<=s)['’]\s\w)['’](?=[\s.,;:!?)]|\Z)"
)
"""A single mark without the other one of its pair, which may be an apostrophe."""
_DOUBLE = re.compile(r"[\"“”„«»]")
_BETWEEN_SPACES = re.compile(r"\s\"\s")
"""A straight mark that no other one closes here is mentioned, as in: the character " ends a text."""
_INCHES = re.compile(r"['’′]\s?\d{1,2}(?:[.,]\d)?\Z")
_LENGTH = re.compile(r"(?<![\w.,])(?:\d{1,2}['’′]\s?)?\d{1,3}(?:[.,]\d{1,2})?[\"″](?!\w|,(?!\s\d))")
"""A number of inches, perhaps after feet; before a comma, the mark rather ends a quotation."""
_ELIDED = re.compile(r"(?<!\w)(?:[cdjlmnst]|\w{0,4}qu)\Z", re.IGNORECASE)
"""What is before a double mark that was typed for an apostrophe, as in l"eau."""
_FINAL_PUNCTUATION = ".!?,;:…"


@dataclass(frozen=True)
class QuotationMark:
    """A quotation mark in a text."""

    start: int
    text: str
    is_opening: bool
    depth: int = 0
    """Number of quotations around it."""

    @property
    def style(self) -> str:
        """Its style, named by its opening mark."""
        return _STYLE_NAMES[self.text]


def quotation_marks(text: str, pairs_only: bool = True) -> list[QuotationMark]:
    """The quotation marks of a text; with `pairs_only`, single marks only if they are in pairs.

    >>> [mark.start for mark in quotation_marks("It's 5' 10, not 'tall' or “big”.")]
    [16, 21, 26, 30]
    """
    singles = _single_marks(text) if pairs_only else _loose_single_marks(text)
    doubles = (match.start() for match in islice(_DOUBLE.finditer(text), MAX_MARKS))
    starts = {*singles, *doubles}
    marks, unclosed = _nested_marks(text, starts, singles)
    mentioned = {mark.start for mark in unclosed if _BETWEEN_SPACES.match(text, max(0, mark.start - 1))}
    return _nested_marks(text, starts - mentioned, singles)[0] if mentioned else marks


def _nested_marks(
    text: str, starts: Set[int], singles: Mapping[int, bool]
) -> tuple[list[QuotationMark], list[QuotationMark]]:
    """The quotation marks at these positions, and those of them that no other one closes."""
    marks: list[QuotationMark] = []
    open_marks: list[QuotationMark] = []
    for start in sorted(starts):
        open_texts = [mark.text for mark in open_marks]
        is_opening = singles[start] if start in singles else _is_opening(text, start, open_texts)
        if is_opening is None:
            continue
        if not is_opening and open_marks:
            open_marks.pop()
        marks.append(QuotationMark(start, text[start], is_opening, len(open_marks)))
        if is_opening:
            open_marks.append(marks[-1])
    return marks, open_marks


def _single_marks(text: str) -> dict[int, bool]:
    """Positions of single marks in pairs, and whether they are opening ones."""
    spans = [match.span() for match in islice(_SINGLE.finditer(text), MAX_MARKS)]
    return {start: True for start, _ in spans} | {end - 1: False for _, end in spans}


def _loose_single_marks(text: str) -> dict[int, bool]:
    """Positions of marks that may be single ones, and whether they are opening ones.

    Every other one between spaces is opening.
    """
    marks: dict[int, bool] = {}
    is_open = False
    for match in islice(_LOOSE_SINGLE.finditer(text), MAX_MARKS):
        is_open = match["open"] is not None or (match["either"] is not None and not is_open)
        marks[match.start()] = is_open
    return marks


def _is_opening(text: str, start: int, open_marks: list[str]) -> bool | None:
    """Whether a double mark is an opening one; None if it stands for inches or an apostrophe."""
    mark = text[start]
    if mark in "«„" or (mark == "“" and "„" not in open_marks):
        return True
    if mark != '"':
        return False
    is_open = '"' in open_marks
    before, after = text[max(0, start - 6) : start], text[start + 1 : start + 2]
    is_apostrophe = after.isalpha() and _ELIDED.search(before) is not None
    if is_apostrophe or _INCHES.search(before) or (before[-1:].isdigit() and not is_open):
        return None
    may_open = bool(after) and not after.isspace() and after not in ".,;:!?…)]"
    may_close = bool(before) and not before[-1].isspace() and before[-1] not in "(["
    return may_open if may_open != may_close else not is_open


def with_quotation_marks(translation: str, source: str, target_language: str | None) -> str:
    """A translation with the quotation marks of its source, where it certainly lacks one, in its style.

    >>> with_quotation_marks("The word 'freedom' is short.", 'Le mot "liberté" est court.', "en")
    'The word "freedom" is short.'
    >>> with_quotation_marks('He isn\\'t "old".', "Il n’est pas “vieux”.", "en")
    "He isn't “old”."
    """
    source_marks = quotation_marks(source)
    if not source_marks or not translation:
        return translation
    text = _with_outermost_marks(translation, source, source_marks)
    styles = _TARGET_STYLES.get(target_language or "")
    return _with_styles(text, source_marks, styles) if styles else text


def count_missing_marks(translation: str, source: str) -> int:
    """Number of quotation marks of a source that its translation lacks."""
    source_marks = quotation_marks(source)
    if not source_marks:
        return 0
    text = _with_outermost_marks(translation, source, source_marks)
    return max(0, len(source_marks) - len(_marks_of_translation(text, source_marks)))


def with_straight_marks(text: str) -> str:
    """A text with straight marks for curly ones, without spaces between straight ones and words; guillemets are kept.

    >>> with_straight_marks("Un “ mot ”, un ‘mot’ et « un mot »")
    'Un "mot", un "mot" et « un mot »'
    """
    marks = [mark for mark in quotation_marks(text) if mark.style != "«"]
    return _replaced(text, [(mark, "'" if mark.style in "'‘" and mark.depth else '"') for mark in marks])


def with_other_marks(source: str) -> str:
    """A source with marks that a model may translate where it drops those of the source.

    >>> with_other_marks('un "mot"'), with_other_marks("un «\u00a0mot\u00a0»")
    ('un « mot »', 'un "mot"')
    """
    return _replaced(source, [(mark, '"' if mark.style == "«" else "«") for mark in quotation_marks(source)])


def lengths_in_inches(text: str) -> list[str]:
    """The numbers of inches in a text.

    >>> lengths_in_inches("un “12”, 24\u2033, 5' 10\u2033")
    ['24″', "5' 10″"]
    """
    marks = {mark.start for mark in quotation_marks(text)}
    return [match[0] for match in islice(_LENGTH.finditer(text), MAX_MARKS) if match.end() - 1 not in marks]


def quoted_spans(text: str) -> list[tuple[int, int]]:
    """Where the quotations of a text begin and end, marks included; those in other quotations are left out.

    >>> quoted_spans("un « mot »")
    [(3, 10)]
    """
    outer = [mark for mark in quotation_marks(text) if mark.depth == 0]
    return [
        (opening.start, closing.start + 1)
        for opening, closing in pairwise(outer)
        if opening.is_opening and not closing.is_opening
    ]


def quoted_phrases(text: str) -> list[str]:
    """What is between the quotation marks of a text."""
    return [text[start + 1 : end - 1].strip() for start, end in quoted_spans(text)]


def with_quoted_phrases(translation: str, source: str, phrases: Mapping[str, str]) -> str:
    """A translation without any quotation marks, with marks around translations of the quoted phrases of its source
    that are in it once.

    >>> with_quoted_phrases("The freedom tower", "La tour « liberté »", {"liberté": "Freedom"})
    'The "freedom" tower'
    """
    if quotation_marks(translation):
        return translation
    for phrase in quoted_phrases(source):
        words = phrases.get(phrase, phrase)
        pattern = rf"(?<!\w){re.escape(words)}(?!\w)"
        if words and len(re.findall(pattern, translation, re.IGNORECASE)) == 1:
            translation = re.sub(pattern, r'"\g<0>"', translation, flags=re.IGNORECASE)
    return translation


def _with_outermost_marks(translation: str, source: str, source_marks: list[QuotationMark]) -> str:
    """A translation with the mark at the beginning or end of its source, if it has the other one of the pair."""
    marks = _marks_of_translation(translation, source_marks)
    balance = _balance(marks)
    surplus = balance - _balance(source_marks)
    if surplus == balance == -1 and source_marks[0].start == 0 and marks[0].start > 0:
        style = next(mark.style for mark in marks if not mark.is_opening)
        return _STYLES[style][0] + translation
    last = source_marks[-1]
    after = source[last.start + 1 :].strip()
    if surplus == balance == 1 and not last.is_opening and not after.strip(_FINAL_PUNCTUATION):
        closing = _STYLES[next(mark.style for mark in marks if mark.is_opening)][1]
        end = len(translation.rstrip(_FINAL_PUNCTUATION).rstrip()) if after else len(translation)
        return translation[:end] + closing + translation[end:]
    return translation


def _balance(marks: list[QuotationMark]) -> int:
    """Number of opening marks without closing ones; negative if there are more closing ones."""
    return sum(1 if mark.is_opening else -1 for mark in marks)


def _marks_of_translation(translation: str, source_marks: list[QuotationMark]) -> list[QuotationMark]:
    """The quotation marks of a translation: also single ones without the other of the pair, if these are what its
    source has; but only double ones if it has too many otherwise."""
    marks = quotation_marks(translation)
    expected = [mark.is_opening for mark in source_marks]
    if len(marks) < len(expected):
        loose = quotation_marks(translation, pairs_only=False)
        return loose if [mark.is_opening for mark in loose] == expected else marks
    return marks if len(marks) == len(expected) else [mark for mark in marks if _DOUBLE.match(mark.text)]


def _with_styles(translation: str, source_marks: list[QuotationMark], styles: dict[str, str]) -> str:
    marks = _marks_of_translation(translation, source_marks)
    expected = [mark for mark in source_marks if mark.depth == 0]
    outer = [mark for mark in marks if mark.depth == 0]
    if len(outer) != len(expected):
        expected = source_marks[:1] * len(outer)
    outer_styles = {mark.start: styles[one.style] for mark, one in zip(outer, expected, strict=True)}
    replacements = []
    style = styles[source_marks[0].style]
    for mark in marks:
        style = outer_styles.get(mark.start, style)
        replacements.append((mark, style if mark.depth == 0 else _nested(style, mark.depth)))
    return _replaced(translation, replacements)


def _nested(style: str, depth: int) -> str:
    """The style of a quotation within others."""
    for _ in range(depth):
        style = _INNER_STYLES[style]
    return style


def _replaced(text: str, replacements: list[tuple[QuotationMark, str]]) -> str:
    """A text with other styles of some of its marks, and without spaces between quotation marks and words."""

    def parts() -> Iterator[str]:
        end = 0
        for mark, style in replacements:
            before, after = text[end : mark.start], mark.start + 1
            yield before if mark.is_opening else before.rstrip()
            yield _STYLES[style][not mark.is_opening]
            end = len(text) - len(text[after:].lstrip()) if mark.is_opening else after
        yield text[end:]

    return "".join(parts())
