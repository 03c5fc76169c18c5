"""The demo's scores on Petit's held-out splits, on the terminal in short and in the run's folder in full."""

import json
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from regard.atomic_files import write_file
from regard.data.corpus import Corpus
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.evaluation.evaluate import TranslationResult, evaluate_translation, translate
from regard.evaluation.plain_dict import plain
from regard.evaluation.test_sets import Examples, read_examples, read_gold
from regard.plots.score_tables import show_translation

JSON, TABLES = "scores.json", "scores.txt"
COLUMNS = 120
"""of the tables"""


@dataclass(frozen=True)
class Tried:
    """A split, what the model wrote for it, and how good that is."""

    examples: Examples
    tags: list[list[str]]
    outputs: list[str]
    result: TranslationResult


def try_split(model: Model, name: str, petit: Path, split: str, decode: Decoding, look: bool) -> Tried:
    """Translate and score a split of Petit in the folder `petit`; `look` at the alignment of attention too."""
    examples = read_examples(Corpus((str(petit / f"{split}.fr"), str(petit / f"{split}.en"))))
    gold = read_gold(examples, None, None)
    assert gold.tags is not None  # it lies beside Petit's files
    translated = translate(name, model, examples, decode)
    result = evaluate_translation(translated, examples, gold if look else replace(gold, links=None), model)
    return Tried(examples, gold.tags, translated.outputs, result)


def write_scores(out: Path, results: dict[str, TranslationResult]) -> None:
    """All of it into the run's folder: for programs, and for people."""
    write_file(out / JSON, json.dumps(plain(results), indent=2, ensure_ascii=False) + "\n")
    text = StringIO()
    for result in results.values():
        show_translation(Console(file=text, width=COLUMNS, color_system=None), result)
        text.write("\n")
    write_file(out / TABLES, text.getvalue())
