"""What a corpus holds and what is wrong with it, before a model learns it.

Memory grows by some dozens of bytes a row, for the search for duplicates, and by the size of the test sets.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.data.corpus import Corpus, CorpusProblems, CorpusRow

LENGTH_BINS = (5, 10, 20, 40, 80, 160)
"""upper ends of the histogram of lengths, in words"""

MAX_LENGTH_RATIO = 3.0
"""one side so many times longer than the other, in characters, is no translation of it"""

MAX_TRIVIAL_CHARACTERS = 20
"""characters up to which any ratio is common: "Oui." and "Yes, I do." """


@dataclass
class CorpusFinding:
    """Something to look at: how often it occurs, and where it was seen first."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        """Count it; keep the first few."""
        self.count += 1
        if len(self.examples) < 3:
            self.examples.append(example)


@dataclass
class CorpusReport:
    """A corpus in figures."""

    rows: int
    words: list[int]
    """of each side"""
    characters: list[int]
    histogram: list[list[int]]
    """for each side, rows by length: as many as BINS, and one more for what is longer"""
    ratio: CorpusFinding
    duplicates: CorpusFinding
    leaks: CorpusFinding | None
    """sentences of the test sets, either side, of more than SHORT characters; None when no test set was named"""
    problems: CorpusProblems
    classes: Counter[str]
    """for labelled text: how many rows each class has"""


def report_corpus(corpus: Corpus, tests: Sequence[Corpus] = (), labelled: bool = False) -> CorpusReport:
    """Read all of it and of the test sets, go on over bad lines, and say what there is."""
    problems = CorpusProblems(skip=True)
    words, characters = [0] * corpus.sides, [0] * corpus.sides
    histogram = [[0] * (len(LENGTH_BINS) + 1) for _ in range(corpus.sides)]
    ratio, leaks, rows = CorpusFinding(), CorpusFinding(), 0
    digests, lines = array("q"), array("q")
    known, classes = _sentences(tests, problems), Counter[str]()
    leaked: set[str] = set()
    for row in corpus.rows(problems):
        rows += 1
        for side, text in enumerate(row.fields):
            count = len(text.split())
            words[side] += count
            characters[side] += len(text)
            histogram[side][int(np.searchsorted(LENGTH_BINS, count))] += 1
        if labelled:
            classes[row.fields[1].strip()] += 1
        elif _out_of_ratio(row):
            ratio.add(f"{corpus.where(row)}: {len(row.fields[0])} and {len(row.fields[1])} characters")
        for side, text in enumerate(row.fields):
            place = known.get(text.strip())
            if place and place not in leaked:
                leaked.add(place)
                leaks.add(f"{corpus.where(row, side)} is {place}")
        if any(text.strip() for text in row.fields):
            digests.append(hash(row.fields))
            lines.append(row.line)
    duplicates = _duplicates(corpus, digests, lines)
    return CorpusReport(
        rows, words, characters, histogram, ratio, duplicates, leaks if tests else None, problems, classes
    )


def _out_of_ratio(row: CorpusRow) -> bool:
    if len(row.fields) != 2:
        return False
    short, long = sorted(len(text) for text in row.fields)
    return long > MAX_TRIVIAL_CHARACTERS and long > MAX_LENGTH_RATIO * short


def _sentences(tests: Iterable[Corpus], problems: CorpusProblems) -> dict[str, str]:
    """Each sentence of the test sets, and where it stands. Very short ones are everybody's, and no leak."""
    return {
        text.strip(): corpus.where(row, side)
        for corpus in tests
        for row in corpus.rows(problems)
        for side, text in enumerate(row.fields)
        if len(text.strip()) > MAX_TRIVIAL_CHARACTERS
    }


def _duplicates(corpus: Corpus, digests: "array[int]", lines: "array[int]") -> CorpusFinding:
    """Rows that are there more than once, counted without the first."""
    finding = CorpusFinding()
    order = np.argsort(np.asarray(digests), kind="stable")
    ordered = np.asarray(digests)[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1 if len(ordered) else np.zeros(0, int)
    finding.count = len(again)
    for place in again[np.argsort(order[again])[:3]]:
        here, there = (CorpusRow((), lines[order[i]]) for i in (place, place - 1))
        finding.examples.append(f"{corpus.where(here)} is {corpus.where(there)}")
    return finding


def length_bin_names() -> Iterator[str]:
    """The names of the histogram's bins."""
    low = 0
    for high in LENGTH_BINS:
        yield f"{low}–{high}"
        low = high + 1
    yield f"{low} and more"
