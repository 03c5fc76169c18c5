"""The demo's scores on Petit's held-out splits, on the terminal in short and in the run's folder in full.

Dimensions: L layers, H heads, T target pieces, S source pieces.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from regard.decode.attend import attend
from regard.decode.options import Decoding
from regard.decode.translate import tokenizer_of
from regard.evaluate.alignment import (
    AlignmentScores,
    Attended,
    Links,
    alignment_scores,
    piece_words,
    row_words,
    source_pieces,
)
from regard.evaluate.report import plain
from regard.evaluate.run import MOMENTS, Moment, TranslationResult, evaluate_translation, has_cross_attention, translate
from regard.evaluate.sets import Examples, read_examples, read_gold
from regard.store import Stored
from regard.text.corpus import Corpus
from regard.train.log import write_whole
from regard.view.scores import show_translation

JSON, TABLES = "scores.json", "scores.txt"
COLUMNS = 120
"""of the tables"""
LOOKED_AT = 200
"""sentences by which a decoder's attention is judged: it is asked for one by one"""


@dataclass(frozen=True)
class Tried:
    """A split, what the model wrote for it, and how good that is."""

    examples: Examples
    tags: list[list[str]]
    outputs: list[str]
    result: TranslationResult


def try_split(model: Stored, name: str, petit: Path, split: str, decode: Decoding, look: bool) -> Tried:
    """Translate and score a split of Petit in the folder `petit`; `look` at the alignment of attention too."""
    examples = read_examples(Corpus((str(petit / f"{split}.fr"), str(petit / f"{split}.en"))))
    gold = read_gold(examples, None, None)
    assert gold.tags is not None  # it lies beside Petit's files
    assert gold.links is not None
    translated = translate(name, model, examples, decode)
    result = evaluate_translation(translated, examples, gold if look else replace(gold, links=None), model)
    if look and not has_cross_attention(model):
        result = replace(result, alignment=decoder_alignment(model, examples, gold.links))
    return Tried(examples, gold.tags, translated.outputs, result)


def decoder_alignment(model: Stored, examples: Examples, links: list[Links]) -> dict[str, AlignmentScores]:
    """What a decoder's target looks at in its source, which stands before it in the same row, against gold."""
    return {moment: alignment_scores(_target_to_source(model, examples, links, moment)) for moment in MOMENTS}


def _target_to_source(model: Stored, examples: Examples, links: list[Links], moment: Moment) -> Iterator[Attended]:
    tokenizer = tokenizer_of(model)
    sources, targets = examples.sources[:LOOKED_AT], examples.beside[0]
    for source, target, gold in zip(sources, targets, links, strict=False):
        words = source_pieces(tokenizer, source)
        weights = attend(model, source, target).weights["decoder"]  # [L, H, S + T, S + T]
        rows = weights[:, :, len(words) :, : len(words)]  # from the separator on: [L, H, T, S]
        yield Attended(rows.numpy(), row_words(piece_words(tokenizer, target), moment), words, gold)


def write_scores(out: Path, results: dict[str, TranslationResult]) -> None:
    """All of it into the run's folder: for programs, and for people."""
    write_whole(out / JSON, json.dumps(plain(results), indent=2, ensure_ascii=False) + "\n")
    text = StringIO()
    for result in results.values():
        show_translation(Console(file=text, width=COLUMNS, color_system=None), result)
        text.write("\n")
    write_whole(out / TABLES, text.getvalue())
