"""French forms for Petit: conjugation, agreement, elision and contraction.

Inside the grammar, a word that changes with the following word has a mark, which `elide_and_contract` resolves:

    le* la* les*    articles: elided before a vowel, contracted with a preceding de~ or à*
    de~ que~ ne~    and other small words: only elided before a vowel
"""

import re
from functools import cache
from itertools import pairwise

_MUTE = ("h",)
_ASPIRATED = ("haricot", "haut", "harpe", "hibou", "hérisson", "hamster", "huit")
_VOWELS = "aeiouyàâéèêëîïôöùûœ"
_GRAVE = re.compile(r"[eé]([bcdfgjklmnprstvz])er$")  # acheter, préférer: è before a mute ending
_PRESENT = {"er": "e es e ons ez ent", "ir": "is is it issons issez issent", "re": "s s  ons ez ent"}
_IMPERFECT = ("ais", "ais", "ait", "ions", "iez", "aient")
_ONE_WORD = {("de~", "le*"): "du", ("de~", "les*"): "des", ("à*", "le*"): "au", ("à*", "les*"): "aux"}


@cache
def vowel(word: str) -> bool:
    """Return whether a word begins with a vowel or a mute h, so that the preceding word is elided.

    >>> vowel("homme"), vowel("hibou"), vowel("œuf"), vowel("onze")
    (True, False, True, False)
    """
    word = word.lower()
    return (word[0] in _VOWELS and word != "onze") or (word[0] in _MUTE and not word.startswith(_ASPIRATED))


def plural(noun: str) -> str:
    """Return the regular plural of a noun or adjective.

    >>> plural("chat"), plural("gâteau"), plural("souris"), plural("neveu")
    ('chats', 'gâteaux', 'souris', 'neveux')
    """
    if noun.endswith(("s", "x", "z")):
        return noun
    return noun + ("x" if noun.endswith(("eau", "eu")) and noun != "bleu" else "s")


def feminine(adjective: str) -> str:
    """Return the regular feminine of an adjective.

    >>> feminine("heureux"), feminine("cher"), feminine("sportif"), feminine("rouge"), feminine("noir")
    ('heureuse', 'chère', 'sportive', 'rouge', 'noire')
    """
    if adjective.endswith("e"):
        return adjective
    for end, new in (("eux", "euse"), ("er", "ère"), ("if", "ive")):
        if adjective.endswith(end):
            return adjective[: -len(end)] + new
    return adjective + "e"


def present(infinitive: str) -> tuple[str, ...]:
    """Return the six persons of a regular verb in the present tense, and its participle.

    >>> " ".join(present("acheter"))
    'achète achètes achète achetons achetez achètent acheté'
    >>> " ".join(present("manger")), " ".join(present("finir")), " ".join(present("vendre"))  # doctest: +ELLIPSIS
    ('mange manges mange mangeons ...', 'finis finis finit finissons ...', 'vends vends vend vendons ...')
    """
    stem, group = infinitive[:-2], infinitive[-2:]
    strong = stem
    if group == "er":
        strong = _GRAVE.sub(r"è\1er", infinitive)[:-2]
        strong = strong[:-1] + "i" if stem.endswith(("oy", "uy")) else strong
    endings = _PRESENT[group].split(" ")
    forms = [(stem if person in (3, 4) else strong) + ending for person, ending in enumerate(endings)]
    forms[3] = forms[3].replace("gons", "geons").replace("cons", "çons") if group == "er" else forms[3]
    return (*forms, stem + {"er": "é", "ir": "i", "re": "u"}[group])


def imperfect(infinitive: str, present_forms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the six persons of the imparfait, from the stem of "nous" in the present.

    >>> " ".join(imperfect("commencer", present("commencer")))
    'commençais commençais commençait commencions commenciez commençaient'
    """
    stem = "ét" if infinitive == "être" else present_forms[3][:-3]
    plain = infinitive[:-2] if infinitive.endswith(("ger", "cer")) else stem
    return tuple((plain if ending[0] == "i" else stem) + ending for ending in _IMPERFECT)


def agree(participle: str, gender: str, plural: bool) -> str:
    """Return a participle that agrees in gender and number.

    >>> agree("parti", "f", True), agree("mis", "m", True)
    ('parties', 'mis')
    """
    form = participle + "e" if gender == "f" else participle
    return form + "s" if plural and not form.endswith("s") else form


def elide_and_contract(tokens: list[str]) -> tuple[list[str], list[int]]:
    """Resolve the marked words; return the words, and for each token the index of the word that it became.

    >>> elide_and_contract(["je~", "parle", "de~", "le*", "chat", "à*", "la*", "amie"])
    (['je', 'parle', 'du', 'chat', 'à', "l'", 'amie'], [0, 1, 2, 2, 3, 4, 5, 6])
    """
    out: list[str] = []
    index: list[int] = []
    last = len(tokens) - 1
    for i, token in enumerate(tokens):
        mark = token[-1]
        if mark != "~" and mark != "*":
            index.append(len(out))
            out.append(token)
            continue
        if mark == "*" and i and index[i - 1] == len(out) - 1:
            joined = _ONE_WORD.get((tokens[i - 1], token))
            if joined and not (token == "le*" and vowel(tokens[i + 1])):
                out[-1] = joined
                index.append(len(out) - 1)
                continue
        index.append(len(out))
        out.append(_elide(token, tokens[i + 1] if i < last else ""))
    return out, index


def _elide(token: str, following: str) -> str:
    word = token[:-1]
    if word == "si":
        return "s'" if following in ("il", "ils") else word
    return word if word in ("les", "à") or not following or not vowel(following) else word[:-1] + "'"


def spell(words: list[str]) -> str:
    """Join words into a French sentence: capitalised, without a space after an apostrophe or before a hyphen, comma or
    full stop.

    >>> spell(["l'", "ami", "dort", "-il", "?"])
    "L'ami dort-il ?"
    """
    text = words[0]
    for before, word in pairwise(words):
        text += word if before[-1] == "'" or word[0] in "-,." else " " + word
    return text[0].upper() + text[1:]
