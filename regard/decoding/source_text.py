"""What people type and paste, written as translation models know it from their training text.

Text from keyboards, web pages and PDFs differs from edited text in ways that readers hardly notice, but models do:
accents as separate characters, soft hyphens, repeated spaces, ligatures, whole sentences in capitals.
"""

import re
from unicodedata import normalize

INVISIBLE = r"\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
"""Soft hyphens, zero-width spaces and marks of direction, but no joiners, which change what is read."""

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_COMPATIBLE = re.compile(r"[\ufb00-\ufb06\uff01-\uff5e]++")  # Latin ligatures, full-width letters and marks
_SPACES = re.compile(r"\s++")
_SPACES_BUT_FRENCH = re.compile(r"\s{2,}+|[^\S\u00a0\u202f]|(?<!«)[\u00a0\u202f](?![!?:;»])")
_ACRONYM = re.compile(r"[^\w!?]*+(?:\w{1,2}['’])?+[\w.&/-]{1,6}[^\w!?]*+")  # not before ! or ?: those are exclaimed
_LETTER = re.compile(r"[^\W\d_]")


def plain_text(text: str, keep_french_spaces: bool = True) -> str:
    r"""A text without differences that readers hardly see.

    French has a no-break space before some marks. By default it is kept.

    >>> plain_text("De\u0301jà  l’oﬃ\u00adce\u00a0？"), plain_text("À\u00a0qui\u00a0?"), plain_text("Qui\u00a0?", False)
    ('Déjà l’office\xa0?', 'À qui\xa0?', 'Qui ?')
    """
    visible = _INVISIBLE.sub("", normalize("NFC", text))
    compatible = _COMPATIBLE.sub(lambda match: normalize("NFKC", match[0]), visible)
    return (_SPACES_BUT_FRENCH if keep_french_spaces else _SPACES).sub(" ", compatible)


def is_in_capitals(text: str) -> bool:
    """Whether a text is in capitals, and more than an acronym.

    >>> [is_in_capitals(text) for text in ("NO EXIT", "STOP!", "NATO", "No EXIT", "出口はこちらです")]
    [True, True, False, False, False]
    """
    return text.isupper() and not _ACRONYM.fullmatch(text)


def in_sentence_case(text: str) -> str:
    """A text with a capital at its beginning only.

    >>> in_sentence_case("« ÇA SUFFIT ! »")
    '« Ça suffit ! »'
    """
    return _LETTER.sub(lambda match: match[0].upper(), text.lower(), count=1)
