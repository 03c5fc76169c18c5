"""How often something happens, in translations between English and French: *toutes les 6 h* is every 6 hours.

Small models translate its words one by one, as *all 6 h*, or take the number for a time of day, as *every 6 o'clock*.
"""

import re

_UNIT = r"(?:h|heures?|hours?|min|mn|minutes?|s|sec|secondes?|seconds?)\b"
_SOURCES = {
    "en": re.compile(rf"\btoutes\sles\s\d{{1,3}}\s?{_UNIT}", re.IGNORECASE),
    "fr": re.compile(rf"\bevery\s\d{{1,3}}[\s-]?{_UNIT}", re.IGNORECASE),
}
"""How sources say how often something happens, by the language of the translation."""
_NUMBER = r"(?:\d{1,3}\s?|\w{1,12}\s)"
"""A number in digits or words. Without the space after words, *all the boys* would be a number of *boy* seconds."""
_ALL = re.compile(rf"\b(a)ll(?:\sthe)?(?=\s{_NUMBER}(?:{_UNIT}|o['’]clock))", re.IGNORECASE)
_TIME = re.compile(
    r"\b(every\s)(?:(\d{1,2})(?::00|\s?h|\s?[ap]\.?m\.?(?=\s\w))|(\w{1,12})\so['’]clock)(?!\w)",
    re.IGNORECASE,
)
_MASCULINE = re.compile(rf"\b(tou)s(?=\sles\s{_NUMBER}{_UNIT})", re.IGNORECASE)


def with_frequencies(translation: str, source: str, target_language: str) -> str:
    """A translation that says how often as its source does, where it says so.

    >>> with_frequencies("Take one all 6 h.", "En prendre un toutes les 6 h.", "en")
    'Take one every 6 hours.'
    >>> with_frequencies("Un bus passe tous les 2 h.", "A bus runs every 2 h.", "fr")
    'Un bus passe toutes les 2 h.'
    """
    if not _SOURCES[target_language].search(source):
        return translation
    if target_language == "fr":
        return _MASCULINE.sub(r"\1tes", translation)
    every = _ALL.sub(lambda match: "Every" if match[1] == "A" else "every", translation)
    return _TIME.sub(lambda match: f"{match[1]}{match[2] or match[3]} hours", every)
