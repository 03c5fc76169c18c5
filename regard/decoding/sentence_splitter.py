r"""Split text into sentences, in any script.

The approach follows Unicode's text segmentation (UAX #29): a sentence ends after a run of sentence terminals, the
closing quotes and brackets that follow it, and white space. On top of that come rules for what a full stop can be
besides the end of a sentence: part of an abbreviation, an initial, a list number, an ordinal, an ellipsis.

Three properties hold for every text:

- Nothing is lost: the pieces, joined, are the text.
- A line break always ends a piece, whichever of Unicode's line breaks it is, and so does a tab, which separates cells.
- The time is linear in the length of the text: quantifiers are possessive, and the context of a candidate is bounded.
"""

import re
from collections.abc import Iterator
from functools import cache, reduce
from operator import or_
from unicodedata import category

from regard.decoding.abbreviations import (
    ABBREVIATIONS,
    AFTER_TIME,
    NAME_EXTENSIONS,
    NAME_PARTICLES,
    ORDINAL_NOUNS,
    SENTENCE_STARTERS,
    UNITS_OF_MEASURE,
    Abbreviations,
)

SENTENCE_TERMINAL = (
    r"!.?\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362"
    r"\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b"
    r"\u1b5e\u1b5f\u1b7d-\u1b7f\u1c3b\u1c3c\u1c7e\u1c7f\u2024\u203c\u203d\u2047-\u2049\u2cf9-\u2cfb\u2e2e\u2e3c"
    r"\u2e53\u2e54\u2e60\u2e61\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9"
    r"\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00010a56\U00010a57"
    r"\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1\U00011141-\U00011143"
    r"\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c\U000112a9"
    r"\U000113d4\U000113d5\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642"
    r"\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42"
    r"\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44"
    r"\U00016d6e\U00016d6f\U00016e98\U0001bc9f\U0001da88"
)
"""The code points with the Unicode property Sentence_Terminal (Unicode 17), as the inside of a character class."""
FULL_STOP = r".\u2024\ufe52\uff0e"
"""Those of them that may also belong to an abbreviation or a number (UAX #29: ATerm)."""
ELLIPSIS = r"\u2025\u2026\u22ef\ufe19"
OTHER_TERMINAL = rf"{ELLIPSIS}\u037e\u05c3\u0f0d-\u0f11"
"""Further marks that end sentences: ellipses, the Greek question mark, the Hebrew sof pasuq, the Tibetan shad."""
NEEDS_SPACE = rf"{FULL_STOP}{ELLIPSIS}!?\u203c\u203d\u2047-\u2049\u2e2e"
"""Marks that end a sentence only before a space, or between letters of a script that is written without spaces."""

LINE_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
FORMAT_CHARACTERS = r"\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe0e\ufe0f\ufeff"
"""Invisible characters: joiners, direction marks, variation selectors."""
BRACKETS = (
    r"(\[{\u0f3a\u0f3c\u169b\u2045\u207d\u208d\u2308\u230a\u2329\u2768-\u2775\u27e6-\u27ef\u2983-\u2998\u29d8-\u29db\u29fc"
    r"\u29fd\u2e22-\u2e29\u3008-\u3011\u3014-\u301b\ufd3e\ufd3f\ufe17\ufe18\ufe35-\ufe44\ufe47\ufe48\ufe59-\ufe5e\uff08"
    r"\uff09\uff3b\uff3d\uff5b\uff5d\uff5f\uff60\uff62\uff63"
)
"""Brackets, including CJK quotation marks. Their position decides which open and which close."""
CLOSING_BRACKETS = (
    r")\]}\u0f3b\u0f3d\u169c\u2046\u207e\u208e\u2309\u230b\u232a\u2769\u276b\u276d\u276f\u2771\u2773\u2775\u27e7\u27e9\u27eb"
    r"\u27ed\u27ef\u2984\u2986\u2988\u298a\u298c\u298e\u2990\u2992\u2994\u2996\u2998\u29d9\u29db\u29fd\u2e23\u2e25\u2e27"
    r"\u2e29\u3009\u300b\u300d\u300f\u3011\u3015\u3017\u3019\u301b\u301e\u301f\ufd3e\ufe18\ufe36\ufe38\ufe3a\ufe3c\ufe3e"
    r"\ufe40\ufe42\ufe44\ufe48\ufe5a\ufe5c\ufe5e\uff09\uff3d\uff5d\uff60\uff63"
)
QUOTES = r"\"'\u00ab\u00bb\u2018-\u201f\u2039\u203a\u275b-\u275e\u2e42\u301d-\u301f\uff02\uff07"
MARKUP = r"*_~`"
DASHES = r"\-\u2010-\u2015\u2212\u30fc\ufe58\uff0d"
SPACELESS = (
    r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u2e80-\u9fff\ua000-\ua4cf\uaa60-\uaa7f\uf900-\ufaff\uff00-\uffef"
    r"\U00020000-\U0003ffff"
)
"""Scripts written without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese, Yi, Tai."""
CJK = r"\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff10-\uffef\U00020000-\U0003ffff"

MIN_PHRASE = 8
"""Thai and Lao have no sentence terminal: a space ends a phrase that has at least this many characters."""
MAX_CONTEXT_CHARACTERS = 40
"""Maximum number of characters around a full stop that are searched for the words next to it."""

_LINE = re.compile(rf"[^\t{LINE_BREAK}]*+[\t{LINE_BREAK}]\s*+|[^\t{LINE_BREAK}]++")
_WORD = re.compile(r"[^\W_]")
_LETTER = re.compile(r"[^\W\d_]")
_TERMINALS = f"{SENTENCE_TERMINAL}{OTHER_TERMINAL}"
# Greek writes its question mark as a semicolon, Armenian its full stop often as a colon.
_LOCAL_TERMINALS = r"(?<=[\u0370-\u03ff\u1f00-\u1fff]);(?=\s)|(?<=[\u0531-\u058f]):(?=\s)"
_END_OF_QUOTE = rf"(?=[\s,;:{_TERMINALS}{CLOSING_BRACKETS}{QUOTES}]|$)"
# A run of marks is examined once, at its beginning: otherwise 100,000 full stops would take quadratic time.
_CANDIDATE = re.compile(
    rf"(?:(?<![{_TERMINALS}])(?P<marks>[{_TERMINALS}]++)|(?P<local>{_LOCAL_TERMINALS}))"
    rf"(?P<close>(?:[ \u00a0\u202f]?[\u00bb\u203a]{_END_OF_QUOTE}|[\u00ab\u2039\u2018\u201c]{_END_OF_QUOTE}"
    rf"|[\"'\u2019\u201d\u00bb\u203a{CLOSING_BRACKETS}{MARKUP}{FORMAT_CHARACTERS}]"
    r"|\[\d{1,3}\]|[\u00b9\u00b2\u00b3\u2070\u2074-\u2079])*+)"  # references to footnotes
    r"(?P<space>\s*+)"
    r"|(?<=[\u0e00-\u0eff])(?P<gap>\s++)(?![\u0e2f\u0e46\u0ec6])(?=[\u0e00-\u0eff])"  # not before a repetition mark
)
_QUOTE_OR_BRACKET = re.compile(rf"[{QUOTES}{CLOSING_BRACKETS}]")
_OPENING = re.compile(rf"[{QUOTES}{BRACKETS}{MARKUP}{FORMAT_CHARACTERS}{DASHES}¿¡•]*+[ \u00a0\u202f]?")
_DASH = re.compile(f"[{DASHES}]")
_CONTINUES = re.compile(rf"[,;\u060c\u061b\u3001\uff0c\uff1b{CLOSING_BRACKETS}{_TERMINALS}]|[:\uff1a](?=\s|$)")
_ELLIPSIS = re.compile(rf"[.{ELLIPSIS}]{{2,}}|[{ELLIPSIS}]")
_ONLY_FULL_STOP = re.compile(f"[{FULL_STOP}]")
_ENDS_WITHOUT_SPACE = re.compile(f"[^{NEEDS_SPACE}]")
_IS_CJK = re.compile(f"[{CJK}]")
_SPACELESS = re.compile(f"[{SPACELESS}]")
_INITIALS = re.compile(rf"(?:(?![{CJK}])[^\W\d_][.-]{{1,2}})*+(?![{CJK}])[^\W\d_]")
_LIST_NUMBER = re.compile(r"[\s(]*+(?:\d{1,3}(?:\.\d{1,3}){0,3}|[ivxIVX]{1,5}|[^\W\d_])")
_FEW_DIGITS = re.compile(r"\d{1,2}")
_NO_VOWELS = re.compile(r"[bcdfghjklmnpqrstvwxzçñß]{2,6}")
_ELISION = re.compile(r"(?:[cdjlmnst]|qu)['’]", re.IGNORECASE)
_INVERSION = re.compile(r"[^\W\d_]{2,20}+-(?:t-)?(?:je|tu|il|elle|on|nous|vous|ils|elles)\b")
"""French for "he asked" after direct speech: demanda-t-il."""
_LETTER_WORDS = frozenset("aàèyiя")
"""Single lower-case letters that are words of some language and may end a sentence."""
_NEXT_WORD = re.compile(r"[^\W\d_]{1,20}+")
_LAST_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{2,40}+$")
_SMALL_WORD = re.compile(r"\s(?![A-ZÀ-ÖØ-Þ])[^\W\d_]")
_ELIDED_START = re.compile(r"(?:[CDJLMNST]|Qu)['’](?=[^\W\d_])[^A-ZÀ-ÖØ-Þ]")
# A capitalised word as prose writes it, not camelCase and not part of a longer dotted name.
_CAPITALISED = re.compile(
    r"[^\W\d_](?:[^\W\d_A-ZÀ-ÖØ-Þ]{1,20}+(?=[\s,;:!?'’\-»\"]|\.(?![^\W_A-ZÀ-ÖØ-Þ])|$)|(?=[\s'’]))"
)
_CODE = re.compile(r"[/@=&_\\#<>$%]|www\.|\(\)", re.IGNORECASE)


def sentences(text: str, language: str | None = None) -> list[str]:
    """Split a text into its sentences, each with the white space that follows it; joined, they are the text.

    `language` (ISO 639-1) selects the abbreviations to look for; without it those of all languages are used. Where it
    is unclear whether a sentence ends, the text is not split.

    >>> sentences("M. Dupont a payé 3.50 €, p. ex. hier. « Vraiment ? » dit-elle. Oui !")
    ['M. Dupont a payé 3.50 €, p. ex. hier. ', '« Vraiment ? » dit-elle. ', 'Oui !']
    >>> sentences("il est tard. je mange une pomme, etc. et toi ?")
    ['il est tard. ', 'je mange une pomme, etc. et toi ?']
    >>> sentences("你好吗？我很好。「はい。」と彼は言った。")
    ['你好吗？', '我很好。', '「はい。」と彼は言った。']
    """
    known = abbreviations(language)
    return [sentence for line in _LINE.findall(text) for sentence in _split_line(line, known)]


@cache
def abbreviations(language: str | None) -> Abbreviations:
    """The abbreviations of a language, and the English ones; of all languages if it is unknown or None."""
    code = (language or "").replace("_", "-").partition("-")[0].casefold()
    if code in ABBREVIATIONS:
        return ABBREVIATIONS[code] | ABBREVIATIONS["en"]
    return reduce(or_, ABBREVIATIONS.values())


def needs_space_after(text: str) -> bool:
    """Whether a translation of this text, which nothing separates from what follows, needs a space after it.

    That is so where the script has no spaces, and where a mark ended a sentence without one.
    """
    last = text[-1:]
    return bool(_SPACELESS.match(last) or (re.match(f"[{_TERMINALS}]", last) and _ENDS_WITHOUT_SPACE.match(last)))


def ends_with_mark(text: str) -> bool:
    """Whether the last character of a text is a mark that can end a sentence."""
    return re.match(f"[{_TERMINALS}]", text[-1:]) is not None


def has_words(text: str) -> bool:
    """Whether a text has a letter or a digit."""
    return _WORD.search(text) is not None


def _split_line(line: str, known: Abbreviations) -> Iterator[str]:
    """The sentences of one line. Each has a letter or a digit, unless the whole line has none."""
    first = _LETTER.search(line)
    informal = first is not None and first[0].islower()
    start, checked, with_words = 0, 0, False
    waiting = ""  # the last sentence, which gets what remains if that has no words
    for end in _CANDIDATE.finditer(line):
        if end.end() == len(line):
            break
        with_words = with_words or _WORD.search(line, checked, end.start()) is not None
        checked = end.start()
        if with_words and _ends_sentence(line, start, end, informal, known):
            if waiting:
                yield waiting
            waiting, start, checked, with_words = line[start : end.end()], end.end(), end.end(), False
    rest = line[start:]
    if waiting and has_words(rest):
        yield waiting
        waiting = ""
    yield waiting + rest


def _ends_sentence(line: str, start: int, end: re.Match[str], informal: bool, known: Abbreviations) -> bool:
    """Whether a sentence that begins at `start` ends at a candidate.

    `informal`: the line begins with a small letter, so that a small letter may well begin a sentence.
    """
    if end["gap"] is not None:
        return end.start() - start >= MIN_PHRASE
    opening = _OPENING.match(line, end.end())
    position = opening.end() if opening else end.end()
    following = line[position : position + 1]
    if not following or _CONTINUES.match(line, end.end()) or _CONTINUES.match(line, position):
        return False
    before = line[max(start, end.start() - 1) : end.start()]
    if before in tuple("([（［"):  # "(!)" is a remark
        return False
    marks = end["marks"] or "?"
    if not end["space"] and not _ends_without_space(line, start, end, marks, position):
        return False
    quoted = _QUOTE_OR_BRACKET.search(end["close"]) is not None
    after_dash = opening is not None and _DASH.search(opening[0]) is not None
    small = following.islower()
    if quoted and line.startswith(("と", "って"), position):  # Japanese: he said
        return False
    if _ELLIPSIS.fullmatch(marks):
        separate = bool(end["space"]) or following.isupper()
        return separate and not following.isdigit() and (not small or (informal and not quoted))
    if small and after_dash and not informal:
        return False
    if not _ONLY_FULL_STOP.fullmatch(marks):
        reports_speech = not informal and _INVERSION.match(line, position) is not None
        return not (small and (quoted or reports_speech))
    if small and quoted and not informal:
        return False
    return not _belongs_to_word(line, start, end.start(), position, informal, known)


def _ends_without_space(line: str, start: int, end: re.Match[str], marks: str, position: int) -> bool:
    """Whether marks with no space after them can end a sentence."""
    before, following = line[max(start, end.start() - 1) : end.start()], line[position : position + 1]
    if _ENDS_WITHOUT_SPACE.match(marks[-1]):
        return True
    only_full_stop = _ONLY_FULL_STOP.fullmatch(marks) is not None
    if only_full_stop or _ELLIPSIS.fullmatch(marks):
        if _IS_CJK.match(before) and _IS_CJK.match(following):
            return True
    elif _has_no_case(before) and _has_no_case(following):
        return True
    return before.islower() and following.isupper() and _space_is_missing(line, start, end, position, only_full_stop)


def _space_is_missing(line: str, start: int, end: re.Match[str], position: int, only_full_stop: bool) -> bool:
    """Whether a space was left out between a small letter and a capital, outside addresses, file names and code.

    After a full stop more is asked: a capitalised word that is no file extension follows, and a small word precedes,
    or the following words begin a sentence.
    """
    token = "".join(line[max(start, end.start() - MAX_CONTEXT_CHARACTERS) : end.start()].split()[-1:])
    rest = "".join(line[end.start() : position + MAX_CONTEXT_CHARACTERS].split()[:1])
    previous, word = _LAST_WORD.search(token), _CAPITALISED.match(line, position)
    if previous is None or _CODE.search(token + rest):
        return False
    if not only_full_stop:
        return True
    if word is None or "." in token:
        return False
    likely = previous[0].islower() and word[0].casefold() not in NAME_EXTENSIONS
    return likely or _begins_sentence(line, position)


def _has_no_case(character: str) -> bool:
    """Whether a character is a letter, or a sign on one, of a script without capitals."""
    return bool(character) and category(character)[0] in "LM" and character.lower() == character.upper()


def _belongs_to_word(line: str, start: int, stop: int, position: int, informal: bool, known: Abbreviations) -> bool:
    """Whether the full stop at `stop` belongs to an abbreviation, an initial or a number, before what follows it."""
    if stop - start <= MAX_CONTEXT_CHARACTERS and _LIST_NUMBER.fullmatch(line, start, stop):
        return True
    following = line[position : position + 1]
    small, number = following.islower(), following.isdigit() or following in ("#", "°")
    *others, token = line[max(start, stop - MAX_CONTEXT_CHARACTERS) : stop].split() or [""]
    previous = others[-1] if others else ""
    bare = token.lstrip("\"'“”„‘’«»‹›([{¿¡—–-*_")
    word = _ELISION.sub("", bare, count=1).casefold()
    if _FEW_DIGITS.fullmatch(word):
        return small or number or _next_word(line, position) in ORDINAL_NOUNS
    names = {word, f"{previous.casefold()} {word}", f"({word}" if token.startswith(("(", "[")) else word}
    if previous[-1:].isdigit() and bare.islower() and (word in UNITS_OF_MEASURE or len(word) == 1):  # 5 mm. 10 m.
        time = word in ("h", "min") and number  # 15 h. 30
        return time or (small and not informal) or (len(word) == 1 and line.startswith(".", position + 1))
    if _INITIALS.fullmatch(word):
        if names & known.either and following.isupper():
            return word in ("a.m", "p.m") and _next_word(line, position) in AFTER_TIME
        if following.isupper() and not names & known.inside and _begins_sentence(line, position):
            return False
        return len(bare) > 1 or not bare.islower() or _is_initial(bare, previous, line[position : position + 2])
    if names & known.inside or (small and names & known.either) or (number and names & known.before_number):
        return True
    return small and not informal and _NO_VOWELS.fullmatch(word) is not None


def _is_initial(letter: str, previous: str, following: str) -> bool:
    """Whether a small letter abbreviates something, rather than being a word."""
    return previous.endswith(".") or following.endswith(".") or letter not in _LETTER_WORDS


def _begins_sentence(line: str, position: int) -> bool:
    """Whether the words from `position` begin a sentence and not a name: "She", "Le chat", but not "Le Pen"."""
    if _ELIDED_START.match(line, position):
        return True
    word = _NEXT_WORD.match(line, position)
    if word is None or (len(word[0]) == 1 and line.startswith((".", "-"), word.end())):  # another initial
        return False
    if word[0].casefold() in NAME_PARTICLES:
        return _SMALL_WORD.match(line, word.end()) is not None
    return word[0].casefold() in SENTENCE_STARTERS


def _next_word(line: str, position: int) -> str:
    word = _NEXT_WORD.match(line, position)
    return word[0].casefold() if word else ""
