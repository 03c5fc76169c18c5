"""Outputs that a person should look at: what goes wrong with translations, told line by line.

A suspicion is no verdict. The thresholds are such that of true references (Petit, Multi30k, newstest2013, Tatoeba)
less than 0.5 % are suspected; a test measures it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from regard.evaluation.text_checks import check_texts

KINDS: dict[str, str] = {
    "empty": "nothing was written for a source that says something",
    "loop": "the same words again and again, more often than in the source",
    "copied": "the source itself, not translated",
    "short": "far shorter than such a source asks for: something was left out",
    "long": "far longer than such a source asks for: something was made up",
    "same": "one output for several different sources: it may have little to do with any of them",
    "script": "letters of a script that neither the references nor its source use",
    "broken": "a character that is half there (�)",
    "leftover": "a token that is no text: <unk>, ▁, @@",
}

FACTOR = 2.0
"""so many times shorter or longer than expected is suspect"""
SLACK = 10
"""characters added to both lengths before they are compared, since short sentences vary more"""
ONE_WORD, MORE_WORDS = 4, 3
"""times in a row that make a loop, of one word and of several: "no, no, no" is none"""
LONGEST_LOOP = 12
"""words of the longest phrase that is sought for in a row"""
REPEATED = 0.4
"""share of pairs of words that were there before in the same output, above which it is a loop wherever they stand; the
highest of 180,000 true sentences is 0.375"""
ENOUGH = 10
"""words from which that share says something"""
COPIED, COPIED_WORDS = 0.8, 4
"""share of an output's words that stand in its source, and how many it takes; words with a capital do not count, since
names stay as they are"""
SAME, SAME_WORDS = 5, 3
"""different sources with one output, and the words it must have: "Yes." is often right, and with French tu and vous,
inverted or not, four sources have one English. Where there are references, so many of them must differ."""

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_STUTTER = re.compile(r"([^\W\d_]{1,6}?)\1{5,}|([^\w\s]|_)\2{9,}")  # "hahahahahaha" and "!!!!!!!!!!"
_LEFTOVER = re.compile(r"</?s>|<(?:unk|pad|sep|unused\d+|0x[0-9A-F]{2})>|@@(?=\s|$)|[▁Ġ]")


@dataclass(frozen=True)
class Suspect:
    """An output to look at."""

    line: int
    """counted from 1"""
    kind: str
    """one of KINDS"""
    detail: str


def find_suspects(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str] | None = None
) -> list[Suspect]:
    """Look at each output beside its source.

    References, where there are any, say how long a translation into this language is beside its source, and which
    scripts it uses. Without them an output is expected to be as long as its source, and scripts are not looked at.
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
    found = []
    for line, (source, output) in enumerate(zip(sources, outputs, strict=True), 1):
        suspicions = list(_look(source, output, ratio, scripts))
        times = len(by_output[output.strip()])
        if times >= SAME and len(_WORD.findall(output)) >= SAME_WORDS:
            suspicions.append(("same", f"written for {times} sources that mean different things"))
        found += [Suspect(line, kind, detail) for kind, detail in suspicions]
    return found


def _look(source: str, output: str, ratio: float, scripts: set[str] | None) -> Iterator[tuple[str, str]]:
    """What can be said of one output by itself: kind and detail."""
    if not output.strip():
        if source.strip():
            yield "empty", "nothing was written"
        return
    if loop := _loop(source, output):
        yield "loop", loop
    if copied := _copied(source, output):
        yield "copied", copied
    relation = (len(output) + SLACK) / (len(source) * ratio + SLACK)
    lengths = f"{len(output)} characters where about {len(source) * ratio:.0f} were expected"
    if relation * FACTOR < 1:
        yield "short", lengths
    if relation > FACTOR:
        yield "long", lengths
    if scripts is not None and (foreign := _scripts(output) - scripts - _scripts(source)):
        yield "script", ", ".join(sorted(foreign)).lower()
    if "\ufffd" in output and "\ufffd" not in source:
        yield "broken", "holds �"
    if (leftover := _LEFTOVER.search(output)) and leftover[0] not in source:
        yield "leftover", f"holds {leftover[0]}"


def _loop(source: str, output: str) -> str | None:
    """What is repeated in the output and not as often in the source, in words for people."""
    words = _WORD.findall(output.casefold())
    times, phrase = _longest_run(words)
    if times and times > _longest_run(_WORD.findall(source.casefold()))[0]:
        return f"“{' '.join(phrase)}” {times} times in a row"
    stutter = _STUTTER.search(output)
    if stutter and not _STUTTER.search(source):
        piece = stutter[1] or stutter[2]
        return f"“{piece}” {len(stutter[0]) // len(piece)} times in a row"
    repeated = _repeated(words)
    if repeated > REPEATED > _repeated(_WORD.findall(source.casefold())):
        return f"{repeated:.0%} of its pairs of words were there before"
    return None


def _longest_run(words: Sequence[str]) -> tuple[int, Sequence[str]]:
    """How often a phrase stands in a row, and which: the most frequent one that makes a loop, or 0."""
    most: tuple[int, Sequence[str]] = (0, ())
    for size in range(1, min(LONGEST_LOOP, len(words) // 2) + 1):
        equal = 0  # so many words, up to here, stand also `size` words before
        for i in range(size, len(words)):
            equal = equal + 1 if words[i] == words[i - size] else 0
            times = equal // size + 1
            if times >= (ONE_WORD if size == 1 else MORE_WORDS) and times > most[0]:
                most = times, words[i - size + 1 : i + 1]
    return most


def _repeated(words: Sequence[str]) -> float:
    """The share of pairs of neighbours that were there before."""
    if len(words) < ENOUGH:
        return 0.0
    return 1 - len(set(pairwise(words))) / (len(words) - 1)


def _copied(source: str, output: str) -> str | None:
    there = Counter(_WORD.findall(source.casefold()))
    words = [word for word in _WORD.findall(output) if not word[0].isupper() and not word.isdigit()]
    shared = sum((Counter(word.casefold() for word in words) & there).values())
    if len(words) < COPIED_WORDS or shared < COPIED * len(words):
        return None
    return f"{shared} of its {len(words)} words without a capital stand in the source"


def _scripts(text: str) -> set[str]:
    return {script for character in set(text) if (script := _script(character))}


@lru_cache(maxsize=4096)
def _script(character: str) -> str | None:
    """The script of a letter by its name in Unicode, LATIN SMALL LETTER A; None for what is no letter."""
    if not character.isalpha():
        return None
    return unicodedata.name(character, "UNNAMED").split()[0].removesuffix("-1")
