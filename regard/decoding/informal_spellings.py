"""Spoken forms and abbreviations of chats, written out as translation models know them: j'sais, lemme see, np."""

import re
from collections.abc import Callable

_FRENCH_LETTERS = {"j": "je", "m": "me", "s": "se", "d": "de", "l": "le", "c": "ce", "n": "ne", "qu": "que"}
"""What is left of words before an apostrophe and a consonant, where written French has the complete word."""
_CONSONANT = "[bcdfgjklmnpqrstvwxz]"
_SUBJECT = re.compile(r"(?:^|\s)(?:je|tu|il|elle|on|nous|vous|ils|elles|ça|ce|qui|ne|y)\s$", re.IGNORECASE)
"""The end of a text in which t' is the object of what follows."""
LONGEST_SUBJECT = len(" elles ")
_BEGINNING = re.compile(r"(?:^|[!?…:\n(«“‘\"'—–-])\s?\Z")
"""The end of a text after which a sentence begins. Texts are split at full stops, except after titles as in Dr. Tho."""
LONGEST_BEGINNING = 2
"""Characters of a mark and a space."""
_NAME_AFTER = re.compile(r"\s[A-ZÀ-Þ]\w*[a-zß-ÿ]")
"""What is after the first word of a name, as in Nan Goldin."""
_FRENCH_LETTER = re.compile(rf"(?:(?<!\w\w['’])|(?<=[qQ]u['’]))\b([jcJC]|[mtsdln]|T|[qQ]u)['’](?={_CONSONANT})(?!s\b)")
"""Other capitals are parts of names, as in N'Golo and D'jango; after two letters, others too, as in rock'n'roll."""
_FRENCH_WORDS = {
    "ajd": "aujourd'hui",
    "bah non": "eh bien non",
    "bah oui": "eh bien oui",
    "ben non": "eh bien non",
    "ben oui": "eh bien oui",
    "bsr": "bonsoir",
    "c'pas": "c'est pas",
    "c'te": "cette",
    "chais": "je sais",
    "ché pas": "je ne sais pas",
    "chui": "je suis",
    "chuis": "je suis",
    "d'jà": "déjà",
    "d'main": "demain",
    "d'puis": "depuis",
    "dsl": "désolé",
    "jtm": "je t'aime",
    "kelkun": "quelqu'un",
    "m'dame": "madame",
    "m'sieur": "monsieur",
    "nan": "non",
    "ouaip": "oui",
    "p't'être": "peut-être",
    "p'tain": "putain",
    "p'têt": "peut-être",
    "p'têtre": "peut-être",
    "p'tit": "petit",
    "p'tite": "petite",
    "p'tites": "petites",
    "p'tits": "petits",
    "qqch": "quelque chose",
    "qqn": "quelqu'un",
    "s'te": "s'il te",
    "s'tu": "si tu",
    "t'façon": "de toute façon",
    "tkt": "t'inquiète",
    "tlm": "tout le monde",
    "v'là": "voilà",
}
_THERE_IS = re.compile(
    r"(?<![\w.@/-])(?:[Ii]l\s)?(?<!['’])(?:[Yy]a|YA)(?=\s(?:\d|(?:d|qu)['’]\w|(?:d[eu]s?|deux|trois|pas|plus"
    r"|personne|rien|quelqu['’]un|quelque|que|une?|trop|tout|toujours|encore|même|beaucoup|quoi)\b))"
)
"""Before other words, ya may be a name or Arabic."""
_ENGLISH_WORDS = {
    "'cause": "because",
    "'em": "them",
    "afaik": "as far as I know",
    "bein'": "being",
    "btw": "by the way",
    "c'mon": "come on",
    "comin'": "coming",
    "coulda": "could have",
    "coz": "because",
    "cuz": "because",
    "doin'": "doing",
    "feelin'": "feeling",
    "finna": "going to",
    "fyi": "for your information",
    "gettin'": "getting",
    "gimme": "give me",
    "goin'": "going",
    "gotcha": "got it",
    "hafta": "have to",
    "imho": "in my opinion",
    "imma": "I'm going to",
    "kiddin'": "kidding",
    "kinda": "sort of",
    "lemme": "let me",
    "lookin'": "looking",
    "lotta": "lot of",
    "makin'": "making",
    "nah": "no",
    "nite": "night",
    "nope": "no",
    "nothin'": "nothing",
    "ol'": "old",
    "omg": "oh my God",
    "outta": "out of",
    "sayin'": "saying",
    "shoulda": "should have",
    "somethin'": "something",
    "sorta": "sort of",
    "takin'": "taking",
    "talkin'": "talking",
    "tbh": "to be honest",
    "thinkin'": "thinking",
    "tho": "though",
    "tmrw": "tomorrow",
    "tryin'": "trying",
    "tryna": "trying to",
    "ttyl": "talk to you later",
    "wassup": "what's up",
    "wdym": "what do you mean",
    "whatcha": "what are you",
    "workin'": "working",
    "woulda": "would have",
    "yep": "yes",
    "yup": "yes",
}
_ENGLISH_ABBREVIATIONS = {
    "brb": "I'll be right back",
    "gn": "good night",
    "hbd": "happy birthday",
    "hru": "how are you",
    "ily": "I love you",
    "imo": "in my opinion",
    "jk": "just kidding",
    "np": "no problem",
    "nvm": "never mind",
    "omw": "on my way",
    "ty": "thank you",
    "yw": "you're welcome",
}
"""In small letters and without an article only: otherwise they may stand for something else, as in import x as np."""


def written_out(text: str, language: str | None) -> str:
    """A text with its spoken forms written out, if it is French or English.

    >>> written_out("J'sais pas, tu m'manques, qu'j'y aille.", "fr")
    "Je sais pas, tu me manques, que j'y aille."
    >>> written_out("T'vas où ? Un p'tit café à N'djamena ?", "fr")
    "Tu vas où ? Un petit café à N'djamena ?"
    >>> written_out("C'mon, lemme see. I'm tryna sleep.", "en")
    "Come on, let me see. I'm trying to sleep."
    """
    if language == "fr":
        text = _THERE_IS.sub(lambda match: "Il y a" if match[0][0].isupper() else "il y a", text)
        text = _FRENCH_WORD.sub(_replacement(_FRENCH_WORDS), text)
        return _FRENCH_LETTER.sub(lambda match: _complete_word(match) + " ", text)
    if language == "en":
        text = _ENGLISH_ABBREVIATION.sub(lambda match: _ENGLISH_ABBREVIATIONS[match[0]], text)
        return _ENGLISH_WORD.sub(_replacement(_ENGLISH_WORDS), text)
    return text


def _complete_word(match: re.Match[str]) -> str:
    """The word that a letter before an apostrophe is left of; t' is the subject or the object."""
    letter = match[1].lower()
    is_object = _SUBJECT.search(match.string[max(0, match.start() - LONGEST_SUBJECT) : match.start()])
    word = ("te" if is_object else "tu") if letter == "t" else _FRENCH_LETTERS[letter]
    return word.capitalize() if match[1][0].isupper() else word


def _words(replacements: dict[str, str], before: str = "", flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Any of these words, with either apostrophe, where `before` matches before them."""
    alternatives = "|".join(re.escape(word).replace("'", "['’]") for word in replacements)
    return re.compile(rf"(?<![\w'’.@/-]){before}(?:{alternatives})(?![\w'’@/-]|\.\w)", flags)


def _replacement(replacements: dict[str, str]) -> Callable[[re.Match[str]], str]:
    def replacement(match: re.Match[str]) -> str:
        if _is_name(match):
            return match[0]
        word = replacements[match[0].lower().replace("’", "'")]
        return word[0].upper() + word[1:] if match[0].lstrip("'’")[0].isupper() else word

    return replacement


def _is_name(match: re.Match[str]) -> bool:
    """Whether a word may be a name or an acronym: it has a capital in a sentence, or before another name."""
    word = match[0]
    if word.islower() or "'" in word or "’" in word:
        return False
    before = match.string[max(0, match.start() - LONGEST_BEGINNING) : match.start()]
    if not _BEGINNING.search(before) or not (word.isupper() or word[1:].islower()):
        return True
    return _NAME_AFTER.match(match.string, match.end()) is not None


_FRENCH_WORD, _ENGLISH_WORD = _words(_FRENCH_WORDS), _words(_ENGLISH_WORDS)
_ENGLISH_ABBREVIATION = _words(_ENGLISH_ABBREVIATIONS, r"(?<!\b[Tt]he )(?<!\b[Aa]n )(?<!\b[Aa] )(?<!\bas )", re.NOFLAG)
