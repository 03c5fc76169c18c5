"""Parts of a sentence that are translated by themselves: halves of a long one, and what emoji and markup separate."""

import re
from itertools import pairwise
from unicodedata import category

_COMMA = re.compile(r"[,;:\u060c\u061b\u0387\u1363-\u1365]\s++|[\u3001\uff0c\uff1a\uff1b\uff64]\s*+")
_CONJUNCTION = re.compile(
    r"(?<!\s)\s++(?=(?:et|ou|mais|car|donc|puis|parce que|alors que|tandis que|pendant que|quand|lorsque|si|and"
    r"|or|but|so|then|because|while|when|if)\s)"
)
_SPACE = re.compile(r"\s++")
_EMOTICON = r"(?<!\S)(?:[:;][-'o]?[()DPpOo3/*|]|=[()DPp]|8-\)|[xX]-?D|<3|\^_*\^)(?!\S)"
_EMOJI = r"[\u231a\u231b\u23e9-\u23fa\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][\ufe0f\u200d]*+"
_TAG = (
    r"</?(?i:p|div|br|hr|h[1-6]|[uo]l|li|d[ltd]|table|t(?:head|body|r|d|h)|html|head|title|body|header|footer|main"
    r"|article|section|nav|aside|blockquote|pre|button|form|label|option)\b[^<>]{0,200}>"
)
"""HTML around what is written, but not in a sentence, such as <b> and <a>."""
MIN_BLOB = 200
"""Letters and digits without a space from which they are no word in scripts with spaces, but a key or the like."""
_BLOB = (
    rf"(?<!\S)[«“\"'(]{{0,3}}[0-9A-Za-z+/=\u00c0-\u058f\u05d0-\u06ff\u1e00-\u1fff]{{{MIN_BLOB},}}+"
    r"(?=[.,;:!?…)»”\"']*+(?:\s|\Z))"
)
_HASHTAGS = r"(?<!\S)(?:[#@]\w++(?:\s++|\Z)){2,}+"
_BETWEEN_PARTS = re.compile(rf"(?:{_EMOJI}|{_TAG}|{_BLOB}|(?<=\s)(?:{_EMOTICON}|\|))++\s*+")
_SLASH = re.compile(r"(?<=\D\s)/(?=\s\D)")
"""What separates lines of a poem or days of opening hours, but not 3 / 4."""
_SYMBOL_CHARACTERS = r"\s|\u2190-\u2bff\ufe0f\u200d\U0001f000-\U0001faff"  # emoji, what joins several into one, arrows
_SYMBOL = rf"(?:[{_SYMBOL_CHARACTERS}]|{_EMOTICON}|{_TAG}|{_BLOB}|\*{{2,}}+(?:\s?:)?)"
_LIST_MARKER = r"(?:[-*•‣◦–—>/]|#{1,6}|\[[ xX]?\])\s++"
_BULLET = re.compile(r"\s*+([*•])\s")
_NUMBER_IN_LIST = r"(?:\d{1,2}[.)]|[a-zA-Z]\))\s++(?=[^\W\d_])"
_FIRST_BOLD = re.compile(
    rf"(?:{_LIST_MARKER}|{_NUMBER_IN_LIST}|\s)*+\*\*(?=\S)[^*]{{1,200}}(?<=\S)\*\*(?:(?<=[:.!?]\*\*)|\s?:|\s[–—-](?=\s))\s*+"
)
"""A label in bold at the beginning of a Markdown text. Other bold words are translated with their sentence: see
`regard.decoding.inline_marks`."""
_SYMBOLS_BEFORE = re.compile(rf"(?:{_SYMBOL}|{_LIST_MARKER}|{_NUMBER_IN_LIST}|{_HASHTAGS})++")
_SYMBOLS_AFTER = re.compile(rf"(?<![{_SYMBOL_CHARACTERS}*]){_SYMBOL}++\Z")
MAX_CHARACTER_LENGTH = 32
"""Code points of what readers see as one character; the emoji of a family is among the longest."""
ZERO_WIDTH_JOINER = "\u200d"
SKIN_TONES = frozenset("🏻🏼🏽🏾🏿")


def halves(text: str) -> list[str]:
    """A text split in two near its middle: after a comma or the like, else before a conjunction, else at a space, else
    between two characters.

    >>> halves("le chat noir, le chien")
    ['le chat noir, ', 'le chien']
    """
    middle = len(text) / 2
    for boundary in (_COMMA, _CONJUNCTION, _SPACE):
        cuts = _cuts(text, boundary)
        if cuts:
            index = min(cuts, key=lambda text_before_stop: abs(text_before_stop - middle))
            return [text[:index], text[index:]]
    index = _character_boundary(text, len(text) // 2)
    return [text[:index], text[index:]] if index else [text]


def has_clauses(text: str) -> bool:
    """Whether a text can be split near its middle without separating words that belong together."""
    return bool(_cuts(text, _COMMA) or _cuts(text, _CONJUNCTION))


def _cuts(text: str, boundary: re.Pattern[str]) -> list[int]:
    """Where boundaries near the middle of a text end."""
    middle, quarter = len(text) / 2, len(text) / 4
    return [match.end() for match in boundary.finditer(text) if abs(match.end() - middle) <= quarter]


def separate_parts(sentence: str) -> list[str]:
    """A sentence split where emoji, list markers (but no dashes), bars, slashes, bold or HTML separate its parts.

    Joined, the parts are the sentence.

    >>> separate_parts("Merci :) à demain 😉"), separate_parts("* du lait * des œufs")
    (['Merci :) ', 'à demain 😉'], ['* du lait ', '* des œufs'])
    """
    bullet = _BULLET.match(sentence)
    boundaries = [match.end() for match in _BETWEEN_PARTS.finditer(sentence)]
    boundaries += [match.start() for match in _SLASH.finditer(sentence)]
    boundaries += [position for match in re.finditer(_HASHTAGS, sentence) for position in match.span()]
    boundaries += [match.end() for match in [_FIRST_BOLD.match(sentence)] if match]
    if bullet:
        boundaries += [match.start() + 1 for match in re.finditer(rf" {re.escape(bullet[1])} ", sentence)]
    ends = [0, *sorted(boundaries), len(sentence)]
    return [sentence[start:end] for start, end in pairwise(ends) if start < end]


def _character_boundary(text: str, index: int) -> int:
    """An index near this one that does not separate an accent, joiner or modifier from its letter; else the index."""
    for near in range(index, max(0, index - MAX_CHARACTER_LENGTH), -1):
        joins = text[near - 1] == ZERO_WIDTH_JOINER or text[near] in SKIN_TONES or category(text[near])[0] in "MC"
        if not joins:
            return near
    return index


def core_of(part: str) -> tuple[int, int]:
    """Where a part of a sentence begins and ends without the list markers, emoji and HTML around it, which are copied.

    >>> "- [ ] acheter du lait 😉"[slice(*core_of("- [ ] acheter du lait 😉"))]
    'acheter du lait'
    """
    before = _SYMBOLS_BEFORE.match(part)
    start = before.end() if before else 0
    after = _SYMBOLS_AFTER.search(part, start)
    return start, after.start() if after else len(part)
