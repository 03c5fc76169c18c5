"""What a translation must keep: addresses, file names, paths, account names, code, telephone numbers, rows of numbers,
dates, versions, formulas, amounts, units, times.

Models translate the words in an address and drop digits. Amounts and times are corrected where they are (see
`regard.decoding.amounts` and `regard.decoding.clock_times`). A sentence whose translation still lacks something is
translated again, with a placeholder for what was lost: the bundled translators copy short codes such as X1.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from regard.decoding.amounts import (
    MAX_AMOUNTS,
    amounts,
    missing_currency_signs,
    missing_short_prices,
    number_format,
    with_amounts,
)
from regard.decoding.clock_times import TIME_LANGUAGES, missing_always, with_clock_times
from regard.decoding.frequencies import with_frequencies
from regard.decoding.quotation_marks import lengths_in_inches
from regard.decoding.sentence_splitter import SPACELESS
from regard.decoding.units import NUMBER_SPACES, UNIT_LANGUAGES

FRACTIONS = "½⅓⅔¼¾⅛"
SMALL_DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉"
"""What is copied in formulas: CO₂, x²."""
_JOINING = rf"{SPACELESS}\uac00-\ud7ff"
"""Letters that are written next to words and codes without a space; Korean ones as well, in endings."""
_JOINING_LETTER = re.compile(rf"(?=\w)[{_JOINING}]")
_SPACED_LETTER = rf"[^\W{_JOINING}]"
"""A letter of a script with spaces, or a digit."""
_JOINT = re.compile(
    rf"(?<={_SPACED_LETTER})(?={_JOINING_LETTER.pattern})|(?<=[{_JOINING}])(?<=\w)(?=[@#+]|{_SPACED_LETTER})"
)
"""Where a word may end within a row of letters, as in 型番AB-123です."""
_JOINT_MARK = "\ue000"
"""A character for private use, which marks a joint: it is neither a letter nor a space."""
# Possessive quantifiers: long words take linear time.
_CANDIDATE = re.compile(
    r"(?P<code_span>`[^`\s](?:[^`\n]{0,100})`)"
    r"|(?<![\w.~/<])(?P<path>(?:~|\.{1,2})?(?:/\.?\w[\w-]*+(?:\.\w[\w-]*+)*+){2,}+/?|[A-Z]:\\[\w\\.-]*\w)"
    r"|(?P<address>(?:https?://|www\.)[^\s<>\"'«»“”、。「」（），\ue000]*[\w/]"  # without the punctuation after it
    r"|(?<![\w.+-])\w[\w.+-]*+@\w[\w-]*+(?:\.\w[\w-]*+)++)"
    r"|(?<![\w@&])(?P<tag>@\w(?:\w|[.-]\w)++|\#(?=\w*[^\W\d])\w++)"
    r"|(?<![\w.@/+-])(?P<dotted>\w[\w-]*+(?:\.\w[\w-]*+)++)"
    r"|(?<![\w.,:/+-])(?P<telephone>(?:\+\d{1,3}[ .-])?\d{1,4}(?:[ .-]\d{2}){4}|0[ .]?\d{3}(?:[ .]\d{3}){2}"
    r"|\d{3}-\d{4}|\d{3}[.-]\d{3}[.-]\d{4})"
    r"(?![.,-]?\w)"
    # At least three numbers, such as those of a lottery, which are not groups of one: 2 500 000.
    r"|(?<![\w.,:/+-])(?P<numbers>(?!\d{1,3}(?: \d{3})++(?! ?\d))\d{1,3}(?: \d{1,3}){2,})(?![.,-]?\w)(?! \d)"
    r"|(?<![\w.,:/+-])(?P<date>\d{1,2}/\d{1,2}/\d{2,4}|\d{4}-\d{2}-\d{2})(?![.,:/-]?\w)"
    rf"|(?P<fraction>(?<![\w.,])\d*+[{FRACTIONS}](?!\w))"
    rf"|(?<!\w)(?P<formula>(?-i:(?:(?:(?:[A-Z][a-z]?){{1,4}}|[a-z]{{1,2}}|\d{{1,3}})[{SMALL_DIGITS}]{{1,3}}){{1,6}}"
    r"(?:[A-Z][a-z]?){0,4}))(?!\w)"
    r"|(?<![\w.:-])(?P<code>(?-i:[A-Z][A-Z\d]*+(?:-[A-Z\d]++)*+))(?![\w-])",
    re.IGNORECASE,
)
_FILE_ENDING = re.compile(
    r"\.(?:com|org|net|edu|gov|info|biz|fr|uk|app|dev|js|ts|py|md|txt|html?|css|pdf|jpe?g|png|gif|svg|exe|zip|csv|tsv"
    r"|json|xml|php|docx?|xlsx?|pptx?|toml|ya?ml|mp[34])$",
    re.IGNORECASE,
)
"""How names of files and sites end; not with what is also a French or English word, as in "fini.de plus"."""
_VERSION = re.compile(r"v?(?!\d{1,3}(?:\.\d{3})+$)\d{1,4}(?:\.\d{1,4}){2,}", re.IGNORECASE)
"""The number of a version or a computer, or a date, but not thousands as in 1.500.000."""
_DIGIT = re.compile(r"\d")
_UNIT_WITH_POWER = re.compile("[kcdm]?m[²³]")
"""A unit, which has names too: see `regard.decoding.units`."""
_FRACTION_IN_WORDS = re.compile(
    r"\d[./,]\d|\b(?:hal(?:f|ves)|demie?s?|moitié|third|tiers|quarter|quart|three|trois|deux|two|eighth|huitième)",
    re.IGNORECASE,
)
"""Words and numbers that may say a fraction."""
_PLACEHOLDER = re.compile(r"(?P<code>X\d++)(?P<end>(?:\s?[ap]\.?m\b)?\.?)")
"""A code, also one without a space before it (EURX1), and what would be too much after 6 p.m."""
MAX_PLACEHOLDERS = 9
"""Parts up to which a sentence is translated with placeholders: a list of links needs no translation."""


def verbatim_parts(text: str) -> list[str]:
    """The parts of a text that its translation must contain as they are.

    >>> verbatim_parts("Écrivez à a.b@c.fr ou @moi, vol AF123 : voir www.fichier.fr/a, plan.pdf, 06 12 34 56 78.")
    ['a.b@c.fr', '@moi', 'AF123', 'www.fichier.fr/a', 'plan.pdf', '06 12 34 56 78']
    """
    return list(_verbatim(text))


def _verbatim(text: str) -> Iterator[str]:
    if _JOINING_LETTER.search(text):
        text = _JOINT.sub(_JOINT_MARK, text)
    for part in _CANDIDATE.finditer(text):
        if part["dotted"] and not (_FILE_ENDING.search(part[0]) or _VERSION.fullmatch(part[0])):
            continue
        if part["dotted"] and _JOINING_LETTER.match(part[0]) and text.startswith(_JOINT_MARK, part.end()):
            continue  # 昨日の報告書.pdfを: where the name begins is not known
        if part["formula"] and _UNIT_WITH_POWER.fullmatch(part[0]):
            continue
        if part["code"] and not _DIGIT.search(part[0]):
            continue
        yield part[0].replace(_JOINT_MARK, "")


@dataclass(frozen=True)
class CheckedTranslation:
    """A translation with its amounts corrected, and what it lacks of its source."""

    text: str
    missing: dict[str, str]
    """Parts of the source, each as the target language writes it."""


def check_verbatim(
    translation: str, source: str, source_language: str | None, target_language: str | None
) -> CheckedTranslation:
    """Correct the amounts of a translation, and find what it lacks of its source.

    >>> check_verbatim("See the filer.pdf for $15.", "Voir fichier.pdf pour 15 €.", "fr", "en")
    CheckedTranslation(text='See the filer.pdf for €15.', missing={'fichier.pdf': 'fichier.pdf'})
    """
    missing = {
        part: part
        for part in Counter(verbatim_parts(source)) - Counter(verbatim_parts(translation))
        if part[-1] not in FRACTIONS or not _FRACTION_IN_WORDS.search(translation)
    }
    source_format, target_format = number_format(source_language), number_format(target_language)
    if source_format and target_format:
        decimal_marks = str.maketrans(",.", target_format.decimal * 2)
        lengths = {length: length.translate(decimal_marks) for length in lengths_in_inches(source)}
        missing |= {length: written for length, written in lengths.items() if written not in translation}
        languages = source_format.language, target_format.language
        if set(languages) == TIME_LANGUAGES:
            translation = with_frequencies(translation, source, languages[1])
            translation, missing_times = with_clock_times(translation, source, *languages)
            missing |= missing_times | missing_always(translation, source, languages[1])
            missing |= missing_short_prices(translation, source, target_format)
        translation, missing_amounts = with_amounts(translation, source, source_format, target_format)
        missing |= {amount.text: amount.written(target_format) for amount in missing_amounts}
        missing |= missing_currency_signs(translation, source)
    return CheckedTranslation(translation, missing)


def with_placeholders(source: str, missing: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The source with a code for each missing part, and what each code stands for; none if there are too many parts.

    >>> with_placeholders("Voir www.fichier.com ou X1.", {"www.fichier.com": "www.fichier.com"})
    ('Voir X2 ou X1.', {'X2': 'www.fichier.com'})
    """
    codes = (f"X{number}" for number in range(1, 10 * MAX_PLACEHOLDERS))
    unused = [code for code in codes if code not in source]
    placeholders = dict(zip(unused, missing, strict=False)) if len(missing) <= MAX_PLACEHOLDERS else {}
    if not placeholders:
        return source, {}
    text = replace_parts(source, {part: code for code, part in placeholders.items()})
    return text, {code: missing[part] for code, part in placeholders.items()} if text != source else {}


def with_names_of_units(source: str, missing: Mapping[str, str], language: str | None) -> tuple[str, dict[str, str]]:
    """The source with the names of units in what is missing, which models translate better than symbols; and which
    parts of its translation stand for others.

    >>> with_names_of_units("20 cl de lait à 2 m", {"20 cl": "20 cl", "2 m": "2 m"}, "fr")
    ('20 ml de lait à 2 mètres', {'20 ml': '20 cl'})
    """
    source_format = number_format(language)
    if source_format is None or source_format.language not in UNIT_LANGUAGES:
        return source, {}
    names: dict[str, str] = {}
    stand_ins: dict[str, str] = {}
    for amount in islice(amounts(source, source_format), MAX_AMOUNTS):
        if amount.text not in missing or amount.unit is None:
            continue
        name = amount.named(source_format)
        if amount.unit.stand_in:
            if name in source or (name in names.values() and amount.text not in names):
                continue  # it could not be told from another amount
            stand_in = re.sub(r"[^\W\d_]+$", amount.unit.stand_in, missing[amount.text])
            stand_ins[stand_in] = missing[amount.text]
        names[amount.text] = name
    return replace_parts(source, names), stand_ins


def replace_parts(text: str, replacements: Mapping[str, str]) -> str:
    """A text with a replacement for each of some parts, where it is no part of a longer number or word."""
    parts = "|".join(map(re.escape, sorted(replacements, key=len, reverse=True)))
    pattern = (
        rf"(?<!{_SPACED_LETTER})(?<!\d[.,{NUMBER_SPACES}])(?:{parts})"
        rf"(?!(?<=\d)[.,{NUMBER_SPACES}]?\d)(?!{_SPACED_LETTER})"
    )
    return re.sub(pattern, lambda match: replacements[match[0]], text) if parts else text


def without_placeholders(translation: str, placeholders: Mapping[str, str]) -> str:
    """A translation with what its codes stand for.

    >>> without_placeholders("See X2 or X1.", {"X2": "www.fichier.com"})
    'See www.fichier.com or X1.'
    >>> without_placeholders("It opens at X2 a.m.", {"X2": "6 p.m."})
    'It opens at 6 p.m.'
    """

    def replacement(match: re.Match[str]) -> str:
        part = placeholders.get(match["code"], match["code"])
        return part if part.endswith(".m.") else part + match["end"]

    return _PLACEHOLDER.sub(replacement, translation)
