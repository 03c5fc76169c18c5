"""Splits a text into words as taggers and word alignments count them.

Elided words (l'), 's, hyphenated pronouns (-il) and punctuation are separate words. The rules are those of French and
English; in other languages that separate words by spaces, they separate punctuation.
"""

import re

_CLITIC = r"-(?:t-)?(?:je|tu|ils?|elles?|nous|vous|moi|toi|les?|la)\b"
_ELIDED = r"\b(?:[cdjlmnst]|qu)['’]"
_WORD = re.compile(
    rf"\d+(?:[.,:]\d+)+"  # 3.14 10,000 12:30
    rf"|{_ELIDED}(?=\w)(?!s\b)"  # elided: l'eau qu'il, but not the D's
    rf"|(?<!['‘’]){_ELIDED}(?=\s)"  # elided in a text of separate words: l' eau, but not rock 'n' roll
    rf"|['’]s\b"  # Marie's
    rf"|{_CLITIC}"  # -t-il -vous -moi
    rf"|\w+(?:['’](?!s\b)\w+|(?!{_CLITIC})-\w+)*"  # any other word, aujourd'hui and grand-mère among them
    r"|[^\w\s]",  # a comma or a stop
    re.IGNORECASE,
)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word of a text, in characters."""
    return [match.span() for match in _WORD.finditer(text)]


def split_words(text: str) -> list[str]:
    """Return the words of a text.

    >>> split_words("L'ami de Marie dort-il ?"), split_words("Is Marie's friend sleeping?")
    (["L'", 'ami', 'de', 'Marie', 'dort', '-il', '?'], ['Is', 'Marie', "'s", 'friend', 'sleeping', '?'])
    """
    return [text[start:end] for start, end in word_spans(text)]
