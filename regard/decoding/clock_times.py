"""Times of day in translations between English and French: 18h30 becomes 6:30 p.m., not 6:30 a.m. or 18:30 p.m.

Only what is certain is changed: 3h30 may be in the afternoon, 1h30 may be a duration, and the first of two times may
lack the half of the day (between 6 and 8 p.m.).
"""

import re
from dataclasses import dataclass, replace
from itertools import islice

from regard.decoding.number_words import FIRST_NUMBER, may_be_in_words

NOON = 12
FIRST_BUSINESS_HOUR = 8
"""The first hour from which a time without a half of the day is rarely in the afternoon or evening."""
MAX_TIMES = 20
"""Times of a text that are compared at most."""
CONTEXT_CHARACTERS = 30
"""Characters before a time that are searched for what it belongs to."""

_HOUR = r"(?:(?<![\w.,:/+-])|(?<=[\dhHmM.]-))(?P<hour>[01]?\d|2[0-3])"  # also after the hyphen of 9h-19h
_MINUTE = r"(?P<minute>[0-5]\d)"
_END = r"(?![:/]?\w|-(?!\d)\w|[.,]\d)"
_STYLES = {
    "a.m.": re.compile(rf"{_HOUR}(?:[:.]{_MINUTE})?\s?(?P<half>[ap])\.?\s?m(?:\.|\b){_END}", re.IGNORECASE),
    "o'clock": re.compile(rf"{_HOUR}\s?o['’]clock{_END}", re.IGNORECASE),
    ":": re.compile(rf"{_HOUR}:{_MINUTE}{_END}(?!\s?[ap]\.?m\b)(?:\sheures)?", re.IGNORECASE),
    "h": re.compile(
        rf"{_HOUR}\s?h(?:eures?)?(?:\s?{_MINUTE})?{_END}(?:\s(?P<part>du\smatin|du\ssoir|de\sl['’]après-midi))?",
        re.IGNORECASE,
    ),
}
"""How times are written: 6:30 p.m., 6 o'clock, 18:30 and 18h30."""
TIME_LANGUAGES = {"en", "fr"}
_STYLES_OF = {"en": {"a.m.", "o'clock", ":"}, "fr": {"h", ":"}}
_BEFORE_TIME = re.compile(
    r"(?<=[\dhm.])-\Z|\b(?:à|vers|dès|avant|jusqu['’]à|entre|et|at|by|until|till|from|to|before|between|and)\s\Z",
    re.IGNORECASE,
)
"""What precedes a time, but rarely a duration."""
_FIRST_TIMES = re.compile(
    r"\b(?:de|entre|vers|à|from|between|at)\s(?:\d{1,2},\s){0,2}\d{1,2}(?:\s(?:à|et|ou|to|and|or)\s|\s?[-–]\s?)\Z",
    re.IGNORECASE,
)
"""Numbers before a time that are times too, of the same half of the day or not."""
_RANGE = re.compile(r"-\d")
_IMPOSSIBLE_TIME = re.compile(r"(?<![\w:.,])(2[4-9]|[3-9]\d|\d{3})\s[ap]\.?m\b\.?", re.IGNORECASE)
"""A number of hours, of 24 h and more, that was translated as a time of day."""
_IN_WORDS = re.compile(
    r"\b(?:noon|midday|midnight|midi|minuit|half past|quarter|demie|quart|afternoon|evening|tonight|night|soirée|soir"
    r"|nuit|après-midi)\b",
    re.IGNORECASE,
)
"""Words for a time or a part of the day: what they belong to is left alone."""
_LATE = re.compile(r"\b(?:afternoon|evening|tonight|night|dinner|soirée|soir|nuit|après-midi|dîner)\b", re.IGNORECASE)
"""Words for a part of the day after noon."""
_ALWAYS = re.compile(
    r"(?<![\w/.,-])(?:(?P<hours>24\s?h(?:eures)?\s?/\s?24)(?:(?:\s?,|\set|\s?-|\s?/)?\s?(?P<daily>7\s?j(?:ours)?\s?/\s?7))?"
    r"|(?P<days>7\s?j(?:ours)?\s?/\s?7)|(?P<always>24/7))(?![\w/]|[.,]\d)",
    re.IGNORECASE,
)
"""French and English for all hours of the day, all days of the week, or both."""
_WRITTEN_ALWAYS = {
    "en": {"hours": "24 hours a day", "days": "7 days a week", "both": "24/7"},
    "fr": {"hours": "24h/24", "days": "7j/7", "both": "24h/24 et 7j/7"},
}
_ALWAYS_IN_WORDS = {
    "en": re.compile(
        r"(?<!\d)24\s?/\s?7(?!\d)|hours (?:a|per|every) day|\bclock\b|day and night|days (?:a|per) week|every day"
        r"|\bdaily",
        re.IGNORECASE,
    ),
    "fr": re.compile(
        r"\b24 ?h\w* ?(?:/|sur) ?24|\bjour et nuit|jours sur (?:7|sept)|7 ?j ?/ ?7|tous les jours", re.IGNORECASE
    ),
}


@dataclass(frozen=True)
class ClockTime:
    """A time of day in a text."""

    match: re.Match[str]
    hour: int
    """From 0 to 23; if the half of the day is not known, it may also be twelve hours later."""
    minute: int
    has_known_half: bool
    """Whether it certainly is before or after noon."""
    is_usual: bool
    """Whether the language of the text writes times like this."""
    may_be_duration: bool
    """Whether it may be a number of hours, as 2h30."""

    @property
    def on_dial(self) -> tuple[int, int]:
        """What a clock with twelve hours shows."""
        return self.hour % NOON, self.minute

    @property
    def is_after_preposition(self) -> bool:
        """Whether a word precedes it that hardly ever precedes a duration."""
        return _BEFORE_TIME.search(self.match.string[: self.match.start()][-CONTEXT_CHARACTERS:]) is not None

    def means(self, other: "ClockTime") -> bool:
        """Whether this can be the time that another one certainly is."""
        return self.on_dial == other.on_dial and (self.hour == other.hour or not self.has_known_half)


def clock_times(text: str, language: str) -> list[ClockTime]:
    """The times of day in a text, in order.

    >>> [(time.hour, time.minute, time.has_known_half) for time in clock_times("de 9h à 18 h 30", "fr")]
    [(9, 0, True), (18, 30, True)]
    """
    found = [
        _clock_time(match, style, language) for style, pattern in _STYLES.items() for match in pattern.finditer(text)
    ]
    if any(time.hour > NOON and not time.match.groupdict().get("half") for time in found):  # a clock of 24 hours
        found = [replace(time, has_known_half=True) for time in found]
    return sorted(found, key=lambda time: time.match.start())[:MAX_TIMES]


def _clock_time(match: re.Match[str], style: str, language: str) -> ClockTime:
    parts = match.groupdict()
    hour = int(parts["hour"])
    part = parts.get("part")
    half = (parts.get("half") or ("" if not part else "a" if "matin" in part.lower() else "p")).lower()
    is_odd = style == "a.m." and (hour > NOON or hour == 0 or match[0][-2:-1] == ".")  # 14 p.m., 0:30 a.m., 3 p.m
    if half and hour <= NOON:
        hour = hour % NOON + (NOON if half == "p" else 0)
    return ClockTime(
        match,
        hour,
        int(parts.get("minute") or 0),
        half != "" or hour >= NOON or (language == "fr" and parts["hour"].startswith("0")),  # 02:15 to 03:30 p.m.
        style in _STYLES_OF[language] and not is_odd,
        style == "h" and not half,
    )


def write_time(time: ClockTime, language: str) -> str:
    """A time of day as a language writes it."""
    is_full_hour = time.minute == 0
    if is_full_hour and time.has_known_half and time.hour % NOON == 0:
        return {"en": ("midnight", "noon"), "fr": ("minuit", "midi")}[language][time.hour // NOON]
    if language == "fr":
        return f"{time.hour}h" if is_full_hour else f"{time.hour}h{time.minute:02}"
    if not time.has_known_half:
        return f"{time.hour}:{time.minute:02}"
    half = "a.m." if time.hour < NOON else "p.m."
    hour = (time.hour - 1) % NOON + 1
    return f"{hour} {half}" if is_full_hour else f"{hour}:{time.minute:02} {half}"


def rewritten_time(text: str, source_language: str, target_language: str) -> str | None:
    """A text that is only a time of day, as another language writes it.

    >>> rewritten_time("18h30", "fr", "en"), rewritten_time("à 18h30", "fr", "en")
    ('6:30 p.m.', None)
    """
    times = clock_times(text, source_language)
    return write_time(times[0], target_language) if times and times[0].match[0] == text else None


def with_clock_times(
    translation: str, source: str, source_language: str, target_language: str
) -> tuple[str, dict[str, str]]:
    """A translation with the times of day of its source, and those that it lacks, as the target language writes them.

    >>> with_clock_times("The 6:30 train is late.", "Le train de 18h30 est en retard.", "fr", "en")
    ('The 6:30 p.m. train is late.', {})
    """
    translation = _IMPOSSIBLE_TIME.sub(r"\1 hours", translation)
    times = clock_times(source, source_language)
    expected = [time for time in times if not _FIRST_TIMES.search(source[: time.match.start()][-CONTEXT_CHARACTERS:])]
    written = clock_times(translation, target_language) if expected else []
    in_words = _IN_WORDS.search(translation) is not None
    is_late = _LATE.search(source) is not None
    corrections: list[tuple[ClockTime, ClockTime]] = []
    missing = {}
    for is_pair in (ClockTime.means, lambda one, other: one.on_dial == other.on_dial):
        for time in tuple(expected):
            pair = next((each for each in written if is_pair(each, time)), None)
            if pair is not None:
                corrections.append((time, pair))
                expected.remove(time)
                written.remove(pair)
    source_rest = _without(source, times)
    translation_rest = _without(translation, [pair for _, pair in corrections])
    for time in expected:
        is_elsewhere = _may_be_in(translation_rest, time, target_language, source_rest)
        is_certain = time.is_after_preposition or _RANGE.match(source, time.match.end())
        if is_certain and not in_words and not is_elsewhere:
            missing[time.match[0]] = write_time(time, target_language)
    for time, pair in sorted(corrections, key=lambda each: -each[1].match.start()):
        if _is_wrong(pair, time, in_words, is_late):
            translation = _replaced(translation, pair.match, write_time(time, target_language))
    return translation, missing


def missing_always(translation: str, source: str, target_language: str) -> dict[str, str]:
    """What of a source means all hours or days and is missing from its translation, as the target language writes it.

    >>> missing_always("The shop is open 24:/24.", "Le magasin est ouvert 24h/24 et 7j/7.", "en")
    {'24h/24 et 7j/7': '24/7'}
    """
    if _ALWAYS_IN_WORDS[target_language].search(translation):
        return {}
    missing = {}
    for match in islice(_ALWAYS.finditer(source), MAX_TIMES):
        kind = "hours" if match["hours"] and not match["daily"] else "days" if match["days"] else "both"
        missing[match[0]] = _WRITTEN_ALWAYS[target_language][kind]
    return missing


def _without(text: str, times: list[ClockTime]) -> str:
    """The text without these times."""
    for time in sorted(times, key=lambda each: -each.match.start()):
        text = text[: time.match.start()] + " " + text[time.match.end() :]
    return text


def _may_be_in(text: str, time: ClockTime, language: str, source: str) -> bool:
    """Whether a text without its known times may have this one, as a number of hours or in words.

    The numbers that its source has besides times do not count.
    """

    def may_have(number: int) -> bool:
        in_digits = re.compile(rf"(?<![\d:h])0?{number}(?![\d:]|h\d)")  # no part of another time
        is_more = len(in_digits.findall(text)) > len(in_digits.findall(source))
        return is_more or (number >= FIRST_NUMBER and may_be_in_words(number, text, language))

    hours = {time.hour, time.hour % NOON or NOON, time.hour if time.has_known_half else time.hour + NOON}
    return any(map(may_have, hours)) and (time.minute == 0 or may_have(time.minute))


def _is_wrong(written: ClockTime, time: ClockTime, in_words: bool, is_late: bool) -> bool:
    """Whether a time in a translation is certainly wrong; `in_words` if words may say the part of the day, `is_late` if
    words of the source say that it is after noon."""
    if not written.is_usual:
        return time.is_after_preposition or not (written.may_be_duration and time.may_be_duration)
    if not time.has_known_half:  # "9h ce soir" is not 9 a.m., and a shop that opens at 9h does not open at 9 p.m.
        contradicts = written.hour < NOON if is_late else written.hour >= NOON and time.hour >= FIRST_BUSINESS_HOUR
        return written.has_known_half and contradicts
    if written.hour == time.hour:
        return False
    return written.has_known_half or (time.hour > NOON and not in_words)


def _replaced(text: str, match: re.Match[str], replacement: str) -> str:
    """The text with a replacement for a match, and with one full stop where both an abbreviation and a sentence end."""
    rest = text[match.end() :]
    if replacement.endswith(".") and rest.startswith("."):
        rest = rest[1:]
    elif match[0].endswith(".") and not replacement.endswith(".") and not rest:
        replacement += "."
    return text[: match.start()] + replacement + rest
