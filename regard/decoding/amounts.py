"""Numbers, prices and measurements in translations: the value, the currency and the unit of the source, written as the
target language does.

Small models translate the words around a number well, but write 2 500 000 in English, or dollars for euros. What is
doubtful is left alone: numbers without a sign or groups that were copied (Python 3.11), and numbers in words. A number
that is missing often shows that the words around it are missing too.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from regard.decoding.number_words import END_OF_NUMBERS, FIRST_NUMBER, may_be_in_words
from regard.decoding.units import (
    NUMBER_SPACES,
    UNIT_LANGUAGES,
    Unit,
    divisor_of,
    divisor_pattern,
    unit_of,
    unit_pattern,
)

CURRENCY_SIGNS = "€$£¥"
CURRENCY_NAME = re.compile(
    r"\b(?:EUR|USD|GBP|JPY|euros?|dollars?|pounds?|livres?|pfund|bucks?|quid|yens?|cents?|centimes?)\b", re.IGNORECASE
)
_CURRENCY_NAMES = {"€": ("euro", "euro"), "$": ("dollar", "dollar"), "£": ("livre", "pound")}
"""Names of currencies in French and English."""
MAGNITUDE = re.compile(
    r"\b(?:hundreds?|thousands?|(?:m|b|tr)illions?|\w+ties|cents?|centimes?|centaines?|mille|milliers?|milliards?|années"
    r"|hundert|tausend|million(?:en)?|milliarden?)\b",
    re.IGNORECASE,
)
"""A word for a round number or a small coin: the number may be written in words."""
MINUS_SIGNS = "−-"
_NEGATIVE = re.compile(r"[-−–]\s?\Z|\b(?:minus|moins|below|sous|under|less)\b", re.IGNORECASE)
"""What is before a negative number."""
MIN_PRICE = 10
"""The smallest price that a translation must have in digits."""
CONTEXT_CHARACTERS = 20
"""Characters before a number that are searched for what it belongs to."""
MAX_DIGITS = 20
"""Digits of the longest number that is looked for."""
MAX_AMOUNTS = 100
"""Amounts of a text, and numbers of its translation, that are compared at most."""

TIME_UNIT = r"\s?(?i:h(?:eures?)?\b|[ap]\.?\s?m\b|o['’]clock|uhr\b)"
"""What follows a number that is a time of day, or a number of hours: see `regard.decoding.clock_times`."""
_BEFORE_DURATION = re.compile(
    r"\b(?:pendant|durant|dur[eé]\w*|dormi\w*|en|dans|toutes\sles|il\sy\sa|sous|(?:moins|plus)\sde|reste\w*|faut|prend\w*"
    r"|for|within|in|takes?|took|last(?:s|ed)?|slept|every|than)\s\Z",
    re.IGNORECASE,
)
"""What is before a number of hours that is no time of day."""
_AFTER_DURATION = re.compile(
    r"\s?\d{1,2}\s?mi?n\b|\s(?:par|per|a)\s(?:jour|nuit|semaine|mois|an|day|night|week|month|year)\b", re.IGNORECASE
)
"""What is after it."""
FIRST_HOUR_OF_NO_DAY = 24
"""The smallest number of hours that is no time of day."""
_LATER_TIME = re.compile(rf"(?:(?:,\s|\s(?:et|à|ou|and|to|or|und|bis|oder)\s|\s?[-–]\s?)\d{{1,2}}){{1,3}}{TIME_UNIT}")
"""What follows a number that is the first of several times, as in *between 6 and 8 p.m.*"""
_IDENTIFIED = re.compile(r"(?:\b[A-Z]{3,}|\bn[°º]|\b[Nn]o\.?|\b[Tt][ée]l\.?|#)\s?:?\s?\Z")
"""What is before a number that is a name, such as SIREN 552 100 554."""
_MAGNITUDE_AFTER = re.compile(rf"[{NUMBER_SPACES}](?:m|b|tr)ill?i(?:on|ard)", re.IGNORECASE)
"""What follows a number that a currency sign cannot follow, as in 60 millions."""
_NAMED_CURRENCY = re.compile(
    rf"(?P<number>(?:\d|illi(?:on|ard)s?)[{NUMBER_SPACES}])(?P<of>de\s|d['’])?(?P<name>euro|dollar)(?=s?\b)",
    re.IGNORECASE,
)
_SPLIT_BEFORE = re.compile(r"(?<!\d)\d{1,3}[.,]\s\Z")
_SPLIT_AFTER = re.compile(
    rf"[.,]\s(?:\d{{3}}(?!\d)|\d{{1,2}}(?:[{NUMBER_SPACES}]?%|{_MAGNITUDE_AFTER.pattern}))", re.IGNORECASE
)
"""What is before or after a part of a number in which a space was typed, as in 12, 500 people or 16, 6 %."""
_BEFORE_NUMBER = r"(?<![\w.,:/+])(?<!\w-)(?<!\dh\s)(?<!\d\sh\s)(?<!heures\s)"  # 18 h 30
_GROUPED = rf"[1-9]\d{{0,2}}(?P<group>[.,{NUMBER_SPACES}])\d{{3}}(?:(?P=group)\d{{3}})*+(?:[.,]\d+)?"
_WRITTEN_NUMBER = re.compile(
    rf"(?:(?P<before>[{CURRENCY_SIGNS}])[{NUMBER_SPACES}]?)?(?<![\w.,])(?P<number>{_GROUPED}|\d+(?:[.,]\d+)?)(?![.,]?\d)"
    rf"(?:[{NUMBER_SPACES}]?(?P<after>[{CURRENCY_SIGNS}])(?![{NUMBER_SPACES}]?\d))?"
)

_SHORT_PRICE = re.compile(
    rf"(?<![\w.,-])(?:(?P<first>\d[\d.,-]{{0,12}}+)[{NUMBER_SPACES}]?(?:(?P<letter>k|m|mds?|bn?)"
    rf"(?P<last>[{CURRENCY_SIGNS}]))(?!\w)|(?P<sign>[{CURRENCY_SIGNS}])(?P<number>\d[\d.,-]{{0,12}}+)(?P<after>k|m|mds?|bn?)\b)",
    re.IGNORECASE,
)
"""A price in thousands, millions or billions: 45-50 k€, $1.5M."""
_MAGNITUDE_LETTERS = ({"k": "k", "m": "M", "b": "Md", "bn": "Md"}, {"k": "k", "m": "M", "md": "bn", "mds": "bn"})
"""How French and English write these letters."""
_CURRENCY_SIGN = re.compile(
    rf"(?P<before>(?:\d[{NUMBER_SPACES}]?(?:[km]|mds?|bn?)?|illi(?:on|ard)s?|/[^\W\d_]{{1,10}})[{NUMBER_SPACES}]?(?:de\s)?)?"
    rf"(?P<sign>[{CURRENCY_SIGNS}])(?P<after>[{NUMBER_SPACES}]?\d)?",
    re.IGNORECASE,
)
"""A currency sign, perhaps with what shows that it belongs to a number."""
_SIGN_AFTER_UNIT = re.compile(rf"(\d)(/[^\W\d_]+)[{NUMBER_SPACES}]([{CURRENCY_SIGNS}])")
"""A price per unit with its sign at the end, as in 12/kg €."""
_SIGN_BEFORE_MAGNITUDE = re.compile(
    rf"(\d)[{NUMBER_SPACES}]([{CURRENCY_SIGNS}])([{NUMBER_SPACES}](?:m|b|tr)illi(?:on|ard)s?)\b"
)
"""A price with its sign before millions, as in 1,2 $ million."""
_DOTTED_GROUPS = re.compile(
    rf"(?<![\w.,])[1-9]\d{{0,2}}(?:(?:\.\d{{3}}){{2,}}|\.\d{{3}}(?=,\d|[{NUMBER_SPACES}]?(?:[{CURRENCY_SIGNS}]|euros?\b)))"
    r"(?![.\w]*\.?\d)"
)
"""A number with dots between its thousands, as French has it too: 1.250,50 €, but not 3.500, which may be a version."""

Value = tuple[str, str]
"""The digits of a number before and after the decimal mark, without separators and final zeros."""


@dataclass(frozen=True)
class NumberFormat:
    """How a language writes numbers and prices."""

    language: str
    """Its ISO 639 code, of two letters."""
    group: str
    """What separates thousands."""
    decimal: str
    """What separates decimals."""
    sign_first: bool
    """Whether a currency sign precedes the number."""

    @property
    def pattern(self) -> str:
        """A regular expression for a number, with the groups `whole` and `decimals`."""
        group = f"[{NUMBER_SPACES}]" if self.group == " " else re.escape(self.group)
        decimals = rf"(?:{re.escape(self.decimal)}(?P<decimals>\d+))?"
        return rf"(?P<whole>[1-9]\d{{0,2}}(?:{group}\d{{3}})+(?!\d)|\d+){decimals}"

    def read(self, number: str) -> Value | None:
        """The value of a number that is written in this format."""
        match = re.fullmatch(self.pattern, number)
        return (re.sub(r"\D", "", match["whole"]), (match["decimals"] or "").rstrip("0")) if match else None

    def write(self, amount: "Amount", with_sign: bool = True) -> str:
        """A number in this format, with its currency sign but without its unit."""
        whole = amount.whole
        if amount.is_grouped:
            whole = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", self.group, whole)
        number = whole + (self.decimal + amount.decimals if amount.decimals else "")
        if not amount.sign or not with_sign:
            return number
        return amount.sign + number if self.sign_first else f"{number} {amount.sign}"


ENGLISH = NumberFormat("en", ",", ".", True)
FRENCH = NumberFormat("fr", " ", ",", False)
GERMAN = NumberFormat("de", ".", ",", False)
FORMATS = {"en": ENGLISH, "eng": ENGLISH, "fr": FRENCH, "fra": FRENCH, "de": GERMAN, "deu": GERMAN}
"""The formats of languages, by ISO 639 code."""


def number_format(language: str | None) -> NumberFormat | None:
    """The format of a language, if it is known; its code may name a script or country too, as in fra_Latn."""
    return FORMATS.get(re.split("[_-]", language or "", maxsplit=1)[0].lower())


@dataclass(frozen=True)
class Amount:
    """A number in a source, perhaps with a currency sign or a unit."""

    text: str
    whole: str
    """Its digits before the decimals, without separators."""
    decimals: str
    sign: str
    is_grouped: bool
    """Whether its thousands are separated."""
    unit: Unit | None = None
    is_negative: bool = False
    divisor: Unit | None = None
    """What its price is for, as in €15/m²."""

    @property
    def value(self) -> Value:
        """Its value, as numbers of a translation are compared with it."""
        return self.whole, self.decimals.rstrip("0")

    @property
    def is_quantity(self) -> bool:
        """Whether it certainly is a quantity, and not the number of a version or a room."""
        return bool(self.sign) or self.is_grouped or self.unit is not None

    def written(self, target_format: NumberFormat) -> str:
        """The amount in a format, with its currency sign or unit."""
        language = target_format.language
        number = ("-" if self.is_negative else "") + target_format.write(self)
        if self.divisor is not None:
            return f"{number}/{self.divisor.symbol(language)}"
        return number if self.unit is None else self.unit.written_after(number, language)

    def named(self, source_format: NumberFormat) -> str:
        """The amount in the format of its source, with the name of its unit."""
        if self.unit is None:
            return self.text
        number = ("-" if self.is_negative else "") + source_format.write(self)
        return self.unit.named_after(number, source_format.language)

    def lacks_unit(self, translation: str, language: str) -> bool:
        """Whether a translation lacks the unit, by whatever number."""
        if self.divisor is not None and not self.divisor.is_divisor_in(translation, language):
            return True
        return self.unit is not None and not self.unit.is_in(translation, language)

    def is_needed(self, translation: str, language: str) -> bool:
        """Whether a translation into a language that does not have it as a number lacks it."""
        number = int(self.whole)
        if self.sign and number < MIN_PRICE and not self.decimals:
            return False
        if self.whole.endswith("0") and MAGNITUDE.search(translation):
            return False
        if self.sign and len(self.decimals) == 1 and self.decimals != "5":
            return True  # 1.5 million may be one and a half
        return number >= END_OF_NUMBERS or not may_be_in_words(number, translation, language)


@dataclass(frozen=True)
class WrittenNumber:
    """A number in a translation, with the currency sign next to it."""

    match: re.Match[str]

    @property
    def number(self) -> str:
        """The number as it is written, without a sign."""
        return self.match["number"]

    @property
    def sign(self) -> str:
        """Its currency sign, if it has one."""
        return self.match["before"] or self.match["after"] or ""

    @property
    def values(self) -> set[Value]:
        """What it may mean: 3,500 is three and a half thousand in English, and three and a half in French."""
        formats = (ENGLISH, FRENCH, GERMAN, NumberFormat("", " ", ".", True))
        return {value for each_format in formats if (value := each_format.read(self.number))}

    def has_unit(self, unit: Unit | None, language: str) -> bool:
        """Whether a unit follows it."""
        return unit is None or unit.is_at(self.match.end(), self.match.string, language)


def amounts(text: str, text_format: NumberFormat) -> Iterator[Amount]:
    """The numbers of a text that its translation must keep: prices, and numbers from 3.

    >>> [amount.text for amount in amounts("3 pulls à 1 249,99 € en 2024, tél. 06 12 34 56 78", FRENCH)]
    ['3', '1 249,99 €', '2024']
    """
    divisor = divisor_pattern(text_format.language).replace("?P<divisor>", "?:")
    pattern = (
        rf"(?:(?<!\S)[{MINUS_SIGNS}]|{_BEFORE_NUMBER})(?<!\d[{NUMBER_SPACES}{CURRENCY_SIGNS}])"
        rf"(?:(?P<before>[{CURRENCY_SIGNS}])[{NUMBER_SPACES}]?)?(?<![\w.,])"
        rf"{text_format.pattern}(?:{unit_pattern(text_format.language)}"
        rf"|(?:(?![.,:/-]?\w)|(?={divisor}))(?![{NUMBER_SPACES}{CURRENCY_SIGNS}]\d)(?!{TIME_UNIT})"
        rf"(?:[{NUMBER_SPACES}]?(?P<after>[{CURRENCY_SIGNS}])(?!\d))?(?:{divisor_pattern(text_format.language)})?)"
    )
    spaced = _DOTTED_GROUPS.sub(lambda match: match[0].replace(".", " "), text) if text_format.group == " " else text
    for match in re.finditer(pattern, spaced):
        whole, decimals = re.sub(r"\D", "", match["whole"]), match["decimals"] or ""
        sign = match["before"] or match["after"] or ""
        if (match["unit"] or match["attached_unit"]) == "h" and not _is_duration(match):
            continue
        if match["divisor"] and not sign:
            continue
        unit = unit_of(match, text_format.language) if not _is_ordinal_or_coordinate(match) else None
        is_ambiguous = len(decimals) == 3 and len(whole) <= 3  # thousands, as another language writes them
        is_short = len(whole + decimals) <= MAX_DIGITS
        is_checked = is_short and (sign or unit or int(whole) >= FIRST_NUMBER or decimals)
        is_name = unit is None and _IDENTIFIED.search(_before(match)) is not None
        is_time = len(whole) <= 2 and not (sign or unit) and _LATER_TIME.match(text, match.end()) is not None
        is_part = (unit is None or match[0].endswith("%")) and _is_part_of_number(match)
        if is_checked and not (is_ambiguous or is_name or is_time or is_part):
            is_negative = unit is not None and match[0][0] in MINUS_SIGNS
            start = match.start() if is_negative or match[0][0] not in MINUS_SIGNS else match.start() + 1
            end = match.end() if sign or unit else max(match.end("whole"), match.end("decimals"))
            divisor_unit = divisor_of(match, text_format.language)
            yield Amount(
                text[start:end], whole, decimals, sign, whole != match["whole"], unit, is_negative, divisor_unit
            )


def _before(match: re.Match[str]) -> str:
    """The last characters before a match."""
    return match.string[max(0, match.start() - CONTEXT_CHARACTERS) : match.start()]


def _is_ordinal_or_coordinate(match: re.Match[str]) -> bool:
    """Whether a number with a degree sign may number a paragraph, as in 1° Les meubles, or belong to coordinates."""
    if not match[0].endswith("°"):
        return False
    is_first = not re.search(r"\w", _before(match)) and match[0][0] not in MINUS_SIGNS
    return re.compile(r"\s+\w|\d" if is_first else r"\s?\d").match(match.string, match.end()) is not None


def _is_duration(match: re.Match[str]) -> bool:
    """Whether a number of hours certainly is no time of day: 48 h, in 3 h, 2 h 10 min, 8 h a day."""
    is_no_time = len(match["whole"]) > 2 or int(match["whole"]) >= FIRST_HOUR_OF_NO_DAY or bool(match["decimals"])
    is_before_duration = _AFTER_DURATION.match(match.string, match.end()) is not None
    return is_no_time or is_before_duration or _BEFORE_DURATION.search(_before(match)) is not None


def _is_part_of_number(match: re.Match[str]) -> bool:
    """Whether a number may be a part of another one in which a space was typed."""
    text, whole = match.string, match["whole"]
    if len(whole) <= 3 and _SPLIT_AFTER.match(text, match.end()):
        return True
    ends = len(whole) == 3 or match[0].endswith("%") or _MAGNITUDE_AFTER.match(text, match.end()) is not None
    return ends and _SPLIT_BEFORE.search(_before(match)) is not None


def missing_short_prices(translation: str, source: str, target_format: NumberFormat) -> dict[str, str]:
    """Prices with a letter for thousands or millions that a translation lacks, and how its language writes them.

    >>> missing_short_prices("A contract of €25.", "Un contrat de 25 M€.", ENGLISH)
    {'25 M€': '€25M'}
    """
    missing = {}
    for match in islice(_SHORT_PRICE.finditer(source), MAX_AMOUNTS):
        sign, number, letter = (
            match["sign"] or match["last"],
            match["number"] or match["first"],
            match["letter"] or match["after"],
        )
        value = number.replace(",", ".") if target_format is ENGLISH else number.replace(".", ",")
        magnitude = _MAGNITUDE_LETTERS[target_format is ENGLISH].get(letter.lower(), letter)
        written = f"{sign}{value}{magnitude}" if target_format.sign_first else f"{value} {magnitude}{sign}"
        if written not in translation and not MAGNITUDE.search(translation):
            missing[match[0]] = written
    return missing


def with_amounts(
    translation: str, source: str, source_format: NumberFormat, target_format: NumberFormat
) -> tuple[str, list[Amount]]:
    """A translation with the amounts of its source as the target language writes them, and the amounts that it lacks.

    >>> with_amounts("It costs $1 249.99.", "Ça coûte 1 249,99 €.", FRENCH, ENGLISH)
    ('It costs €1,249.99.', [])
    """
    translation = _with_only_currency(translation, source, target_format.language)
    if not target_format.sign_first:
        translation = _SIGN_AFTER_UNIT.sub(r"\1 \3\2", translation)
        translation = _SIGN_BEFORE_MAGNITUDE.sub(r"\1\3 \2", translation)
    expected = list(islice(amounts(source, source_format), MAX_AMOUNTS))
    numbers = [*map(WrittenNumber, islice(_WRITTEN_NUMBER.finditer(translation), MAX_AMOUNTS))] if expected else []
    pairs, missing = _pairs(expected, numbers, target_format)
    names_currency = CURRENCY_NAME.search(translation) is not None
    amount_of = {number.match.start(): amount for amount, number in pairs}
    for number in reversed(numbers):
        start, end = number.match.span()
        amount = amount_of.get(start)
        if amount is not None:
            is_sign_elsewhere = bool(amount.sign) and translation.count(amount.sign) >= source.count(amount.sign)
            corrected = _corrected(number, amount, names_currency or is_sign_elsewhere, target_format)
            has_unit = number.has_unit(amount.unit, target_format.language)
            if amount.is_negative and has_unit and not _NEGATIVE.search(_before(number.match)):
                corrected = "-" + corrected
            if amount.unit is not None:
                translation = amount.unit.with_symbol(translation, end, target_format.language)
            translation = translation[:start] + corrected + translation[end:]
        elif _is_invented(number, source):
            translation = translation[:start] + number.sign + translation[end:]
    knows_units = {source_format.language, target_format.language} <= UNIT_LANGUAGES
    lacking = [
        amount
        for amount in expected
        if (knows_units and amount.lacks_unit(translation, target_format.language))
        or (amount in missing and amount.is_needed(translation, target_format.language))
        or (amount.divisor is not None and not _has_price(translation, amount))
    ]
    has_all_rates = all(amount.divisor is None for amount in lacking)  # models mix several: $5/kg or €6/l
    return translation, [amount for amount in expected if amount in lacking or (amount.divisor and not has_all_rates)]


def _has_price(translation: str, amount: Amount) -> bool:
    """Whether a translation has this price with its currency sign, or names a currency."""
    numbers = map(WrittenNumber, islice(_WRITTEN_NUMBER.finditer(translation), MAX_AMOUNTS))
    has_sign = any(number.sign == amount.sign and amount.value in number.values for number in numbers)
    return has_sign or CURRENCY_NAME.search(translation) is not None


def missing_currency_signs(translation: str, source: str) -> dict[str, str]:
    """Currency signs without numbers, as in *30 € en $*, that a translation lacks; it may name their currencies."""
    if CURRENCY_NAME.search(translation):
        return {}
    return {sign: sign for sign in _currency_signs(source)[1] if sign not in translation}


def _currency_signs(text: str) -> tuple[set[str], set[str]]:
    """The currency signs of the numbers of a text, and those that belong to no number."""
    matches = _CURRENCY_SIGN.finditer(text)
    with_number = {match["sign"] for match in matches if match["before"] or match["after"]}
    alone = re.findall(rf"(?<!\w)[{CURRENCY_SIGNS}](?!\w)", text)
    return with_number, set(alone) - with_number


def _with_only_currency(translation: str, source: str, language: str) -> str:
    """The translation with the currency of the source next to its numbers, if the source has only one, as a sign."""
    signs = set(source) & set(CURRENCY_SIGNS)
    if len(signs) != 1 or CURRENCY_NAME.search(source):
        return translation
    sign = signs.pop()

    def with_sign(match: re.Match[str]) -> str:
        is_of_number = match["before"] or match["after"]
        return f"{match['before'] or ''}{sign}{match['after'] or ''}" if is_of_number else match[0]

    def with_name(match: re.Match[str]) -> str:
        name = _CURRENCY_NAMES[sign][language != "fr"]
        of = "" if not match["of"] else "d'" if name.startswith("e") else "de "
        return match[0] if match["name"].lower() == name else f"{match['number']}{of}{name}"

    translation = _CURRENCY_SIGN.sub(with_sign, translation)
    is_name_known = sign in _CURRENCY_NAMES and language in UNIT_LANGUAGES
    return _NAMED_CURRENCY.sub(with_name, translation) if is_name_known else translation


def _is_invented(number: WrittenNumber, source: str) -> bool:
    """Whether a translation added a number to a currency sign, as in $10 for a $ that belongs to no number."""
    is_added = number.match.string.count(number.number) > source.count(number.number)
    return is_added and number.sign in _currency_signs(source)[1]


def _pairs(
    expected: list[Amount], numbers: list[WrittenNumber], target_format: NumberFormat
) -> tuple[list[tuple[Amount, WrittenNumber]], list[Amount]]:
    """Each amount with the number that is most certainly its translation, and the amounts without one."""
    is_read_as: tuple[Callable[[Amount, WrittenNumber], bool], ...] = (
        lambda amount, number: (
            target_format.read(number.number) == amount.value
            and number.sign == amount.sign
            and number.has_unit(amount.unit, target_format.language)
        ),
        lambda amount, number: target_format.read(number.number) == amount.value and number.sign == amount.sign,
        lambda amount, number: target_format.read(number.number) == amount.value and number.sign != "",
        lambda amount, number: target_format.read(number.number) == amount.value,
        lambda amount, number: amount.value in number.values,
    )
    pairs = []
    amounts_left, numbers_left = list(expected), list(numbers)
    for is_pair in is_read_as:
        for amount in tuple(amounts_left):
            number = next((number for number in numbers_left if is_pair(amount, number)), None)
            if number is not None:
                pairs.append((amount, number))
                amounts_left.remove(amount)
                numbers_left.remove(number)
    return pairs, amounts_left


def _corrected(number: WrittenNumber, amount: Amount, has_currency: bool, target_format: NumberFormat) -> str:
    """What to write for an amount; `has_currency` if the translation has its currency elsewhere, as in 15 euros."""
    is_readable = target_format.read(number.number) == amount.value or not amount.is_quantity
    is_large = _MAGNITUDE_AFTER.match(number.match.string, number.match.end()) is not None
    needs_no_sign = has_currency or (is_large and not target_format.sign_first)
    has_sign = not amount.sign or number.sign == amount.sign or (not number.sign and needs_no_sign)
    if is_readable and has_sign:
        return number.match[0]
    if has_sign:
        return number.match[0].replace(number.number, target_format.write(amount, with_sign=False))
    return target_format.write(amount)
