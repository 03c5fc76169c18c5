"""Reading text in which every word has a label: columns as in CoNLL's files, or two aligned files of words and labels.

A file with columns has one word per line and a blank line after each sentence. Columns are separated by tabs or, in a
line without tabs, by spaces. Lines that belong to no word are skipped: CoNLL-2003's -DOCSTART-, and the comments,
ranges and empty nodes of CoNLL-U.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from regard.data.corpus import Corpus, CorpusError, CorpusProblems, LineFault, read_lines
from regard.formatting import quoted

DOCUMENT_START = "-DOCSTART-"
"""The word that separates documents in CoNLL-2003's files."""
MAX_LISTED_LABELS = 50
"""Maximum number of known labels that an error lists."""
_SPACES = re.compile("[ \t]+")  # not Unicode's other spaces, which occur within words
_RANGE_OR_EMPTY_NODE = re.compile(r"\d+[-.]\d+")  # as first column of CoNLL-U: "3-4" for "du", "8.1" for no word


@dataclass(frozen=True)
class TaggedSentence:
    """The words of a sentence and their labels."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    file: str
    """The file of the labels."""
    lines: tuple[int, ...]
    """The line of each label, counted from 1."""

    def where(self, word: int = 0) -> str:
        """Return the location of a word's label, as `file:line`."""
        return f"{self.file}:{self.lines[word]}"


def tagged_sentences(corpus: Corpus, problems: CorpusProblems, known: Collection[str] = ()) -> Iterator[TaggedSentence]:
    """Yield the sentences of a corpus; record a problem for any other, and for a label that is not `known`, if given.

    A single file has columns: by default the first is the word and the last its label. Two files, or two keys of a
    JSONL file, have the words and the labels of a sentence in each line, separated by spaces.
    Each sentence has at most one problem, so the counts are those of sentences.
    """
    if corpus.sides != 2 and (len(corpus.files) > 1 or corpus.columns or corpus.keys):
        raise CorpusError(
            f"{corpus.files[0]} is read with {corpus.sides} side(s), but tagging needs words and labels: two files, "
            "two keys, or one file with two columns (by default the first and the last)"
        )
    has_columns = len(corpus.files) == 1 and not corpus.keys
    sentences = _from_columns(corpus, problems) if has_columns else _from_lines(corpus, problems, known)
    for number, sentence in enumerate(sentences):
        unknown = next((i for i, label in enumerate(sentence.labels) if known and label not in known), None)
        if unknown is None:
            yield sentence
        else:
            detail = f"{quoted(sentence.labels[unknown])}: {_expected_labels(sentence.labels, known, number == 0)}"
            problems.record("unknown label", sentence.where(unknown), detail)


def _expected_labels(labels: Sequence[str], known: Collection[str], is_first: bool) -> str:
    """The known labels, for an error; if a first sentence has none of them, the file is probably of another kind."""
    names = list(known)
    others = f" and {len(names) - MAX_LISTED_LABELS:,} more" if len(names) > MAX_LISTED_LABELS else ""
    expected = f"expected one of {', '.join(names[:MAX_LISTED_LABELS])}{others}"
    unlike = is_first and not any(label in known for label in labels)
    return f"this does not look like a file of labels; {expected}" if unlike else expected


def split_at_spaces(text: str) -> tuple[str, ...]:
    """Return the parts of a text that are separated by spaces or tabs."""
    return tuple(part for part in _SPACES.split(text) if part)


def _from_lines(corpus: Corpus, problems: CorpusProblems, known: Collection[str]) -> Iterator[TaggedSentence]:
    for number, row in enumerate(corpus.rows(problems)):
        words, labels = (split_at_spaces(field) for field in row.fields)
        if len(words) != len(labels):
            detail = f"{len(words)} words, but {len(labels)} labels"
            if known and number == 0 and not any(label in known for label in labels):
                detail += f": {_expected_labels(labels, known, True)}"
            problems.record("labels do not match words", corpus.where(row, 1), detail)
            continue
        yield TaggedSentence(words, labels, corpus.files[-1], (row.line,) * len(words))


def _from_columns(corpus: Corpus, problems: CorpusProblems) -> Iterator[TaggedSentence]:
    (path,) = corpus.files
    words: list[str] = []
    labels: list[str] = []
    numbers: list[int] = []
    is_bad = False  # a sentence with a bad line is skipped as a whole
    for number, line in chain(_lines_of_words(path, corpus.columns), [(0, "")]):
        if isinstance(line, LineFault):
            if not is_bad:
                problems.record(line.kind, f"{path}:{number}", line.detail, "sentences")
            is_bad = True
        elif line.strip():
            cells = line.split("\t") if "\t" in line else split_at_spaces(line)
            fault = _missing_cell(cells, corpus.columns)
            if fault is not None:
                if not is_bad:
                    problems.record(fault.kind, f"{path}:{number}", fault.detail, "sentences")
                is_bad = True
                continue
            word_column, label_column = corpus.columns or (1, len(cells))
            words.append(cells[word_column - 1].strip())
            labels.append(cells[label_column - 1].strip())
            numbers.append(number)
        else:
            if words and not is_bad:
                yield TaggedSentence(tuple(words), tuple(labels), path, tuple(numbers))
            words, labels, numbers, is_bad = [], [], [], False


def _missing_cell(cells: Sequence[str], columns: tuple[int, ...]) -> LineFault | None:
    """Return what is wrong with a line that has no word or no label."""
    needed = columns or (1, 2)
    if len(cells) < max(needed):
        return LineFault("missing label", f"columns: {len(cells)}, but column {max(needed)} is needed")
    if not all(cells[column - 1].strip() for column in columns or (1, len(cells))):
        return LineFault("missing label", "the word or its label is empty")
    return None


def _lines_of_words(path: str, columns: tuple[int, ...]) -> Iterator[tuple[int, str | LineFault]]:
    """Yield the lines of a file with columns that belong to a word, and blank lines."""
    lines = read_lines(path)
    first: list[tuple[int, str | LineFault]] = []
    for numbered in lines:
        first.append(numbered)
        line = numbered[1]
        if isinstance(line, str) and line.strip() and not line.startswith("#"):
            break
    has_tabs = any(isinstance(line, str) and "\t" in line for _, line in first)  # then # starts a comment
    for number, line in chain(first, lines):
        if isinstance(line, str):
            if has_tabs and line.startswith("#") and "\t" not in line:
                continue
            if line.startswith(DOCUMENT_START):
                continue
            if columns and columns[0] > 1 and _RANGE_OR_EMPTY_NODE.fullmatch(line.partition("\t")[0]):
                continue
        yield number, line
