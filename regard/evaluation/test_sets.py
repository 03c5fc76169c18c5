"""What a system is scored on: sources with their references, and where Petit's gold lies beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast, get_args

from regard.config import did_you_mean
from regard.data.corpus import Corpus, CorpusError, CorpusProblems, CorpusRow, LineFault, read_lines, remedy
from regard.data.tokenized_corpus import DocumentBoundary, _texts
from regard.errors import RegardError
from regard.evaluation.alignment import Links, read_links
from regard.evaluation.petit_scores import read_tags

Item = TypeVar("Item")


@dataclass(frozen=True)
class Examples:
    """The rows of a test set: a text each, and what stands beside it (references, or a class)."""

    files: tuple[str, ...]
    sources: list[str]
    beside: list[list[str]]
    """the other sides, each with one text for each source"""
    lines: list[int]
    """where each row stands in its file, counted from 1"""
    total: int
    """lines of the file, those left out too"""

    @property
    def name(self) -> str:
        """What the set is called: the file of its first references."""
        return self.files[min(1, len(self.files) - 1)]

    def chosen(self, items: Sequence[Item], path: Path | str) -> list[Item]:
        """Those of a file's lines that belong to the rows: it has a line for each row, or for each line of the set."""
        if len(items) == self.total:
            return [items[line - 1] for line in self.lines]
        if len(items) != len(self.lines):
            raise RegardError(_unequal((self.files[0], self.total), (str(path), len(items))))
        return list(items)


@dataclass(frozen=True)
class Gold:
    """What Petit knows of each row: its phenomena, which words belong together, or both."""

    tags: list[list[str]] | None = None
    links: list[Links] | None = None


def read_examples(corpus: Corpus, limit: int | None = None, skip_bad: bool = False) -> Examples:
    """The rows of a corpus, or its first `limit`; files of unequal length are an error that names both counts."""
    problems = CorpusProblems(skip_bad)
    rows: list[CorpusRow] = []
    try:
        rows.extend(corpus.rows(problems))
    except CorpusError:
        if not problems.counts["unequal lines"]:
            raise
    if problems.counts["unequal lines"]:
        if not all(Path(file).is_file() for file in corpus.files):  # a pipe cannot be read again, to count its lines
            raise RegardError(f"{' and '.join(corpus.files)} differ in length: each line must have its counterpart")
        counts = sorted(((file, sum(1 for _ in read_lines(file))) for file in corpus.files), key=lambda each: -each[1])
        raise RegardError(_unequal(counts[0], counts[-1]))
    total = len(rows) + problems.counts.total()
    if not rows:
        what = "is empty" if not total else f"has no row that could be read: {dict(problems.counts)}"
        raise RegardError(f"{corpus.files[0]} {what}: there is nothing to score")
    rows = rows[:limit]
    sides = [[row.fields[side] for row in rows] for side in range(corpus.sides)]
    return Examples(corpus.files, sides[0], sides[1:], [row.line for row in rows], total)


def read_documents(
    corpus: Corpus, documents: str = "file", limit: int | None = None, skip_bad: bool = False
) -> list[str]:
    """The texts of a language model's corpus as `prepare` parts them, or the first `limit`."""
    known = get_args(DocumentBoundary)
    if documents not in known:
        raise RegardError(f"documents={documents} is not a choice: {did_you_mean(documents, known)}")
    found: list[list[str]] = [[]]
    for fields, ended in _texts(corpus, CorpusProblems(skip_bad), cast(DocumentBoundary, documents)):
        found[-1].append(fields[0])
        if ended:
            found.append([])
    return ["".join(each) for each in found if each][:limit]


def read_gold(examples: Examples, tags: Path | None, align: Path | None) -> Gold:
    """The gold that is named or, where none is, that lies beside Petit's files: test.tags and test.align by test.fr."""
    if tags is None and align is None:
        tags, align = _gold_beside(examples.files)
    for path in (tags, align):
        if path is not None and not path.is_file():
            raise RegardError(f"{path}: there is no such file")
    return Gold(
        None if tags is None else examples.chosen(read_tags(tags), tags),
        None if align is None else examples.chosen(read_links(align), align),
    )


def read_outputs(path: Path, examples: Examples) -> list[str]:
    """What a system wrote for each row, from a file with a line for each; a blank line is an output too."""
    outputs: list[str] = []
    for number, line in read_lines(str(path)):
        if isinstance(line, LineFault):
            raise RegardError(f"{path}:{number}: {line.kind}: {remedy(line, str(path))}")
        outputs.append(line)
    return examples.chosen(outputs, path)


def _gold_beside(files: tuple[str, ...]) -> tuple[Path | None, Path | None]:
    """Petit's from French to English alone: from English a sentence may have several translations."""
    names = [Path(file.removesuffix(".gz").removesuffix(".xz")) for file in files]
    if len(names) != 2 or names[0] != names[1].with_suffix(".fr") or names[1].suffix != ".en":
        return None, None
    tags, align = (names[0].with_suffix(suffix) for suffix in (".tags", ".align"))
    return (tags, align) if tags.is_file() and align.is_file() else (None, None)


def _unequal(one: tuple[str, int], other: tuple[str, int]) -> str:
    return f"{one[0]} has {one[1]:,} lines and {other[0]} {other[1]:,}: each line must have its counterpart"
