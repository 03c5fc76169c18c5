"""Metric units after numbers in translations between English and French: 500 m must not become 500 I.

Symbols of one or two letters look like words to small models, which drop them, change their capitals or exchange them.
The names of units are translated well: *500 mètres* becomes *500 meters*.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

NUMBER_SPACES = " \u00a0\u202f"
UNIT_LANGUAGES = {"fr", "en"}
"""Languages whose names of units are known."""
_WITHOUT_SPACE = ({"°"}, {"°", "°C", "°F", "%"})
"""Symbols next to their numbers, in other languages and in English."""


@dataclass(frozen=True)
class Unit:
    """A unit of measurement, and how it is written."""

    symbols: tuple[str, str]
    """Its symbols in French and English."""
    names: str
    """A regular expression for its names, in both languages."""
    name: tuple[str, str] | None = None
    """Its name in French and English in the singular; none if models translate the symbol better."""
    aliases: tuple[str, ...] = ()
    """Other correct symbols, of both languages."""
    stand_in: str = ""
    """The symbol of a unit that models know better, which is translated in place of this one."""

    def symbol(self, language: str) -> str:
        """Its symbol in a language."""
        return self.symbols[language != "fr"]

    def written_after(self, number: str, language: str) -> str:
        """A number with this unit, as a language writes it."""
        symbol = self.symbol(language)
        return f"{number}{symbol}" if symbol in _WITHOUT_SPACE[language == "en"] else f"{number} {symbol}"

    def named_after(self, number: str, language: str) -> str:
        """A number with the name of this unit, with its stand-in, or with its symbol if that is translated better."""
        if self.stand_in:
            return f"{number} {self.stand_in}"
        if self.name is None:
            return self.written_after(number, language)
        is_singular = re.match(r"-?[01]$", number) is not None
        return f"{number} {self.name[language != 'fr']}{'' if is_singular else 's'}"

    def is_in(self, text: str, language: str) -> bool:
        """Whether a text has this unit by its name, or as a symbol after a number."""
        pattern = rf"(?<![^\W\d_])(?:{self.names})|\d[{NUMBER_SPACES}-]?{self._symbols(language)}"
        return re.search(pattern, text) is not None

    def is_divisor_in(self, text: str, language: str) -> bool:
        """Whether something in a text may be per this unit."""
        article = r"\b(?:per|par|pour|for|an?|each|the|every|le|la|les|au|du|chaque)\s|\b[ldLD]['’]"
        pattern = rf"(?<![^\W\d_])(?:{self.names})|(?:/|{article})(?:\d\s?)?{self._symbols(language)}"
        return re.search(pattern, text) is not None

    def is_at(self, position: int, text: str, language: str) -> bool:
        """Whether this unit is in a text after a number that ends at this position."""
        pattern = rf"[{NUMBER_SPACES}-]?(?:{self._symbols(language)}|{self.names})"
        return re.compile(pattern).match(text, position) is not None

    def with_symbol(self, text: str, position: int, language: str) -> str:
        """A text in which the symbol after a number that ends at this position is as the language writes it: 3.5 MB for
        3.5 Mo, 500 m for 500 M."""
        variants = _alternatives([*self.symbols, *self.aliases])
        match = re.compile(rf"([{NUMBER_SPACES}-]?)({variants})(?![\w'’/])", re.IGNORECASE).match(text, position)
        if match is None or match[2] in (self.symbol(language), *self.aliases):
            return text
        return text[:position] + match[1] + self.symbol(language) + text[match.end() :]

    def _symbols(self, language: str) -> str:
        return rf"(?:{_alternatives([self.symbol(language), *self.aliases])})(?![\w'’/])"


def _alternatives(symbols: Collection[str]) -> str:
    return "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))


def _per(first: str, second: str) -> str:
    return rf"(?:{first})\W*(?:per|an?|each|par|à\sl['’]|/)?\W*(?:{second})"


_METRE, _LITRE, _GRAM = "m[eè]t(?:re|er)s?", "lit(?:re|er)s?", "gram(?:me)?s?"
_KILOMETRE, _HOUR, _SECOND = rf"(?:km|kilo{_METRE})\b", r"(?:h|heures?|hours?)\b", r"s(?:ec(?:ond(?:e|es|s)?)?)?\b"
_SQUARE, _CUBIC = r"(?:square|sq\.?)\s", r"cubic\s"
_BYTES = "(?:byte|octet)s?"
_UNITS = (
    Unit(("m", "m"), rf"{_METRE}\b", ("mètre", "meter")),
    Unit(("km", "km"), rf"kilo{_METRE}\b|kms\b", ("kilomètre", "kilometer")),
    Unit(("dm", "dm"), rf"d[eé]ci{_METRE}", ("décimètre", "decimeter")),
    Unit(("cm", "cm"), rf"centi{_METRE}", ("centimètre", "centimeter")),
    Unit(("mm", "mm"), rf"milli{_METRE}", ("millimètre", "millimeter")),
    Unit(("µm", "µm"), rf"micro(?:{_METRE}|ns?\b)", aliases=("μm",)),
    Unit(("nm", "nm"), rf"nano{_METRE}"),
    Unit(("m²", "m²"), rf"{_SQUARE}{_METRE}|{_METRE}[\s-](?:carré|square)", aliases=("m2",)),
    Unit(("km²", "km²"), rf"{_SQUARE}(?:km|kilo{_METRE})|kilo{_METRE}[\s-](?:carré|square)", aliases=("km2",)),
    Unit(("cm²", "cm²"), rf"{_SQUARE}centi{_METRE}|centi{_METRE}[\s-](?:carré|square)", aliases=("cm2",)),
    Unit(("m³", "m³"), rf"{_CUBIC}{_METRE}|{_METRE}[\s-]cub", aliases=("m3",)),
    Unit(("cm³", "cm³"), rf"{_CUBIC}centi{_METRE}|centi{_METRE}[\s-]cub", aliases=("cm3",)),
    Unit(("ha", "ha"), "hectares?", ("hectare", "hectare")),
    Unit(("kg", "kg"), rf"kilo(?:{_GRAM})?s?\b|kgs\b", ("kilo", "kilo")),
    Unit(("g", "g"), _GRAM, ("gramme", "gram")),
    Unit(("mg", "mg"), rf"milli{_GRAM}", ("milligramme", "milligram")),
    Unit(("µg", "µg"), rf"micro{_GRAM}", aliases=("μg",)),
    Unit(("t", "t"), r"tonnes?\b|tons\b", ("tonne", "tonne")),
    Unit(("l", "l"), _LITRE, ("litre", "liter"), aliases=("L",)),
    Unit(("dl", "dl"), rf"d[eé]ci{_LITRE}", aliases=("dL",), stand_in="ml"),
    Unit(("cl", "cl"), rf"centi{_LITRE}", aliases=("cL",), stand_in="ml"),
    Unit(("ml", "ml"), rf"milli{_LITRE}", ("millilitre", "milliliter"), aliases=("mL",)),
    Unit(("hl", "hl"), rf"hecto{_LITRE}", aliases=("hL",), stand_in="ml"),
    Unit(("km/h", "km/h"), _per(_KILOMETRE, _HOUR) + r"|k(?:mh|ph|mph)\b"),
    Unit(("m/s", "m/s"), _per(_METRE, _SECOND)),
    Unit(("km/s", "km/s"), _per(_KILOMETRE, _SECOND)),
    Unit(("g/l", "g/l"), _per(_GRAM, rf"{_LITRE}|l\b"), aliases=("g/L",)),
    Unit(("mg/l", "mg/l"), _per(f"milli{_GRAM}", rf"{_LITRE}|l\b"), aliases=("mg/L",)),
    Unit(("g/km", "g/km"), _per(_GRAM, _KILOMETRE)),
    Unit(("°C", "°C"), "degr|[Cc]elsius|[Cc]entigrade", aliases=("°",)),
    Unit(("°F", "°F"), "degr|[Ff]ahrenheit", aliases=("°",)),
    Unit(("°", "°"), "degr", aliases=("°C", "°F")),
    Unit(("%", "%"), r"p(?:er|our)[\s-]?cent|pct\b|half\b|moitié|quarter|quart|third|tiers"),
    Unit(("s", "s"), r"sec(?:ond(?:e|es|s)?)?\b", ("seconde", "second")),
    Unit(("h", "h"), r"hours?\b|heures?\b|hrs\b", ("heure", "hour")),
    Unit(("ms", "ms"), "millisecond", ("milliseconde", "millisecond")),
    Unit(
        ("min", "min"),
        r"min(?:ute)?s?\b|\d:\d|half|quarter|demie?\b|quart|hour\b|heure\b",
        ("minute", "minute"),
        aliases=("mn",),
    ),
    Unit(("ko", "KB"), f"kilo{_BYTES}", aliases=("kB",)),
    Unit(("Mo", "MB"), f"m[eé]ga{_BYTES}|megs?\\b"),
    Unit(("Go", "GB"), f"giga{_BYTES}|gigs?\\b"),
    Unit(("To", "TB"), f"t[eé]ra{_BYTES}"),
    Unit(("Mo/s", "MB/s"), _per(f"m[eé]ga{_BYTES}", _SECOND)),
    Unit(("Go/s", "GB/s"), _per(f"giga{_BYTES}", _SECOND)),
    Unit(("kb/s", "kb/s"), _per("kilobits?", _SECOND), aliases=("kbit/s", "kbps")),
    Unit(("Mb/s", "Mb/s"), _per("m[eé]gabits?", _SECOND), aliases=("Mbit/s", "Mbits/s", "Mbps")),
    Unit(("Gb/s", "Gb/s"), _per("gigabits?", _SECOND), aliases=("Gbit/s", "Gbits/s", "Gbps")),
    Unit(("Hz", "Hz"), "hertz"),
    Unit(("kHz", "kHz"), "kilohertz"),
    Unit(("MHz", "MHz"), "m[eé]gahertz"),
    Unit(("GHz", "GHz"), "gigahertz"),
    Unit(("V", "V"), r"volts?\b"),
    Unit(("W", "W"), r"watts?\b"),
    Unit(("kW", "kW"), "kilowatts?(?!.?h)"),
    Unit(("MW", "MW"), "m[eé]gawatts?(?!.?h)"),
    Unit(("GW", "GW"), "gigawatts?(?!.?h)"),
    Unit(("kWh", "kWh"), "kilowatt.?h"),
    Unit(("MWh", "MWh"), "m[eé]gawatt.?h"),
    Unit(("mAh", "mAh"), "milliamp"),
    Unit(("kcal", "kcal"), "(?:kilo)?calori"),
    Unit(("hPa", "hPa"), "hectopascal"),
    Unit(("kPa", "kPa"), "kilopascal"),
    Unit(("dB", "dB"), "d[eé]cibel"),
)
"""The units that are looked for. Few numbers of hours are: most are times, as in `regard.decoding.clock_times`."""
_TYPED = {"Km": "km", "KM": "km", "Kg": "kg", "KG": "kg", "Km/h": "km/h", "KM/H": "km/h", "ºC": "°C", "° C": "°C"}
"""Symbols that are not correct, but often typed."""
_METRE_AFTER_ENGLISH_NUMBER = r"m(?=\s(?:long|tall|high|wide|deep|thick|away|apart|from|above|below|ahead)\b)"
_BY_SYMBOL = {
    language: {
        **{alias: unit for unit in _UNITS for alias in unit.aliases},
        **{symbol: unit for unit in _UNITS for symbol in (unit.symbol("en"), unit.symbol(language))},
        **{typed: unit for typed, symbol in _TYPED.items() for unit in _UNITS if symbol == unit.symbol("en")},
    }
    for language in UNIT_LANGUAGES
}
"""Units by how each language writes them; French has the English symbols too."""


@cache
def unit_pattern(language: str) -> str:
    """A regular expression for a unit after a number, with its symbol as the group `unit` or `attached_unit`.

    Letters next to a number often have another meaning: the 1960s, an iPhone 5s, 4g, 5m people. So have degrees at the
    beginning, as in 1° Les meubles, and those of coordinates.
    """
    symbols = _by_symbol(language).keys()
    attached = _alternatives(symbols - ({"s"} if language == "fr" else {"s", "m"}))
    return (
        rf"(?:[{NUMBER_SPACES}](?P<unit>{_alternatives(symbols)})"
        rf"|(?!(?<![\d.,]\d)g)(?P<attached_unit>{attached}|{_METRE_AFTER_ENGLISH_NUMBER}))"
        r"(?![\w'’/²³%]|[\"-](?!\d)\w)"
    )


def divisor_pattern(language: str) -> str:
    """A regular expression for what a price is for, as in €15/m², with the unit as the group `divisor`."""
    return rf"/(?P<divisor>{_alternatives(_by_symbol(language).keys())})(?![\w'’/²³%])"


def divisor_of(match: re.Match[str], language: str) -> Unit | None:
    """The unit in a match of such an expression."""
    return _by_symbol(language).get(match["divisor"])


def unit_of(match: re.Match[str], language: str) -> Unit | None:
    """The unit in a match of such an expression."""
    return _by_symbol(language).get(match["unit"] or match["attached_unit"])


def _by_symbol(language: str) -> dict[str, Unit]:
    return _BY_SYMBOL["fr" if language == "fr" else "en"]
