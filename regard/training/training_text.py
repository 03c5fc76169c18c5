"""Prepares a recipe's text: writes Petit as files, trains the tokenizer, and encodes training and validation text.

What takes long is cached in a folder for the next run, under a name derived from its inputs.
"""

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from regard import __version__
from regard.atomic_files import file_digest, new_folder
from regard.data.bpe_dropout import add_bpe_variants
from regard.data.corpus import SKIP_IN_TRAINING, Corpus, CorpusProblems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tagged_text import TaggedSentence, tagged_sentences
from regard.data.token_bytes import REPLACEMENT_CHARACTER
from regard.data.tokenized_corpus import (
    NO_LABEL,
    DocumentBoundary,
    TokenizedCorpus,
    corpus_format,
    rows_with_ends,
    tokenize_corpora,
)
from regard.data.tokenizer import MASK, Tokenizer
from regard.data.tokenizer_pair import TokenizerPair
from regard.data.tokenizer_training import train_tokenizer
from regard.errors import RegardError
from regard.petit.corpus_files import write_petit
from regard.training.recipe import DataSection, TokenizerSection

PETIT_SEED = 0
"""Seed of Petit's text, independent of `train.seed`: runs with different seeds use the same text."""
PETIT_FORMAT = 2
"""Version of the cached files, incremented when files are added."""
NO_PHENOMENON = "plain"
"""The class of a sentence of Petit without any phenomenon."""
PROMPT_COUNT, PASSAGE_TOKENS, MAX_PROMPT_CHARS = 8, 256, 120
"""Number of prompts taken from a language model's text, tokens of each passage, and maximum characters of a prompt."""


@dataclass(frozen=True)
class TrainingText:
    """The encoded training text and validation text."""

    train: TokenizedCorpus
    validation: TokenizedCorpus | None
    examples: list[tuple[str, str]]
    """The validation text: source and reference, text and class, or a prompt and its continuation."""
    sentences: list[TaggedSentence] = field(default_factory=list)
    """The validation text of tagging."""


def petit_files(data: DataSection, cache: Path) -> DataSection:
    """Petit as files, with its dev split as validation text.

    Language models train on the French side: no French sentence is in two splits, while two of them may have the same
    English translation. The class of a sentence is its rarest phenomenon: "Marie ne leur donne jamais de bijoux" has
    three, and its class is negative-de. A model must find all of them and know which is the rarest, of about 40. Tags
    are the parts of speech of French words.
    """
    folder = cache / f"petit-{__version__}-{PETIT_FORMAT}-{data.petit}-{PETIT_SEED}"
    if not folder.is_dir():
        with new_folder(folder, keep_existing=True) as temporary:  # another run may write the same files
            write_petit(data.petit, temporary / "text", PETIT_SEED, splits=("train", "dev"))
            _write_rarest(temporary / "text")
    sides = {
        "translation": ("fr", "en"),
        "language": ("fr",),
        "classification": ("fr", "rarest"),
        "masked": ("fr",),
        "tagging": ("conll",),
    }[data.task]
    train, dev = (
        Corpus(tuple(str(folder / "text" / f"{split}.{side}") for side in sides)) for split in ("train", "dev")
    )
    # Bad lines are skipped, because a class may be missing from the training text.
    return replace(data, petit=0, train=(train,), validation=dev, skip_bad=True)


def petit_test_files(cache: Path) -> Path:
    """The folder with Petit's test splits, which training does not read."""
    folder = cache / f"petit-{__version__}-test-{PETIT_SEED}"
    if not folder.is_dir():
        with new_folder(folder, keep_existing=True) as temporary:  # another process may write the same files
            write_petit(0, temporary / "text", PETIT_SEED, splits=("test", "compositional"))
    return folder / "text"


def _write_rarest(folder: Path) -> None:
    """Write the rarest phenomenon of each sentence, by counts in the training text, to `SPLIT.rarest`."""
    tags = {split: [line.split() for line in _lines(folder / f"{split}.tags")] for split in ("train", "dev")}
    counts = Counter(chain.from_iterable(tags["train"]))
    for split, sentences in tags.items():
        rarest = (rarest_phenomenon(sentence, counts) for sentence in sentences)
        (folder / f"{split}.rarest").write_text("".join(f"{tag}\n" for tag in rarest), encoding="utf-8")


def rarest_phenomenon(tags: Iterable[str], counts: Mapping[str, int]) -> str:
    """The class of a sentence of Petit with these tags: the one with the lowest count; tags without one are ignored."""
    return min((tag for tag in tags if tag in counts), key=lambda tag: (counts[tag], tag), default=NO_PHENOMENON)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def trained_tokenizer(data: DataSection, section: TokenizerSection, cache: Path) -> Tokenizer:
    """A tokenizer trained on all training text, including what is held out; cached from an earlier run if possible.

    If the recipe asks for separate ones, the source and the target each get a tokenizer trained on their side.
    """
    if section.separate:
        return TokenizerPair(*(_trained_tokenizer(data, section, cache, side) for side in (0, 1)))
    return _trained_tokenizer(data, section, cache)


def _trained_tokenizer(
    data: DataSection, section: TokenizerSection, cache: Path, side: int | None = None
) -> HuggingFaceTokenizer:
    """A tokenizer trained on one side of the text or, by default, on all of it."""
    origin: dict[str, Any] = {
        "library": tokenizers.__version__,
        "files": [[(file_digest(Path(file)), Path(file).suffix) for file in corpus.files] for corpus in data.train],
        "read": [corpus_format(corpus) for corpus in data.train],
        "times": [tokenizer_times(corpus) for corpus in data.train],
        "data": [data.task, data.documents, data.skip_bad],
        "tokenizer": {"kind": section.kind, "vocab_size": section.vocab_size},
    }
    if side is not None:
        origin["side"] = side
    folder = cache / "tokenizers" / hashlib.sha256(json.dumps(origin).encode()).hexdigest()[:24]
    if not folder.is_dir():
        with new_folder(folder, keep_existing=True) as temporary:  # another run may train the same tokenizer
            texts, has_mask = _training_texts(data, side), data.task == "masked"
            train_tokenizer(texts, section.vocab_size, section.kind, has_mask).save(temporary)
    return HuggingFaceTokenizer.load(folder)


def _training_texts(data: DataSection, side: int | None = None) -> Iterator[str]:
    """Every text of the training files, of one side or of all, without classes."""
    if data.task == "tagging":
        for corpus in _repeated(data.train):
            yield from (
                " ".join(sentence.words)
                for sentence in tagged_sentences(corpus, CorpusProblems(data.skip_bad, SKIP_IN_TRAINING))
            )
        return
    sides = slice(1 if data.task == "classification" else None) if side is None else slice(side, side + 1)
    for corpus in _repeated(data.train):
        for fields, _ in rows_with_ends(corpus, CorpusProblems(data.skip_bad, SKIP_IN_TRAINING), data.documents):
            yield from fields[sides]


def _repeated(corpora: Iterable[Corpus]) -> Iterator[Corpus]:
    """Each corpus as often as the tokenizer reads it."""
    for corpus in corpora:
        yield from repeat(corpus, tokenizer_times(corpus))


def tokenizer_times(corpus: Corpus) -> int:
    """How often a tokenizer reads a corpus: as often as an epoch does, rounded, and at least once."""
    return max(1, round(corpus.times))


def prepared_text(
    data: DataSection,
    tokenizer: Tokenizer,
    cache: Path,
    problems: CorpusProblems,
    dropout: float = 0.0,
    seed: int = 0,
    validates: bool = True,
) -> TrainingText:
    """The encoded text, split into training and validation, with BPE dropout in the training text if requested.

    A process that does not validate needs no validation text in words: to find what is held out, all of it is read.
    """
    text = _parts(data, tokenizer, cache, problems, validates)
    text = replace(text, train=replace(text.train, times=corpus_times(data, text.train)))
    return replace(text, train=add_bpe_variants(text.train, tokenizer, dropout, seed=seed)) if dropout else text


def corpus_times(data: DataSection, train: TokenizedCorpus) -> tuple[float, ...]:
    """How often each corpus is used in an epoch: as its `times` say, or so that a share is its size^(1 / temperature).

    With a temperature the largest corpus is used once, and the others more often.
    """
    if data.temperature == 1:
        return tuple(corpus.times for corpus in data.train)
    sizes = [int(size) for size in np.diff(train.corpus_ends, prepend=0)]
    return tuple((max(sizes) / size) ** (1 - 1 / data.temperature) if size else 1.0 for size in sizes)


def _parts(
    data: DataSection, tokenizer: Tokenizer, cache: Path, problems: CorpusProblems, validates: bool
) -> TrainingText:
    """The encoded text, split into training and validation."""
    options: dict[str, Any] = {
        "documents": data.documents,
        "labelled": data.task == "classification",
        "tagged": data.task == "tagging",
    }
    train = tokenize_corpora(data.train, tokenizer, cache / "prepared", problems, **options)
    if data.validation is not None:
        validation = tokenize_corpora(
            [data.validation], tokenizer, cache / "prepared", problems, classes=train.classes, **options
        )
    elif data.held_out:
        train, validation = split(train, data.held_out, data.documents)
    else:
        return TrainingText(train, None, [])
    if not validates:
        return TrainingText(train, validation, [])
    if data.task == "language":
        return TrainingText(train, validation, _prompts(validation, tokenizer))
    corpora = data.train if data.validation is None else (data.validation,)
    if data.task == "tagging":
        known = () if data.validation is None else train.classes
        read = (tagged_sentences(corpus, CorpusProblems(data.skip_bad, SKIP_IN_TRAINING), known) for corpus in corpora)
        return TrainingText(train, validation, [], list(deque(chain.from_iterable(read), maxlen=len(validation))))
    if data.task == "masked":
        return TrainingText(train, validation, _texts_with_a_mask(corpora, len(validation), data.skip_bad))
    return TrainingText(train, validation, _last_rows(corpora, len(validation), data.skip_bad, train.classes))


def split(
    data: TokenizedCorpus, share: float, documents: DocumentBoundary = "line"
) -> tuple[TokenizedCorpus, TokenizedCorpus]:
    """The text without its last share, and that share: in complete examples or, if files are documents, in tokens."""
    anywhere = documents == "file"
    total = len(data.tokens[0]) if anywhere else len(data)
    cut = int(total * (1 - share))
    if not 0 < cut < total:
        unit = "tokens" if anywhere else "examples"
        advice = "more text is needed"
        if documents == "blank-line":
            advice = "no blank lines separate more texts. Set data.documents to file (one long text) or line"
        raise RegardError(f"data.held_out={share} of {total} {unit} leaves one part empty: {advice}")
    if anywhere:
        (offsets,) = data.offsets
        parts = np.append(offsets[offsets < cut], cut), np.insert(offsets[offsets > cut], 0, cut)
        cut_document = int(np.searchsorted(offsets, cut, "right")) - 1
        return _part(data, (parts[0],), slice(None)), _part(data, (parts[1],), slice(cut_document, None))
    first, last = slice(None, cut), slice(cut, None)
    return (
        _part(data, tuple(offsets[: cut + 1] for offsets in data.offsets), first),
        _part(data, tuple(offsets[cut:] for offsets in data.offsets), last),
    )


def _part(data: TokenizedCorpus, offsets: Sequence[Any], rows: slice) -> TokenizedCorpus:
    """The examples between these offsets."""
    tokens = tuple(ids[starts[0] : starts[-1]] for ids, starts in zip(data.tokens, offsets, strict=True))
    labels = None if data.labels is None else data.labels[rows]
    first, count = rows.start or 0, len(offsets[0]) - 1
    ends = tuple(min(max(0, end - first), count) for end in data.corpus_ends)
    word_labels = None if data.word_labels is None else data.word_labels[offsets[0][0] : offsets[0][-1]]
    moved = tuple(starts - starts[0] if starts[0] else starts for starts in offsets)  # without a copy where possible
    return replace(data, tokens=tokens, offsets=moved, labels=labels, word_labels=word_labels, corpus_ends=ends)


def _last_rows(
    corpora: Sequence[Corpus], count: int, skip_bad: bool, classes: tuple[str, ...]
) -> list[tuple[str, str]]:
    """The last rows of the files: those that `split` holds out, or all of them."""
    rows = chain.from_iterable(corpus.rows(CorpusProblems(skip_bad, SKIP_IN_TRAINING)) for corpus in corpora)
    pairs = ((row.fields[0], row.fields[1]) for row in rows)
    if classes:
        pairs = ((text, label.strip()) for text, label in pairs if label.strip() in classes)
    return list(deque(pairs, maxlen=count))


def _texts_with_a_mask(corpora: Sequence[Corpus], count: int, skip_bad: bool) -> list[tuple[str, str]]:
    """The last texts of the files, as in `_last_rows`, each with a mask for its middle word, and that word."""
    rows = chain.from_iterable(corpus.rows(CorpusProblems(skip_bad, SKIP_IN_TRAINING)) for corpus in corpora)
    texts = deque((row.fields[0] for row in rows), maxlen=count)
    examples = []
    for words in (text.split(" ") for text in texts):
        middle = len(words) // 2
        examples.append((" ".join([*words[:middle], MASK, *words[middle + 1 :]]), words[middle]))
    return examples


def _prompts(data: TokenizedCorpus, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Prompts and their continuations: the beginnings of some texts or, if there are only a few, passages of them."""
    (tokens,), (offsets,) = data.tokens, data.offsets
    starts: Iterable[int]
    if len(data) >= PROMPT_COUNT:
        starts = offsets[np.linspace(0, len(data) - 1, PROMPT_COUNT).astype(int)]
    else:
        starts = range(0, max(1, len(tokens) - PASSAGE_TOKENS), max(1, len(tokens) // PROMPT_COUNT))
    pairs = []
    for start in starts:
        stop = min(start + PASSAGE_TOKENS, offsets[np.searchsorted(offsets, start, "right")])
        text = tokenizer.decode(tokens[start:stop].tolist()).strip(REPLACEMENT_CHARACTER)
        is_within_text = start not in offsets and "\n" in text[:-1]
        pairs.append(_split_prompt(text.partition("\n")[2] if is_within_text else text))
    return [pair for pair in pairs if all(pair)]


def _split_prompt(text: str) -> tuple[str, str]:
    """A text split in two at the last space within its first third. The space goes to the second part, as in BPE."""
    third = min(MAX_PROMPT_CHARS, max(1, len(text) // 3))
    cut = max(text.rfind(" ", 1, third), text.rfind("\n", 1, third))
    cut = cut if cut > 0 else third
    return text[:cut], text[cut:]


def text_digest(text: TrainingText) -> str:
    """SHA-256 of the ids, of the offsets of the examples, and of the classes."""
    sha = hashlib.sha256()
    for part in (text.train, text.validation):
        if part is not None:
            labels = [numbers for numbers in (part.labels, part.word_labels) if numbers is not None]
            for numbers in (*part.tokens, *part.offsets, *labels):
                sha.update(f"{numbers.dtype} {len(numbers)} ".encode())
                sha.update(np.ascontiguousarray(numbers).data)
    return sha.hexdigest()


def begin_with(data: TokenizedCorpus, before: Sequence[int]) -> TokenizedCorpus:
    """The same text with these ids before each example on the first side."""
    offsets, tokens = data.offsets[0], np.asarray(data.tokens[0])
    insert_at = np.repeat(offsets[:-1], len(before))
    longer = np.insert(tokens, insert_at, np.tile(before, len(data)).astype(tokens.dtype))
    moved = offsets + len(before) * np.arange(len(offsets))
    word_labels = None if data.word_labels is None else np.insert(data.word_labels, insert_at, NO_LABEL)
    return replace(data, tokens=(longer, *data.tokens[1:]), offsets=(moved, *data.offsets[1:]), word_labels=word_labels)
