"""Punctuation of translations: the final mark and the quotation marks of the source, and French spaces.

Small models drop the question mark after "p.m.", mix styles of quotation marks (see `regard.decoding.quotation_marks`),
and write French with and without the spaces before its tall marks, as their training text does.
"""

import re

from regard.decoding.language_guess import LANGUAGE_NAMES
from regard.decoding.quotation_marks import with_quotation_marks

MIN_WORDS = 4
"""Words of a source from which it certainly is a sentence, whose full stop is no part of an abbreviation."""

_CLOSING = r"\"'»”’)\]"
_AFTER_ABBREVIATED_TIME = re.compile(r"\b([ap]\.m\.)\.(?!\.)")
_FINAL_MARK = re.compile(rf"[\w%€$£°]\s?([.!?])(?<!\.\.)[{_CLOSING}\s]*\Z")
_LAST_FULL_STOP = re.compile(rf"(?<![.\s])\.(?=[{_CLOSING}]*\Z)")
_ABBREVIATED_END = re.compile(r"\b\w\.\w\.\Z")
_BEFORE_TALL_MARK = re.compile(
    rf"(?<=[\w{_CLOSING}%€$£°…])(?<!&\w)(?<!&\w\w)(?<!&\w{{3}})(?<!&\w{{4}})(?=[!?;:]+(?:[\s{_CLOSING}]|\Z))"
)


def with_punctuation(translation: str, source: str, target_language: str | None, ends_sentence: bool = True) -> str:
    """A complete translation with the punctuation of its source. A part within a sentence gets no final mark.

    >>> with_punctuation("Can you call after 5:30 p.m.", "Pouvez-vous appeler après 17h30 ?", "en")
    'Can you call after 5:30 p.m.?'
    >>> with_punctuation('Why not?" asked Paul.', "« Pourquoi pas ? » demanda Paul.", "en")
    '"Why not?" asked Paul.'
    >>> with_punctuation("Attendez: quoi?", "Wait: what?", "fr")
    'Attendez : quoi ?'
    """
    if target_language not in LANGUAGE_NAMES:
        return translation
    text = with_quotation_marks(_AFTER_ABBREVIATED_TIME.sub(r"\1", translation), source, target_language)
    text = _with_final_mark(text, source) if ends_sentence else text
    return _BEFORE_TALL_MARK.sub(" ", text) if target_language == "fr" else text


def _with_final_mark(translation: str, source: str) -> str:
    """A translation that ends with a mark if its source does, and with a question mark if that is one."""
    match = _FINAL_MARK.search(source)
    if match is None or not translation:
        return translation
    mark = match[1]
    if translation[-1].isalnum():
        return translation + mark if mark != "." or len(source.split()) >= MIN_WORDS else translation
    if mark != "?" or "?" in translation:
        return translation
    if _ABBREVIATED_END.search(translation):
        return translation + mark
    return _LAST_FULL_STOP.sub(mark, translation)
