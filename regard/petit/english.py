"""English forms for Petit: plurals, verbs, comparatives, a or an."""

import re
from dataclasses import dataclass

_DOUBLES = re.compile(r"^(?:[^aeiou]*[aeiou]|trave|forge|prefe|bewi)[bdglmnprt]$")  # run, swim, travel: runn-ing
BE = (("am", "are", "is", "are", "are", "are"), ("was", "were", "was", "were", "were", "were"))


@dataclass(frozen=True, slots=True)
class EnglishVerb:
    """The forms of a verb; the words after the first ("look for", "go to bed") never change."""

    base: str
    third: str
    ing: str
    past: str
    participle: str
    tail: tuple[str, ...]


def plural(noun: str) -> str:
    """Return the regular plural of a noun.

    >>> plural("box"), plural("cherry"), plural("boy"), plural("tomato"), plural("living room")
    ('boxes', 'cherries', 'boys', 'tomatoes', 'living rooms')
    """
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith(("s", "x", "ch", "sh")) or noun == "tomato":
        return noun + "es"
    return noun + "s"


def verb(forms: str) -> EnglishVerb:
    """Return the forms of a verb given as "base" or "base/past/participle".

    >>> verb("dance").ing, verb("carry").third, verb("swim/swam/swum").ing, verb("carry").past
    ('dancing', 'carries', 'swimming', 'carried')
    """
    parts = forms.split("/")
    base, *tail = parts[0].split()
    past = parts[1].split()[0] if len(parts) == 3 else _past(base)
    participle = parts[2].split()[0] if len(parts) == 3 else past
    return EnglishVerb(base, _third(base), _ing(base), past, participle, tuple(tail))


def _third(base: str) -> str:
    if base == "have":
        return "has"
    return base + "es" if base.endswith("o") else plural(base)


def _ing(base: str) -> str:
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "be")):
        return base[:-1] + "ing"
    return base + base[-1] + "ing" if _DOUBLES.match(base) else base + "ing"


def _past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + base[-1] + "ed" if _DOUBLES.match(base) else base + "ed"


def article(following: str) -> str:
    """Return "a" or "an", by the sound of the following word.

    >>> article("apple"), article("dog"), article("hour")
    ('an', 'a', 'an')
    """
    return "an" if following[0] in "aeiouAEIOUÉ" or following == "hour" else "a"


def spell(words: list[str]) -> str:
    """Join words into an English sentence: capitalised, without a space before 's, a comma or a full stop.

    >>> spell(["Marie", "'s", "dog", "is", "old", "."])
    "Marie's dog is old."
    """
    text = words[0]
    for word in words[1:]:
        text += word if word[0] in "',.?!" else " " + word
    return text[0].upper() + text[1:]
