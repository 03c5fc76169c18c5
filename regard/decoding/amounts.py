"""Numbers and prices in translations: the value and the currency of the source, as the target language writes them.

Small models translate the words around a number well, but write 2 500 000 in English, or dollars for euros.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

SPACES = " \u00a0\u202f"
SIGNS = "€$£¥"
CURRENCY_NAME = re.compile(r"\b(?:EUR|USD|GBP|JPY|euros?|dollars?|pounds?|livres?|pfund|yens?)\b", re.IGNORECASE)
MIN_DIGITS = 3
"""Digits of a number that a translation must contain as digits; shorter ones may be written as words."""
MAX_DIGITS = 20
"""Digits of the longest number that is looked for."""
MAX_AMOUNTS = 100
"""Amounts of a text that are checked at most, since each is looked for in the whole translation."""


@dataclass(frozen=True)
class NumberFormat:
    """How a language writes numbers and prices."""

    group: str
    """What separates thousands."""
    decimal: str
    """What separates decimals."""
    sign_first: bool
    """Whether a currency sign precedes the number."""

    @property
    def pattern(self) -> str:
        """A regular expression for a number, with the groups `whole` and `decimals`."""
        group = f"[{SPACES}]" if self.group == " " else re.escape(self.group)
        return rf"(?P<whole>\d{{1,3}}(?:{group}\d{{3}})+(?!\d)|\d+)(?:{re.escape(self.decimal)}(?P<decimals>\d+))?"

    def write(self, amount: "Amount", with_sign: bool = True) -> str:
        """An amount in this format."""
        whole = amount.whole
        if amount.is_grouped:
            whole = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", self.group, whole)
        number = whole + (self.decimal + amount.decimals if amount.decimals else "")
        if not amount.sign or not with_sign:
            return number
        return amount.sign + number if self.sign_first else f"{number} {amount.sign}"


ENGLISH, FRENCH, GERMAN = NumberFormat(",", ".", True), NumberFormat(" ", ",", False), NumberFormat(".", ",", False)
FORMATS = {"en": ENGLISH, "eng": ENGLISH, "fr": FRENCH, "fra": FRENCH, "de": GERMAN, "deu": GERMAN}
"""The formats of languages, by ISO 639 code."""


def number_format(language: str | None) -> NumberFormat | None:
    """The format of a language, if it is known; its code may name a script or country too, as in fra_Latn."""
    return FORMATS.get(re.split("[_-]", language or "", maxsplit=1)[0].lower())


@dataclass(frozen=True)
class Amount:
    """A number in a text, perhaps with a currency sign."""

    text: str
    whole: str
    """Its digits before the decimals, without separators."""
    decimals: str
    sign: str
    is_grouped: bool
    """Whether its thousands are separated."""

    def occurrences(self, translation: str) -> list[re.Match[str]]:
        """Where these digits are in a translation, in any format.

        If the amount has a currency sign, those with this sign come first, then those with another.
        """
        digits = f"[.,{SPACES}]?".join(self.whole + self.decimals.rstrip("0"))
        zeros = "0*" if self.decimals.strip("0") else r"(?:[.,]0{1,2})?"
        before, after = (rf"(?:[{SIGNS}][{SPACES}]?)?", rf"(?:[{SPACES}]?[{SIGNS}])?") if self.sign else ("", "")
        places = re.finditer(rf"{before}(?<!\d)(?<!\d[.,])(?P<digits>{digits}{zeros})(?![.,]?\d){after}", translation)
        return sorted(
            islice(places, MAX_AMOUNTS), key=lambda place: (self.sign not in place[0], not set(place[0]) & set(SIGNS))
        )

    def is_written(self, text: str, number_format: NumberFormat) -> bool:
        """Whether a text is this amount, in a format that readers of the language understand."""
        number = re.fullmatch(number_format.pattern, text.strip(SIGNS + SPACES))
        if number is None or re.sub(r"\D", "", number["whole"]) != self.whole:
            return False
        return (number["decimals"] or "").rstrip("0") == self.decimals.rstrip("0")


def amounts(text: str, number_format: NumberFormat) -> Iterator[Amount]:
    """The numbers of a text that its translation must contain as digits: prices, and numbers of three digits or more.

    >>> [amount.text for amount in amounts("3 pulls à 1 249,99 € en 2024, tél. 06 12 34 56 78", FRENCH)]
    ['1 249,99 €', '2024']
    """
    pattern = (
        rf"(?<![\w.,:/+-])(?<!\d[{SPACES}])(?:(?P<before>[{SIGNS}])[{SPACES}]?)?(?<![\w.,])"
        rf"{number_format.pattern}(?![.,:/-]?\w)(?![{SPACES}]\d)(?:[{SPACES}]?(?P<after>[{SIGNS}]))?"
    )
    for number in re.finditer(pattern, text):
        whole, decimals = re.sub(r"\D", "", number["whole"]), number["decimals"] or ""
        sign = number["before"] or number["after"] or ""
        if (sign or len(whole + decimals) >= MIN_DIGITS) and len(whole + decimals) <= MAX_DIGITS:
            yield Amount(number[0], whole, decimals, sign, whole != number["whole"])


def with_amounts(
    translation: str, source: str, source_format: NumberFormat, target_format: NumberFormat
) -> tuple[str, list[Amount]]:
    """A translation with the amounts of its source as the target language writes them, and the amounts that it lacks.

    >>> with_amounts("It costs $1 249.99.", "Ça coûte 1 249,99 €.", FRENCH, ENGLISH)
    ('It costs €1,249.99.', [])
    """
    changes: list[tuple[int, int, str]] = []
    missing = []
    taken: set[int] = set()
    found = list(islice(amounts(source, source_format), MAX_AMOUNTS))
    for amount in sorted(found, key=lambda amount: -len(amount.whole)):  # 100 is not found in 100 000
        places = amount.occurrences(translation)
        place = next((place for place in places if taken.isdisjoint(range(*place.span("digits")))), None)
        if place is None:
            missing.append(amount)
        else:
            taken.update(range(*place.span("digits")))
            is_sign_elsewhere = translation.count(amount.sign) >= source.count(amount.sign)  # as in 1.5 million €
            has_unit = CURRENCY_NAME.search(translation) is not None or is_sign_elsewhere
            changes.append((*place.span(), _corrected(place[0], amount, has_unit, target_format)))
    for start, end, text in sorted(changes, reverse=True):
        translation = translation[:start] + text + translation[end:]
    return translation, missing


def _corrected(written: str, amount: Amount, has_unit: bool, target_format: NumberFormat) -> str:
    """What to write for an amount that a translation has as `written`; `has_unit` if its currency is elsewhere."""
    is_named = has_unit and not set(written) & set(SIGNS)  # 15 euros for 15 €
    has_currency = not amount.sign or amount.sign in written or is_named
    if has_currency and amount.is_written(written, target_format):
        return written
    return target_format.write(amount, with_sign=not is_named)
