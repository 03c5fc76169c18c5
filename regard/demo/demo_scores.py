"""Scores of the demo's model on Petit's held-out splits, written to the run's folder."""

import json
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from regard.atomic_files import write_file
from regard.data.corpus import Corpus
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.evaluation.evaluate import evaluate_translation, translate_examples
from regard.evaluation.result_json import to_json_value
from regard.evaluation.results import TranslationResult
from regard.evaluation.test_sets import Examples, read_examples, read_gold
from regard.petit import PHENOMENA, spans
from regard.petit.gold_files import find_gold_files
from regard.plots.score_tables import show_translation

JSON_FILE, TABLES_FILE = "scores.json", "scores.txt"
TABLES_WIDTH = 120
"""Number of columns of the tables that are written."""


@dataclass(frozen=True)
class SplitResult:
    """A held-out split with the model's outputs and scores."""

    examples: Examples
    tags: list[list[str]]
    outputs: list[str]
    result: TranslationResult


def evaluate_split(model: Model, name: str, petit: Path, split: str, decode: Decoding, align: bool) -> SplitResult:
    """Translate and score a split of Petit in the folder `petit`; with `align`, also score the attention."""
    examples = read_examples(Corpus((str(petit / f"{split}.fr"), str(petit / f"{split}.en"))))
    tags, links = find_gold_files(examples.files)
    gold = read_gold(examples, tags, links, PHENOMENA, spans)
    assert gold.tags is not None  # Petit's files always have it
    translated = translate_examples(name, model, examples, decode)
    result = evaluate_translation(translated, examples, gold if align else replace(gold, links=None), model)
    return SplitResult(examples, gold.tags, translated.outputs, result)


def write_scores(out: Path, results: dict[str, TranslationResult]) -> None:
    """Write all scores into the run's folder, as JSON and as tables."""
    write_file(out / JSON_FILE, json.dumps(to_json_value(results), indent=2, ensure_ascii=False) + "\n")
    text = StringIO()
    for result in results.values():
        show_translation(Console(file=text, width=TABLES_WIDTH, color_system=None), result, PHENOMENA)
        text.write("\n")
    write_file(out / TABLES_FILE, text.getvalue())
