"""Corpora tokenised once: memory-mapped integers with an index, kept under a name made of what they came from.

A prepared folder holds for each side n `n.tokens` (all sequences end to end) and `n.offsets` (where each begins, and
the end of the last), for classification `labels`, and `prepared.json`. A second run with the same text and tokenizer
opens it at once.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.config import did_you_mean
from regard.files import digest, new_folder
from regard.text.corpus import Corpus, CorpusError, Problems
from regard.text.tokenizer import Tokenizer

VERSION = 1
"""raised when the layout changes, so that no old folder is taken for a new one"""

CHUNK = 4096
"""rows tokenised at a time: enough for all cores, little in memory"""

Documents = Literal["line", "blank-line", "file"]
"""what one text of a language model's corpus is: a line, lines up to a blank one, or the whole file"""


@dataclass(frozen=True)
class Prepared:
    """Tokenised text. Sequence i of a side is `tokens[side][offsets[side][i] : offsets[side][i + 1]]`."""

    tokens: tuple[NDArray[np.unsignedinteger[Any]], ...]
    offsets: tuple[NDArray[np.int64], ...]
    labels: NDArray[np.int32] | None
    """for classification: the class of each sequence, a place in `classes`"""
    classes: tuple[str, ...]
    problems: dict[str, int]
    """how many lines of each kind were left out when it was prepared"""

    def __len__(self) -> int:
        return len(self.offsets[0]) - 1

    def lengths(self, side: int) -> NDArray[np.int64]:
        """How many tokens each sequence of a side has."""
        return np.diff(self.offsets[side])

    def sequence(self, side: int, i: int) -> NDArray[np.unsignedinteger[Any]]:
        """The ids of one sequence."""
        return self.tokens[side][self.offsets[side][i] : self.offsets[side][i + 1]]


def prepare(
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    cache: Path,
    problems: Problems,
    documents: Documents = "line",
    labelled: bool = False,
    classes: Sequence[str] = (),
) -> Prepared:
    """Tokenise the corpora, one behind the other, or open what an earlier call left in the folder `cache`.

    With `labelled` the second side is a class: one of `classes` or, if none are given, of those the text holds.
    """
    sides = {corpus.sides for corpus in corpora}
    if len(sides) != 1:
        raise CorpusError(f"corpora that go together must have equally many sides, and these have {sorted(sides)}")
    if labelled and sides != {2}:
        raise CorpusError(f"for classification a row is a text and its class, and these have {sides.pop()} fields")
    origin = {
        "version": VERSION,
        "files": [[digest(_existing(file)) for file in corpus.files] for corpus in corpora],
        "read": [[corpus.columns, corpus.keys] for corpus in corpora],
        "skip": problems.skip,
        "tokenizer": tokenizer.digest,
        "documents": documents if sides == {1} else None,
        "classes": list(classes) if labelled else None,
    }
    name = hashlib.sha256(json.dumps(origin).encode()).hexdigest()[:24]
    folder = cache / name
    if not folder.is_dir():
        with new_folder(folder) as temporary:
            _write(temporary, corpora, tokenizer, problems, documents, labelled, tuple(classes))
    return open_prepared(folder)


def open_prepared(folder: Path) -> Prepared:
    """What `prepare` wrote, memory-mapped."""
    info = json.loads((folder / "prepared.json").read_text())
    sides = range(info["sides"])
    offsets = tuple(_mapped(folder / f"{side}.offsets", np.int64) for side in sides)
    tokens = tuple(_mapped(folder / f"{side}.tokens", np.dtype(info["dtype"])) for side in sides)
    for side in sides:
        if len(offsets[side]) != info["rows"] + 1 or offsets[side][-1] != len(tokens[side]):
            raise ValueError(f"{folder} is damaged (side {side}): delete it, and it is prepared again")
    labels = _mapped(folder / "labels", np.int32) if info["classes"] else None
    return Prepared(tokens, offsets, labels, tuple(info["classes"]), info["problems"])


def _write(
    folder: Path,
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    problems: Problems,
    documents: Documents,
    labelled: bool,
    classes: tuple[str, ...],
) -> None:
    """Tokenise and write in chunks, so that memory does not grow with the corpus."""
    sides = 1 if labelled else corpora[0].sides
    dtype = np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)
    rows, ends, labels = 0, [0] * sides, list[str]()
    with ExitStack() as files:
        token_files = [files.enter_context((folder / f"{side}.tokens").open("wb")) for side in range(sides)]
        offset_files = [files.enter_context((folder / f"{side}.offsets").open("wb")) for side in range(sides)]
        for file in offset_files:
            file.write(np.zeros(1, np.int64).tobytes())
        texts = chain.from_iterable(_texts(corpus, problems, documents) for corpus in corpora)
        while chunk := list(islice(texts, CHUNK)):
            last = np.array([ended for _, ended in chunk])
            for side in range(sides):
                ids = list(tokenizer.encode_batch([fields[side] for fields, _ in chunk]))
                stops = ends[side] + np.cumsum([len(each) for each in ids], dtype=np.int64)
                ends[side] = int(stops[-1])
                token_files[side].write(np.fromiter(chain.from_iterable(ids), dtype).tobytes())
                offset_files[side].write(stops[last].tobytes())
            rows += int(last.sum())
            if labelled:
                labels += [fields[1] for fields, _ in chunk]
    if rows == 0:
        raise CorpusError(f"{corpora[0].files[0]}: not one row could be read: {dict(problems.counts) or 'it is empty'}")
    if labelled:
        classes = classes or tuple(sorted(set(labels)))
        number = {name: i for i, name in enumerate(classes)}
        for label in labels:
            if label not in number:
                raise CorpusError(f"{corpora[0].files[0]}: no class {label!r}: {did_you_mean(label, classes)}")
        (folder / "labels").write_bytes(np.array([number[label] for label in labels], np.int32).tobytes())
    info = {
        "rows": rows,
        "sides": sides,
        "dtype": dtype.name,
        "tokens": ends,
        "classes": classes,
        "problems": dict(problems.counts),
        "examples": problems.examples,
    }
    (folder / "prepared.json").write_text(json.dumps(info, indent=2) + "\n")


def _texts(corpus: Corpus, problems: Problems, documents: Documents) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The fields of each row, and whether a sequence ends with it."""
    rows = corpus.rows(problems)
    if corpus.sides > 1:
        return ((row.fields, True) for row in rows)
    if documents == "line":
        return ((row.fields, True) for row in rows if row.fields[0].strip())
    return _joined((row.fields[0] for row in rows), documents)


def _joined(lines: Iterable[str], documents: Documents) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Lines, each with its line feed, that go on in one text until a blank one or the end of the file."""
    kept: str | None = None
    for line in lines:
        parts = documents == "blank-line" and not line.strip()
        if kept is not None:
            yield (kept,), parts
        kept = None if parts else f"{line}\n"
    if kept is not None:
        yield (kept,), True


def _existing(file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        raise CorpusError(f"{file}: there is no such file" if not path.exists() else f"{file} is no file")
    return path


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
