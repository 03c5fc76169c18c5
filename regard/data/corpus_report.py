"""Statistics and problems of a corpus, before a model is trained on it.

Finding duplicates takes a few dozen bytes of memory per row, and the test sets are kept in memory.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.data.corpus import Corpus, CorpusProblems, CorpusRow

LENGTH_BINS = (5, 10, 20, 40, 80, 160)
"""Upper ends of the histogram of lengths, in words."""

MAX_LENGTH_RATIO = 3.0
"""Length ratio, in characters, above which two sides are probably not translations of each other."""

MAX_TRIVIAL_CHARACTERS = 20
"""Texts of up to this many characters are not compared: any ratio is common ("Oui." and "Yes, I do."), and so are
repetitions."""


@dataclass
class CorpusFinding:
    """Something to inspect: how often it occurs, and the first examples."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        """Count an occurrence, and keep the first three as examples."""
        self.count += 1
        if len(self.examples) < 3:
            self.examples.append(example)


@dataclass
class CorpusReport:
    """The statistics and findings of a corpus."""

    rows: int
    words: list[int]
    """Number of words of each side."""
    characters: list[int]
    histogram: list[list[int]]
    """For each side, the number of rows in each of LENGTH_BINS, and of those that are longer."""
    ratio: CorpusFinding
    duplicates: CorpusFinding
    leaks: CorpusFinding | None
    """Sentences of the test sets (either side) that occur in the corpus; None without a test set."""
    problems: CorpusProblems
    classes: Counter[str]
    """Number of rows of each class, for labelled text."""


def report_corpus(corpus: Corpus, tests: Sequence[Corpus] = (), labelled: bool = False) -> CorpusReport:
    """Read a corpus and its test sets completely, skipping bad lines, and return the statistics."""
    problems = CorpusProblems(skip=True)
    words, characters = [0] * corpus.sides, [0] * corpus.sides
    histogram = [[0] * (len(LENGTH_BINS) + 1) for _ in range(corpus.sides)]
    ratio, leaks, rows = CorpusFinding(), CorpusFinding(), 0
    digests, lines = array("q"), array("q")
    test_sentences, classes = _sentences(tests, problems), Counter[str]()
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
            location = test_sentences.get(text.strip())
            if location and location not in leaked:
                leaked.add(location)
                leaks.add(f"{corpus.where(row, side)} is {location}")
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
    """Return the location of each sentence of the test sets; very short ones are common and not counted as leaks."""
    return {
        text.strip(): corpus.where(row, side)
        for corpus in tests
        for row in corpus.rows(problems)
        for side, text in enumerate(row.fields)
        if len(text.strip()) > MAX_TRIVIAL_CHARACTERS
    }


def _duplicates(corpus: Corpus, digests: "array[int]", lines: "array[int]") -> CorpusFinding:
    """Find rows that repeat an earlier row."""
    finding = CorpusFinding()
    order = np.argsort(np.asarray(digests), kind="stable")
    ordered = np.asarray(digests)[order]
    repeats = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1 if len(ordered) else np.zeros(0, int)
    finding.count = len(repeats)
    for index in repeats[np.argsort(order[repeats])[:3]]:
        repeat, original = (CorpusRow((), lines[order[i]]) for i in (index, index - 1))
        finding.examples.append(f"{corpus.where(repeat)} is {corpus.where(original)}")
    return finding


def length_bin_names() -> Iterator[str]:
    """Yield the names of the histogram's bins."""
    low = 0
    for high in LENGTH_BINS:
        yield f"{low}–{high}"
        low = high + 1
    yield f"{low} and more"
