"""Find translations that a person should check: loops, copies, wrong lengths and other common failures.

A suspicious output is not necessarily wrong. The thresholds are chosen so that less than 0.5% of correct references
(Petit, Multi30k, newstest2013, Tatoeba) are flagged; a test measures it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from regard.evaluation.text_checks import check_texts

SUSPICION_KINDS: dict[str, str] = {
    "empty": "no output for a non-empty source",
    "loop": "words repeated more often than in the source",
    "copied": "the source was copied rather than translated",
    "short": "much shorter than expected: something may be missing",
    "long": "much longer than expected: something may be made up",
    "same": "the same output for several different sources",
    "script": "letters of a script that neither the references nor the source use",
    "broken": "an incomplete character (�)",
    "leftover": "a token that is not text: <unk>, ▁, @@",
}
"""The kinds of suspicious outputs, with an explanation of each."""

MAX_LENGTH_RATIO = 2.0
"""An output this many times shorter or longer than expected is suspicious."""
LENGTH_SLACK = 10
"""Characters added to both lengths before they are compared, because short sentences vary more."""
MIN_WORD_REPEATS = 4
"""Repetitions of one word in a row that make a loop ("no, no, no" does not)."""
MIN_PHRASE_REPEATS = 3
"""Repetitions of a phrase of several words in a row that make a loop."""
MAX_LOOP_WORDS = 12
"""Number of words in the longest phrase whose repetition is detected."""
MAX_REPEATED_SHARE = 0.4
"""An output is a loop if more than this share of its word pairs occurred earlier in it. The highest share among 180,000
correct sentences is 0.375."""
MIN_WORDS_FOR_SHARE = 10
"""Number of words below which the share of repeated pairs is not meaningful."""
MIN_COPIED_SHARE = 0.8
"""An output is copied if at least this share of its words occurs in the source. Words with a capital do not count,
because names are not translated."""
MIN_COPIED_WORDS = 4
"""Number of words that an output must have to count as copied."""
MIN_SAME_SOURCES = 5
"""Number of different sources with the same output that is suspicious. With French tu and vous, inverted or not, four
sources have the same English translation. If there are references, this many of them must differ."""
MIN_SAME_WORDS = 3
"""Number of words that such an output must have: "Yes." is often right."""

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_STUTTER = re.compile(r"([^\W\d_]{1,6}?)\1{5,}|([^\w\s]|_)\2{9,}")  # "hahahahahaha" and "!!!!!!!!!!"
_LEFTOVER = re.compile(r"</?s>|<(?:unk|pad|sep|unused\d+|0x[0-9A-F]{2})>|@@(?=\s|$)|[▁Ġ]")


@dataclass(frozen=True)
class Suspicion:
    """Why an output is suspicious."""

    line: int
    """Number of the output, counted from 1."""
    kind: str
    """One of SUSPICION_KINDS."""
    detail: str


def find_suspicious(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str] | None = None
) -> list[Suspicion]:
    """Check each output against its source.

    References give the usual length ratio of a translation into this language, and the scripts it uses. Without them,
    an output is expected to be as long as its source, and scripts are not checked.
    """
    check_texts(outputs=outputs, sources=sources)
    ratio, scripts = 1.0, None
    if references is not None:
        check_texts(outputs=outputs, references=references)
        ratio = sum(map(len, references)) / max(1, sum(map(len, sources)))
        scripts = _scripts("".join(references))
    by_output: dict[str, set[str]] = {}
    for meaning, output in zip(references or sources, outputs, strict=True):
        by_output.setdefault(output.strip(), set()).add(meaning.strip())
    suspicions = []
    for line, (source, output) in enumerate(zip(sources, outputs, strict=True), 1):
        reasons = list(_check_output(source, output, ratio, scripts))
        count = len(by_output[output.strip()])
        if count >= MIN_SAME_SOURCES and len(_WORD.findall(output)) >= MIN_SAME_WORDS:
            reasons.append(("same", f"the output for {count} sources with different meanings"))
        suspicions += [Suspicion(line, kind, detail) for kind, detail in reasons]
    return suspicions


def _check_output(source: str, output: str, ratio: float, scripts: set[str] | None) -> Iterator[tuple[str, str]]:
    """Kind and detail of everything that is suspicious about one output on its own."""
    if not output.strip():
        if source.strip():
            yield "empty", "the output is empty"
        return
    if loop := _loop(source, output):
        yield "loop", loop
    if copied := _copied(source, output):
        yield "copied", copied
    relative_length = (len(output) + LENGTH_SLACK) / (len(source) * ratio + LENGTH_SLACK)
    lengths = f"{len(output)} characters, about {len(source) * ratio:.0f} expected"
    if relative_length * MAX_LENGTH_RATIO < 1:
        yield "short", lengths
    if relative_length > MAX_LENGTH_RATIO:
        yield "long", lengths
    if scripts is not None and (foreign := _scripts(output) - scripts - _scripts(source)):
        yield "script", ", ".join(sorted(foreign)).lower()
    if "\ufffd" in output and "\ufffd" not in source:
        yield "broken", "contains �"
    if (leftover := _LEFTOVER.search(output)) and leftover[0] not in source:
        yield "leftover", f"contains {leftover[0]}"


def _loop(source: str, output: str) -> str | None:
    """Description of a repetition that is not in the source to the same extent."""
    words = _WORD.findall(output.casefold())
    times, phrase = _longest_run(words)
    if times and times > _longest_run(_WORD.findall(source.casefold()))[0]:
        return f"“{' '.join(phrase)}” {times} times in a row"
    stutter = _STUTTER.search(output)
    if stutter and not _STUTTER.search(source):
        piece = stutter[1] or stutter[2]
        return f"“{piece}” {len(stutter[0]) // len(piece)} times in a row"
    share = _repeated_share(words)
    if share > MAX_REPEATED_SHARE > _repeated_share(_WORD.findall(source.casefold())):
        return f"{share:.0%} of its word pairs are repetitions"
    return None


def _longest_run(words: Sequence[str]) -> tuple[int, Sequence[str]]:
    """The number of repetitions in a row and the phrase, of the most repeated phrase that makes a loop; or 0."""
    longest: tuple[int, Sequence[str]] = (0, ())
    for size in range(1, min(MAX_LOOP_WORDS, len(words) // 2) + 1):
        equal = 0  # number of words up to here that equal the word `size` positions earlier
        for i in range(size, len(words)):
            equal = equal + 1 if words[i] == words[i - size] else 0
            times = equal // size + 1
            if times >= (MIN_WORD_REPEATS if size == 1 else MIN_PHRASE_REPEATS) and times > longest[0]:
                longest = times, words[i - size + 1 : i + 1]
    return longest


def _repeated_share(words: Sequence[str]) -> float:
    """The share of adjacent word pairs that occurred before."""
    if len(words) < MIN_WORDS_FOR_SHARE:
        return 0.0
    return 1 - len(set(pairwise(words))) / (len(words) - 1)


def _copied(source: str, output: str) -> str | None:
    source_words = Counter(_WORD.findall(source.casefold()))
    words = [word for word in _WORD.findall(output) if not word[0].isupper() and not word.isdigit()]
    shared = sum((Counter(word.casefold() for word in words) & source_words).values())
    if len(words) < MIN_COPIED_WORDS or shared < MIN_COPIED_SHARE * len(words):
        return None
    return f"{shared} of its {len(words)} lower-case words are in the source"


def _scripts(text: str) -> set[str]:
    return {script for character in set(text) if (script := _script(character))}


@lru_cache(maxsize=4096)
def _script(character: str) -> str | None:
    """The script of a letter, from its Unicode name (LATIN SMALL LETTER A); None if the character is not a letter."""
    if not character.isalpha():
        return None
    return unicodedata.name(character, "UNNAMED").split()[0].removesuffix("-1")
