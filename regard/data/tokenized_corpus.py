"""Corpora tokenised once: memory-mapped integers with an index, kept under a name made of what they came from.

A prepared folder holds for each side n `n.tokens` (all sequences end to end) and `n.offsets` (where each begins, and
the end of the last), for classification `labels`, and `prepared.json`. A second run with the same text and tokenizer
opens it at once.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.atomic_files import file_digest, new_folder
from regard.config import did_you_mean
from regard.data.corpus import Corpus, CorpusError, CorpusProblems, require_files
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError

TOKENIZED_FORMAT = 1
"""raised when the layout changes, so that no old folder is taken for a new one"""

ROWS_PER_CHUNK = 4096
"""rows tokenised at a time: enough for all cores, little in memory"""

DocumentBoundary = Literal["line", "blank-line", "file"]
"""what one text of a language model's corpus is: a line, lines up to a blank one, or the whole file"""


@dataclass(frozen=True)
class TokenizedCorpus:
    """Tokenised text. Sequence i of a side is `tokens[side][offsets[side][i] : offsets[side][i + 1]]`."""

    tokens: tuple[NDArray[np.unsignedinteger[Any]], ...]
    offsets: tuple[NDArray[np.int64], ...]
    labels: NDArray[np.int32] | None
    """for classification: the class of each sequence, a place in `classes`"""
    classes: tuple[str, ...]
    problems: dict[str, int]
    """how many lines of each kind were left out when it was prepared"""
    variants: int = 1
    """in how many ways each example is written: example i is sequence i, i + examples, i + 2 × examples …"""

    @property
    def examples(self) -> int:
        """How many examples it holds, each counted once."""
        return len(self) // self.variants

    def __len__(self) -> int:
        return len(self.offsets[0]) - 1

    def lengths(self, side: int) -> NDArray[np.int64]:
        """How many tokens each sequence of a side has."""
        return np.diff(self.offsets[side])

    def sequence(self, side: int, i: int) -> NDArray[np.unsignedinteger[Any]]:
        """The ids of one sequence."""
        return self.tokens[side][self.offsets[side][i] : self.offsets[side][i + 1]]


def tokenize_corpora(
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    cache: Path | str,
    problems: CorpusProblems,
    documents: DocumentBoundary = "line",
    labelled: bool = False,
    classes: Sequence[str] = (),
) -> TokenizedCorpus:
    """Tokenise the corpora, one behind the other, or open what an earlier call left in the folder `cache`.

    With `labelled` the second side is a class: one of `classes` or, if none are given, of those the text holds.
    """
    if isinstance(corpora, Corpus):
        raise CorpusError("corpora are several, in a list, and this is one")
    if not corpora:
        raise CorpusError("there is nothing to prepare: name at least one corpus")
    sides = {corpus.sides for corpus in corpora}
    if len(sides) != 1:
        raise CorpusError(f"corpora that go together must have equally many sides, and these have {sorted(sides)}")
    if labelled and sides != {2}:
        raise CorpusError(f"for classification a row is a text and its class, and these have {sides.pop()} fields")
    if len(set(classes)) != len(classes):
        raise CorpusError(f"a class is named twice: {list(classes)}")
    origin = {
        "version": TOKENIZED_FORMAT,
        "files": _digests(corpora),
        "read": [[corpus.columns, corpus.keys] for corpus in corpora],
        "skip": problems.skip,
        "tokenizer": tokenizer.digest,
        "documents": documents if sides == {1} else None,
        "classes": list(classes) if labelled else None,
    }
    name = hashlib.sha256(json.dumps(origin).encode()).hexdigest()[:24]
    folder = Path(cache) / name
    if not folder.is_dir():
        with new_folder(folder, keep_existing=True) as temporary:  # another run may prepare the same
            _write(temporary, corpora, tokenizer, CorpusProblems(problems.skip), documents, labelled, tuple(classes))
            if _digests(corpora) != origin["files"]:
                raise CorpusError(f"{corpora[0].files[0]} (or a file beside it) changed while it was read: start again")
    data, examples = open_tokenized_corpus(folder)
    problems.add(data.problems, examples)
    return data


def open_tokenized_corpus(folder: Path) -> tuple[TokenizedCorpus, dict[str, list[str]]]:
    """What `tokenize_corpora` wrote, memory-mapped, and examples of the lines it left out."""
    try:
        info = json.loads((folder / "prepared.json").read_text())
        sides = range(info["sides"])
        offsets = tuple(_mapped(folder / f"{side}.offsets", np.int64) for side in sides)
        tokens = tuple(_mapped(folder / f"{side}.tokens", np.dtype(info["dtype"])) for side in sides)
        labels = _mapped(folder / "labels", np.int32) if info["classes"] else None
        whole = all(
            len(offset) == info["rows"] + 1 and offset[-1] == len(ids) and (np.diff(offset) >= 0).all()
            for offset, ids in zip(offsets, tokens, strict=True)
        )
        if not whole or (labels is not None and len(labels) != info["rows"]):
            raise RegardError("its sizes do not fit together")
    except (OSError, KeyError, ValueError) as error:
        raise RegardError(f"{folder} is damaged ({error}): delete it, and it is prepared again") from error
    return TokenizedCorpus(tokens, offsets, labels, tuple(info["classes"]), info["problems"]), info["examples"]


def _write(
    folder: Path,
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    problems: CorpusProblems,
    documents: DocumentBoundary,
    labelled: bool,
    classes: tuple[str, ...],
) -> None:
    """Tokenise and write in chunks, so that memory does not grow with the corpus."""
    sides = 1 if labelled else corpora[0].sides
    dtype = np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)
    labels = ClassNumbers(classes)
    rows, ends = 0, [0] * sides
    with ExitStack() as files:
        token_files = [files.enter_context((folder / f"{side}.tokens").open("wb")) for side in range(sides)]
        offset_files = [files.enter_context((folder / f"{side}.offsets").open("wb")) for side in range(sides)]
        for file in offset_files:
            file.write(np.zeros(1, np.int64).tobytes())
        read = labels.texts if labelled else partial(_texts, documents=documents)
        texts = chain.from_iterable(read(corpus, problems) for corpus in corpora)
        while chunk := list(islice(texts, ROWS_PER_CHUNK)):
            last = np.array([ended for _, ended in chunk])
            for side in range(sides):
                encode = tokenizer.encode_targets if side else tokenizer.encode_batch
                ids = list(encode([fields[side] for fields, _ in chunk]))
                stops = ends[side] + np.cumsum([len(each) for each in ids], dtype=np.int64)
                ends[side] = int(stops[-1])
                token_files[side].write(np.fromiter(chain.from_iterable(ids), dtype).tobytes())
                offset_files[side].write(stops[last].tobytes())
            rows += int(last.sum())
    if rows == 0:
        raise CorpusError(f"{corpora[0].files[0]}: not one row could be read: {dict(problems.counts) or 'it is empty'}")
    if labelled:
        classes, numbers = labels.sorted()
        (folder / "labels").write_bytes(numbers.tobytes())
    info = {
        "rows": rows,
        "sides": sides,
        "dtype": dtype.name,
        "classes": classes,
        "problems": dict(problems.counts),
        "examples": problems.examples,
    }
    (folder / "prepared.json").write_text(json.dumps(info, indent=2) + "\n")


class ClassNumbers:
    """The classes met while reading, as numbers: four bytes a row."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.closed = bool(classes)
        self.number = {name: i for i, name in enumerate(classes)}
        self.seen = array("i")

    def texts(self, corpus: Corpus, problems: CorpusProblems) -> Iterator[tuple[tuple[str, ...], bool]]:
        """The text of each row whose class is known, or becomes so."""
        for row in corpus.rows(problems):
            label = row.fields[1].strip()
            if self.closed and label not in self.number:
                told = f"{label!r}: {did_you_mean(label, self.number)}"
                problems.found("unknown class", corpus.where(row, 1), told)
                continue
            self.seen.append(self.number.setdefault(label, len(self.number)))
            yield row.fields[:1], True

    def sorted(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """The classes, as given or by name, and the place of each row's among them."""
        names = tuple(self.number) if self.closed else tuple(sorted(self.number))
        place = np.array([names.index(name) for name in self.number], np.int32)
        return names, place[np.asarray(self.seen)]


def _texts(
    corpus: Corpus, problems: CorpusProblems, documents: DocumentBoundary
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The fields of each row, and whether a sequence ends with it."""
    rows = corpus.rows(problems)
    if corpus.sides > 1:
        return ((row.fields, True) for row in rows)
    if documents == "line":
        return ((row.fields, True) for row in rows if row.fields[0].strip())
    return _joined((row.fields[0] for row in rows), documents)


def _joined(lines: Iterable[str], documents: DocumentBoundary) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Lines, each with its line feed, that go on in one text until a blank one or the end of the file."""
    kept: str | None = None
    for line in lines:
        parts = documents == "blank-line" and not line.strip()
        if kept is not None:
            yield (kept,), parts
        kept = None if parts else f"{line}\n"
    if kept is not None:
        yield (kept,), True


def _digests(corpora: Sequence[Corpus]) -> list[list[tuple[str, str]]]:
    """What the corpora are made of: each file's content, and its suffix, which says how it is read."""
    require_files(file for corpus in corpora for file in corpus.files)
    return [[(file_digest(Path(file)), Path(file).suffix) for file in corpus.files] for corpus in corpora]


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
