"""Numbers below 100 in words, to recognise them in a translation."""

import re

_STEMS = {
    "en": {
        3: "three|third|tri", 4: "four|quarter", 5: "fi[fv]", 6: "six|half", 7: "seven|week", 8: "eight",
        9: "nin", 10: "ten|decade", 11: "eleven", 12: "twel|dozen|noon|midnight", 13: "thirteen",
        14: "fourteen|fortnight", 15: "fifteen|quarter|fortnight", 16: "sixteen", 17: "seventeen", 18: "eighteen",
        19: "nineteen", 20: "twent", 30: "thirt|half", 40: "fou?rt", 50: "fift|half", 60: "sixt", 70: "sevent",
        80: "eight", 90: "ninet",
    },
    "fr": {
        3: "troi|tiers|tripl", 4: "quatr|quart", 5: "cinq", 6: "six|semestr|demi", 7: "sept|semaine", 8: "huit",
        9: "neu", 10: "dix|décenn", 11: "onz", 12: "douz|midi|minuit", 13: "treiz", 14: "quatorz", 15: "quinz|quart",
        16: "seiz", 17: "dix-sept", 18: "dix-huit", 19: "dix-neu", 20: "vingt", 30: "trent|demi", 40: "quarant",
        50: "cinquant|moitié", 60: "soixant", 70: "soixant|septant", 80: "quatre-vingt|huitant",
        90: "quatre-vingt|nonant",
    },
    "de": {
        3: "drei|dritt", 4: "vier", 5: "fünf", 6: "sech|halb", 7: "sieb|woche", 8: "acht", 9: "neun",
        10: "zehn|jahrzehnt", 11: "elf", 12: "zwölf|dutzend|mitt", 13: "dreizehn", 14: "vierzehn",
        15: "fünfzehn|viertel", 16: "sechzehn", 17: "siebzehn", 18: "achtzehn", 19: "neunzehn", 20: r"\w*zwanzig",
        30: r"\w*dreißig|halb", 40: r"\w*vierzig", 50: r"\w*fünfzig|hälfte", 60: r"\w*sechzig", 70: r"\w*siebzig",
        80: r"\w*achtzig", 90: r"\w*neunzig",
    },
}  # fmt: skip
"""How words for each number begin, by language: cardinals, ordinals, parts, groups and times of day."""
FIRST_NUMBER = 3
"""The smallest number that is looked for: there are too many ways to say one and two."""
END_OF_NUMBERS = 100
"""The first number that is not looked for in words."""


def may_be_in_words(number: int, text: str, language: str) -> bool:
    """Whether a text may have a number in words, so far as that can be judged from the beginnings of its words.

    >>> may_be_in_words(21, "the twenty-first floor", "en"), may_be_in_words(11, "many times", "en")
    (True, False)
    """
    if number < FIRST_NUMBER or language not in _STEMS:
        return True
    if number >= END_OF_NUMBERS:
        return False
    stems = _STEMS[language].get(number) or _STEMS[language][number // 10 * 10]
    return re.search(rf"\b(?:{stems})", text, re.IGNORECASE) is not None
