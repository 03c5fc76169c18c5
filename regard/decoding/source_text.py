"""What people type and paste, written as translation models know it from their training text.

Text from keyboards, web pages and PDFs differs from edited text in ways that readers hardly notice, but models do:
accents as separate characters, soft hyphens, repeated spaces, ligatures, whole sentences in capitals.
"""

import re
from unicodedata import normalize

from regard.decoding.quotation_marks import with_straight_marks

INVISIBLE = r"\u00ad\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
"""Soft hyphens, zero-width spaces and marks of direction, but no joiners, which change what is read."""
LONGEST_ACRONYM = 4
"""Letters of a word that may be an acronym if no other word is next to it."""
MAX_ACRONYMS = 2
"""Short words in capitals up to which a text may be acronyms only, as in RER B."""

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_COMPATIBLE = re.compile(r"[\ufb00-\ufb06\uff01-\uff5e]++")  # Latin ligatures, full-width letters and marks
_SPACES = re.compile(r"\s++")
_SPACES_BUT_FRENCH = re.compile(r"\s{2,}+|[^\S\u00a0\u202f]|(?<!«)[\u00a0\u202f](?![!?:;»])")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]{2,}+")
_FIRST = re.compile(r"[^\W_]")
_UNITS = "(?:IX|IV|V?I{0,3})"
_NUMERAL = re.compile(rf"\b(?=[IVX])X{{0,3}}{_UNITS}\b|\bX{{1,3}}{_UNITS}(?=(?:E|ÈME)\b)")
"""A Roman numeral up to 39, an ordinal from 10 (VIE is life, not the sixth), or the English pronoun I."""


def plain_forms(text: str, keep_french_spaces: bool = True) -> list[str]:
    r"""A text as it is, and without differences that readers hardly see: first of spaces and invisible characters and
    with composed accents, then of ligatures and full-width characters too. Forms that are the same are left out.

    French has a no-break space before some marks. By default it is kept.

    >>> plain_forms("l’of\u00adfice  de\u0301jà\u00a0?")[1:]
    ['l’office déjà\xa0?']
    >>> plain_forms("ﬁn"), plain_forms("Qui\u00a0?", keep_french_spaces=False)
    (['ﬁn', 'fin'], ['Qui\xa0?', 'Qui ?'])
    """
    spaces = _SPACES_BUT_FRENCH if keep_french_spaces else _SPACES
    visible = spaces.sub(" ", _INVISIBLE.sub("", text))
    compatible = normalize("NFC", _COMPATIBLE.sub(lambda match: normalize("NFKC", match[0]), visible))
    return list(dict.fromkeys((text, normalize("NFC", visible), compatible, with_straight_marks(compatible))))


def is_in_capitals(text: str) -> bool:
    """Whether all letters of a text are capitals, and it is more than an acronym.

    >>> [is_in_capitals(text) for text in ("NO EXIT", "STOP!", "HE HAS A CAT", "NATO", "RER B", "No EXIT", "DNA 是")]
    [True, True, True, False, False, False, False]
    """
    if not all(match[0].isupper() for match in _LETTER.finditer(text)):
        return False
    lengths = [len(word) for word in _WORD.findall(text)]
    longest = max(lengths, default=0)
    may_be_acronym = len(lengths) <= MAX_ACRONYMS and (
        longest < LONGEST_ACRONYM or (longest == LONGEST_ACRONYM and len(lengths) == 1)
    )
    return longest > 0 and (not may_be_acronym or "!" in text or "?" in text)


def in_sentence_case(text: str) -> str:
    """A text with a capital at its beginning only, none after a number there, and Roman numerals in capitals.

    >>> in_sentence_case("« ÇA SUFFIT ! »"), in_sentence_case("2 ÉTAGES"), in_sentence_case("LE XIXE SIÈCLE")
    ('« Ça suffit ! »', '2 étages', 'Le XIXe siècle')
    """
    numerals = [*_NUMERAL.findall(text), ""]
    small = "".join(part.lower() + numeral for part, numeral in zip(_NUMERAL.split(text), numerals, strict=True))
    return _FIRST.sub(lambda match: match[0].upper(), small, count=1)
