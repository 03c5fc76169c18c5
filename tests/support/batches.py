"""Small tokenized corpora and batches of every task."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from regard.data import batches as lay
from regard.data.batches import Batch, Batches
from regard.data.language_batches import language_block_batches, language_document_batches
from regard.data.masking import Masking
from regard.data.tokenized_corpus import TokenizedCorpus

END, SEP, MASK, PAD = 0, 1, 98, 99


def corpus_of(*sides: list[list[int]], labels: list[int] | None = None) -> TokenizedCorpus:
    """Return a tokenized corpus with these ids."""
    tokens = tuple(np.array([i for sequence in side for i in sequence], np.uint16) for side in sides)
    offsets = tuple(np.cumsum([0, *(len(sequence) for sequence in side)]) for side in sides)
    known = None if labels is None else np.array(labels, np.int32)
    return TokenizedCorpus(tokens, offsets, known, (), {})


def random_pairs(count: int = 200, seed: int = 0) -> tuple[list[list[int]], list[list[int]]]:
    """Return random pairs; the first id of each side identifies the pair."""
    chance = np.random.default_rng(seed)
    return tuple(  # type: ignore[return-value]
        [[2 + i % 90, *chance.integers(2, 90, chance.integers(0, 12)).tolist()] for i in range(count)] for _ in range(2)
    )


SOURCES, TARGETS = random_pairs()
DATA = corpus_of(SOURCES, TARGETS)
TEXT = corpus_of(TARGETS)
CLASSES = corpus_of(SOURCES, labels=[i % 3 for i in range(200)])
TAGGED = replace(TEXT, classes=("A", "B", "C"), word_labels=(np.arange(len(TEXT.tokens[0])) % 4 - 1).astype(np.int32))
MASKING = Masking(MASK, range(2, 90))
TASKS: dict[str, Callable[..., Batches]] = {
    "translation": lambda **k: lay.translation_batches(DATA, END, PAD, 64, **k),
    "decoder": lambda **k: lay.decoder_translation_batches(DATA, END, SEP, PAD, 64, **k),
    "packed flat": lambda **k: lay.packed_translation_batches(DATA, END, PAD, 64, **k),
    "packed rows": lambda **k: lay.packed_translation_batches(DATA, END, PAD, 64, row=32, **k),
    "packed decoder": lambda **k: lay.packed_decoder_translation_batches(
        DATA, END, SEP, PAD, 64, row=32, prefix=True, **k
    ),
    "blocks": lambda **k: language_block_batches(TEXT, END, 16, 64, **k),
    "documents": lambda **k: language_document_batches(TEXT, END, PAD, 16, 64, **k),
    "classification": lambda **k: lay.classification_batches(CLASSES, END, PAD, 64, **k),
    "tagging": lambda **k: lay.tagging_batches(TAGGED, END, PAD, 64, **k),
    "packed tagging": lambda **k: lay.packed_tagging_batches(TAGGED, END, PAD, 64, row=32, **k),
    "masked": lambda **k: lay.masked_batches(TEXT, END, PAD, MASKING, 64, **k),
    "packed masked": lambda **k: lay.packed_masked_batches(TEXT, END, PAD, MASKING, 64, row=32, **k),
}


def same_batch(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__]
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)
