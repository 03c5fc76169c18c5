"""Tokenized corpora: memory-mapped token ids with an index, cached under a digest of their text and tokenizer.

A cache folder contains, for each side n, `n.tokens` (all sequences concatenated) and `n.offsets` (the start of each
sequence and the end of the last), `labels` for classification, `word_labels` for tagging, and `prepared.json`. A second
run with the same text and tokenizer opens the folder immediately. `NAME.parts` holds the parts that an interrupted
preparation has completed.
"""

import hashlib
import json
import shutil
from array import array
from collections.abc import Iterable, Iterator, Sequence
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
from regard.data.encoding_parts import ROWS_PER_CHUNK, EncodedFiles
from regard.data.tagged_text import tagged_sentences
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError

TOKENIZED_FORMAT = 2
"""Version of the cache format, incremented when the layout changes so that old folders are not used."""

NO_LABEL = -1
"""Class of a token that is not the first of a word."""

OFFSETS_PER_CHECK = 2**20
"""Number of offsets that are checked at a time when a folder is opened."""

DocumentBoundary = Literal["line", "blank-line", "file"]
"""What ends a document of a language model's corpus: each line, a blank line, or the end of the file."""


@dataclass(frozen=True)
class TokenizedCorpus:
    """Tokenized text. Sequence i of a side is `tokens[side][offsets[side][i] : offsets[side][i + 1]]`."""

    tokens: tuple[NDArray[np.unsignedinteger[Any]], ...]
    offsets: tuple[NDArray[np.int64], ...]
    labels: NDArray[np.int32] | None
    """For classification, the class of each sequence, as an index into `classes`."""
    classes: tuple[str, ...]
    problems: dict[str, int]
    """Number of lines skipped for each kind of problem."""
    variants: int = 1
    """Number of variants of each example: those of example i are the sequences i, i + examples, i + 2 × examples …"""
    word_labels: NDArray[np.int32] | None = None
    """For tagging, the class of each token: that of a word at its first token, NO_LABEL at all others."""
    corpus_ends: tuple[int, ...] = ()
    """Number of examples up to the end of each corpus; empty if there is only one."""
    times: tuple[float, ...] = ()
    """How often the examples of each corpus are used in an epoch; empty if all are used once."""

    @property
    def examples(self) -> int:
        """The number of examples, not counting variants."""
        return len(self) // self.variants

    def __len__(self) -> int:
        return len(self.offsets[0]) - 1

    def lengths(self, side: int) -> NDArray[np.int64]:
        """Return the number of tokens of each sequence of a side."""
        return np.diff(self.offsets[side])

    def lengths_of(self, side: int, sequences: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of tokens of some sequences of a side."""
        offsets = np.asarray(self.offsets[side])
        lengths: NDArray[np.int64] = offsets[sequences + 1] - offsets[sequences]
        return lengths

    def sequence(self, side: int, i: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of one sequence."""
        return self.tokens[side][self.offsets[side][i] : self.offsets[side][i + 1]]


def tokenize_corpora(
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    cache: Path | str,
    problems: CorpusProblems,
    documents: DocumentBoundary = "line",
    labelled: bool = False,
    classes: Sequence[str] = (),
    tagged: bool = False,
) -> TokenizedCorpus:
    """Tokenize the corpora as one, or open the result of an earlier call from the folder `cache`.

    With `labelled` the second side is a class: one of `classes`, or any class if none are given. With `tagged` every
    word has such a class: see `regard.data.tagged_text`.
    """
    if isinstance(corpora, Corpus):
        raise CorpusError("corpora must be a list, not a single corpus")
    if not corpora:
        raise CorpusError("no corpus given: name at least one")
    sides = {corpus.sides for corpus in corpora}
    if len(sides) != 1:
        raise CorpusError(f"all corpora must have the same number of sides: these have {sorted(sides)}")
    if labelled and sides != {2}:
        raise CorpusError(f"classification needs two fields, a text and its class: these corpora have {sides.pop()}")
    if len(set(classes)) != len(classes):
        raise CorpusError(f"duplicate class: {list(classes)}")
    origin = {
        "version": TOKENIZED_FORMAT,
        "files": _digests(corpora),
        "read": [corpus_format(corpus) for corpus in corpora],
        "skip": problems.skip,
        "tokenizer": tokenizer.digest,
        "documents": documents if sides == {1} else None,
        "classes": list(classes) if labelled or tagged else None,
    }
    if tagged:
        origin["tagged"] = True
    name = hashlib.sha256(json.dumps(origin).encode()).hexdigest()[:24]
    folder, parts = Path(cache) / name, Path(cache) / f"{name}.parts"
    if not folder.is_dir():
        with new_folder(folder, keep_existing=True) as temporary:  # another run may be writing the same folder
            found = CorpusProblems(problems.skip, problems.skip_option)
            if tagged:
                _write_tagged(temporary, corpora, tokenizer, found, tuple(classes))
            else:
                _write(temporary, parts, corpora, tokenizer, found, documents, labelled, tuple(classes))
            if _digests(corpora) != origin["files"]:
                shutil.rmtree(parts, ignore_errors=True)
                raise CorpusError(
                    f"{corpora[0].files[0]} (or another file of the corpus) changed while it was read: start again"
                )
        shutil.rmtree(parts, ignore_errors=True)
    data, examples = open_tokenized_corpus(folder)
    problems.merge(data.problems, examples)
    return data


def open_tokenized_corpus(folder: Path) -> tuple[TokenizedCorpus, dict[str, list[str]]]:
    """Open a folder that `tokenize_corpora` wrote; return its data and example locations of skipped lines."""
    try:
        info = json.loads((folder / "prepared.json").read_text())
        sides = range(info["sides"])
        offsets = tuple(_mapped(folder / f"{side}.offsets", np.int64) for side in sides)
        tokens = tuple(_mapped(folder / f"{side}.tokens", np.dtype(info["dtype"])) for side in sides)
        labels, word_labels = (
            _mapped(folder / name, np.int32) if (folder / name).exists() else None for name in ("labels", "word_labels")
        )
        is_consistent = all(
            len(offset) == info["rows"] + 1 and offset[-1] == len(ids) and _never_falls(offset)
            for offset, ids in zip(offsets, tokens, strict=True)
        )
        ends = tuple(info["corpus_ends"])
        is_consistent &= list(ends) == sorted(ends) and ends[-1] == info["rows"]
        is_consistent &= len(info["classes"]) == 0 or (labels is None) != (word_labels is None)
        is_consistent &= labels is None or len(labels) == info["rows"]
        is_consistent &= word_labels is None or len(word_labels) == len(tokens[0])
        if not is_consistent:
            raise RegardError("sizes do not match")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RegardError(
            f"{folder} is damaged ({error}): delete it, and the corpus will be tokenized again"
        ) from error
    classes, problems = tuple(info["classes"]), info["problems"]
    data = TokenizedCorpus(tokens, offsets, labels, classes, problems, word_labels=word_labels, corpus_ends=ends)
    return data, info["examples"]


def _write(
    folder: Path,
    parts: Path,
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    problems: CorpusProblems,
    documents: DocumentBoundary,
    labelled: bool,
    classes: tuple[str, ...],
) -> None:
    """Tokenize and write in chunks, so that memory does not grow with the corpus; `parts` is for complete parts."""
    sides = 1 if labelled else corpora[0].sides
    ids = max(tokenizer.source_side.size, tokenizer.target_side.size)
    dtype = np.dtype(np.uint16 if ids <= 2**16 else np.uint32)
    labels = ClassNumbers(classes)
    encoders = [tokenizer.encode_batch, tokenizer.encode_targets][:sides]
    files, corpus_ends = EncodedFiles(folder, encoders, dtype), []
    read = labels.texts if labelled else partial(rows_with_ends, documents=documents)
    for number, corpus in enumerate(corpora):
        files.add(iter(read(corpus, problems)), parts, f"{number:03d}")
        corpus_ends.append(files.sequences)
    if labelled:
        classes, numbers = labels.sorted()
        (folder / "labels").write_bytes(numbers.tobytes())
    info = {"sides": sides, "dtype": dtype.name, "classes": classes, "corpus_ends": corpus_ends}
    _write_info(folder, corpora, problems, files.sequences, info)


def _write_tagged(
    folder: Path, corpora: Sequence[Corpus], tokenizer: Tokenizer, problems: CorpusProblems, classes: tuple[str, ...]
) -> None:
    """Tokenize words and write them with their labels in chunks."""
    dtype = np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)
    labels = ClassNumbers(classes)
    offsets, corpus_ends = array("q", [0]), []
    with (folder / "0.tokens").open("wb") as file:
        for corpus in corpora:
            sentences = tagged_sentences(corpus, problems, classes)
            while chunk := list(islice(sentences, ROWS_PER_CHUNK)):
                encoded = tokenizer.encode_words([sentence.words for sentence in chunk])
                for sentence, words in zip(chunk, encoded, strict=True):
                    for label, ids in zip(sentence.labels, words, strict=True):
                        number = labels.number_of(label)
                        labels.seen.extend([number, *[NO_LABEL] * (len(ids) - 1)][: len(ids)])
                    file.write(np.fromiter(chain.from_iterable(words), dtype).tobytes())
                    offsets.append(len(labels.seen))
            corpus_ends.append(len(offsets) - 1)
    (folder / "0.offsets").write_bytes(np.asarray(offsets, np.int64).tobytes())
    names, numbers = labels.sorted()
    (folder / "word_labels").write_bytes(numbers.tobytes())
    info = {"sides": 1, "dtype": dtype.name, "classes": names, "corpus_ends": corpus_ends}
    _write_info(folder, corpora, problems, len(offsets) - 1, info)


def _write_info(
    folder: Path, corpora: Sequence[Corpus], problems: CorpusProblems, rows: int, info: dict[str, Any]
) -> None:
    if rows == 0:
        raise CorpusError(
            f"{corpora[0].files[0]}: no row could be read: {dict(problems.counts) or 'the file is empty'}"
        )
    info |= {"rows": rows, "problems": dict(problems.counts), "examples": problems.examples}
    (folder / "prepared.json").write_text(json.dumps(info, indent=2) + "\n")


class ClassNumbers:
    """Numbers the classes while reading: four bytes per row or, for tagging, per token."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.closed = bool(classes)
        self.number = {name: i for i, name in enumerate(classes)}
        self.seen = array("i")

    def texts(self, corpus: Corpus, problems: CorpusProblems) -> Iterator[tuple[tuple[str, ...], bool]]:
        """Yield the text of each row, and number its class; record an unknown class as a problem."""
        for row in corpus.rows(problems):
            label = row.fields[1].strip()
            if self.closed and label not in self.number:
                detail = f"{label!r}: {did_you_mean(label, self.number)}"
                problems.record("unknown class", corpus.where(row, 1), detail)
                continue
            self.seen.append(self.number_of(label))
            yield row.fields[:1], True

    def number_of(self, label: str) -> int:
        """Return the number of a class, which is a new one if it was not seen before."""
        return self.number.setdefault(label, len(self.number))

    def sorted(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """Return the classes, as given or sorted by name, and the index of each one seen; NO_LABEL stays."""
        names = tuple(self.number) if self.closed else tuple(sorted(self.number))
        index = {name: i for i, name in enumerate(names)}
        indices = np.array([*(index[name] for name in self.number), NO_LABEL], np.int32)  # [-1] is NO_LABEL
        return names, indices[np.asarray(self.seen)]


def rows_with_ends(
    corpus: Corpus, problems: CorpusProblems, documents: DocumentBoundary
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the fields of each row, and whether a sequence ends with it."""
    rows = corpus.rows(problems)
    if corpus.sides > 1:
        return ((row.fields, True) for row in rows)
    if documents == "line":
        return ((row.fields, True) for row in rows if row.fields[0].strip())
    return _join_lines((row.fields[0] for row in rows), documents)


def _join_lines(lines: Iterable[str], documents: DocumentBoundary) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield lines with their line feeds, and whether a document ends with the line."""
    pending: str | None = None
    for line in lines:
        is_boundary = documents == "blank-line" and not line.strip()
        if pending is not None:
            yield (pending,), is_boundary
        pending = None if is_boundary else f"{line}\n"
    if pending is not None:
        yield (pending,), True


def corpus_format(corpus: Corpus) -> list[Any]:
    """Return what determines how the files of a corpus are read, for the names of cached folders."""
    return [corpus.columns, corpus.keys, *([corpus.tag] if corpus.tag else [])]


def _digests(corpora: Sequence[Corpus]) -> list[list[tuple[str, str]]]:
    """Return the digest and the suffix, which determines the format, of each file."""
    require_files(file for corpus in corpora for file in corpus.files)
    return [[(file_digest(Path(file)), Path(file).suffix) for file in corpus.files] for corpus in corpora]


def _never_falls(offsets: NDArray[np.int64]) -> bool:
    """Return whether no offset is smaller than the one before it, reading them in parts."""
    parts = (offsets[start : start + OFFSETS_PER_CHECK + 1] for start in range(0, len(offsets), OFFSETS_PER_CHECK))
    return all((part[1:] >= part[:-1]).all() for part in parts)


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
