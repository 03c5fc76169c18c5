"""Test sets: sources with references or labels, gold annotations, and outputs of other systems."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar, cast, get_args

from regard.config import did_you_mean
from regard.data.corpus import SKIP_IN_EVALUATION, Corpus, CorpusError, CorpusProblems, CorpusRow, read_lines
from regard.data.tagged_text import TaggedSentence, tagged_sentences
from regard.data.tokenized_corpus import DocumentBoundary, rows_with_ends
from regard.errors import RegardError
from regard.evaluation.alignment import Links, WordSpans, read_links, whitespace_spans
from regard.evaluation.results import SkippedSentences
from regard.evaluation.tag_accuracy import read_tags
from regard.evaluation.text_files import read_text_lines

Item = TypeVar("Item")


@dataclass(frozen=True)
class Examples:
    """The rows of a test set: a source text each, with its references or its label."""

    files: tuple[str, ...]
    sources: list[str]
    references: list[list[str]]
    """The other sides, each with one text for each source: references of a translation, or labels."""
    lines: list[int]
    """Line number of each row in its file, counted from 1."""
    total: int
    """Number of lines in the file, including rows that were left out."""

    @property
    def name(self) -> str:
        """Name of the test set: the file of its first references."""
        return self.files[min(1, len(self.files) - 1)]

    def select(self, items: Sequence[Item], path: Path | str) -> list[Item]:
        """The items of these rows, from a file with one item for each row or for each line of the test set."""
        if len(items) == self.total:
            return [items[line - 1] for line in self.lines]
        if len(items) != len(self.lines):
            raise RegardError(_unequal_lengths((self.files[0], self.total), (str(path), len(items))))
        return list(items)


@dataclass(frozen=True)
class GoldAnnotations:
    """Gold annotations of the rows: tags of each sentence, links between words, or both."""

    tags: list[list[str]] | None = None
    links: list[Links] | None = None
    word_spans: WordSpans = whitespace_spans
    """The word segmentation that the links count by."""


def read_examples(corpus: Corpus, limit: int | None = None, skip_bad: bool = False) -> Examples:
    """The rows of a corpus, or the first `limit`. Files of unequal length raise an error that gives both counts."""
    problems = CorpusProblems(skip_bad, SKIP_IN_EVALUATION)
    rows: list[CorpusRow] = []
    try:
        rows.extend(corpus.rows(problems))
    except CorpusError:
        if not problems.counts["unequal lines"]:
            raise
    if problems.counts["unequal lines"]:
        if not all(Path(file).is_file() for file in corpus.files):  # a pipe cannot be read again to count its lines
            raise RegardError(f"{' and '.join(corpus.files)} differ in length: both must have the same number of lines")
        counts = [(file, sum(1 for _ in read_lines(file))) for file in corpus.files]
        counts.sort(key=lambda file_and_count: -file_and_count[1])
        raise RegardError(_unequal_lengths(counts[0], counts[-1]))
    total = len(rows) + problems.counts.total()
    if not rows:
        problem = f"has no valid row: {dict(problems.counts)}" if total else "is empty"
        raise RegardError(f"{corpus.files[0]} {problem}: there is nothing to score")
    rows = rows[:limit]
    sides = [[row.fields[side] for row in rows] for side in range(corpus.sides)]
    return Examples(corpus.files, sides[0], sides[1:], [row.line for row in rows], total)


def read_tagged_sentences(
    corpus: Corpus, known: Collection[str], limit: int | None = None, skip_bad: bool = False
) -> tuple[list[TaggedSentence], tuple[SkippedSentences, ...]]:
    """The sentences of a tagger's test set, or the first `limit`, and those skipped on the way.

    A label that is not `known` is an error; with `skip_bad`, its sentence is skipped.
    """
    problems = CorpusProblems(skip_bad, SKIP_IN_EVALUATION)
    sentences = list(islice(tagged_sentences(corpus, problems, known), limit))
    skipped = tuple(
        SkippedSentences(kind, count, problems.examples[kind][0]) for kind, count in problems.counts.items()
    )
    if not sentences:
        reasons = f" ({', '.join(map(str, skipped))})" if skipped else ""
        raise RegardError(f"{corpus.files[0]} has no valid sentence{reasons}: there is nothing to score")
    return sentences, skipped


def read_documents(
    corpus: Corpus, documents: str = "file", limit: int | None = None, skip_bad: bool = False
) -> list[str]:
    """The texts of a language model's corpus, split as for training, or the first `limit`."""
    boundaries = get_args(DocumentBoundary)
    if documents not in boundaries:
        raise RegardError(f"documents={documents} is not a valid choice: {did_you_mean(documents, boundaries)}")
    texts: list[list[str]] = [[]]
    for fields, ended in rows_with_ends(
        corpus, CorpusProblems(skip_bad, SKIP_IN_EVALUATION), cast(DocumentBoundary, documents)
    ):
        texts[-1].append(fields[0])
        if ended:
            texts.append([])
    return ["".join(parts) for parts in texts if parts][:limit]


def read_gold(
    examples: Examples,
    tags: Path | None,
    links: Path | None,
    known_tags: Collection[str] | None = None,
    word_spans: Callable[[str], list[tuple[int, int]]] = whitespace_spans,
) -> GoldAnnotations:
    """Read gold annotations from the files that are given; with `known_tags`, any other tag is an error."""
    for path in (tags, links):
        if path is not None and not path.is_file():
            raise RegardError(f"{path} does not exist")
    return GoldAnnotations(
        None if tags is None else examples.select(read_tags(tags, known_tags), tags),
        None if links is None else examples.select(read_links(links), links),
        word_spans,
    )


def read_outputs(path: Path, examples: Examples) -> list[str]:
    """A system's output for each row, from a file with one line per output; blank lines count."""
    return examples.select(read_text_lines(path), path)


def _unequal_lengths(first: tuple[str, int], second: tuple[str, int]) -> str:
    return (
        f"{first[0]} has {first[1]:,} lines and {second[0]} has {second[1]:,}: both must have the same number of lines"
    )
