"""The demo's story, chapter by chapter."""

import shlex
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from regard.decoding.text_model import Model
from regard.demo.attention_chapter import attention_chapter
from regard.demo.demo_run import DECODER_ONLY, ENCODER_DECODER, RunState, find_run, train_with_display
from regard.demo.demo_scores import TABLES_FILE, SplitResult, evaluate_split, write_scores
from regard.demo.narrator import Narrator, bar
from regard.evaluation.proportions import Proportion
from regard.formatting import duration
from regard.interop.load import load
from regard.models import DEFAULT_MODEL, bundled_folder, bundled_models
from regard.petit import PHENOMENA
from regard.plots.heat_map import shorten_to_width
from regard.plots.run_lines import shell_argument
from regard.plots.run_report import write_report
from regard.plots.score_tables import plain_table
from regard.training.events import Sample, Validated
from regard.training.metrics_log import read_metrics
from regard.training.recipe import Recipe
from regard.training.training_setup import cache_folder
from regard.training.training_text import petit_files, petit_test_files

REAL_SENTENCES = (
    "Il fait froid ce matin, prends ton manteau.",
    "Je ne sais pas où j'ai mis mes clés.",
    "Est-ce que tu peux m'aider, s'il te plaît ?",
    "Nous avons mangé dans un petit restaurant près de la gare.",
    "Elle m'a dit qu'elle viendrait demain.",
    "Un chien brun court sur la plage.",
)
EXAMPLE_PAIRS = 4
"""Number of Petit's sentence pairs that are shown."""
EXAMPLE_WIDTH = 27
"""Number of columns for one of these sentences, including the space after it."""
PHENOMENON_WIDTH = 46
"""Maximum number of columns that the name, bar and accuracy of a phenomenon take."""
MAX_TRANSLATIONS_SHOWN = 6
"""Number of steps at which the translation of one sentence is shown."""
HARDEST_SHOWN, EASIEST_SHOWN = 5, 3
"""Number of phenomena that are shown from either end."""
MIN_SENTENCES_PER_PHENOMENON = 20
"""Number of sentences below which the accuracy of a phenomenon is not shown."""


def demo(
    console: Console,
    out: Path | None = None,
    decoder_only: bool = False,
    changes: Sequence[str] = (),
    commands: Collection[str] = (),
) -> int | None:
    """Train a translator on Petit, score it and show its attention; returns the signal that interrupted it, if any.

    A demo that already exists in `out` is resumed or replayed. `changes` override settings of its recipe. The last
    chapter suggests those of the `commands` that exist.
    """
    begin = time.monotonic()
    variant = DECODER_ONLY if decoder_only else ENCODER_DECODER
    out = variant.out if out is None else out
    recipe, state = find_run(variant.read(changes), out)
    narrator = Narrator(console)
    console.print(Text.assemble(("Regard", "bold"), ": the Transformer of “Attention Is All You Need” at work"))
    petit = _data_chapter(narrator, recipe)
    if signal := _training_chapter(narrator, recipe, out, state, variant.description):
        narrator.paragraph("Interrupted and saved. To resume:")
        narrator.unbroken_line(f"  {_resume_command(variant.out, out, decoder_only)}", "cyan")
        return signal
    _progress_chapter(narrator, out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(out, device)
    test_split = _scores_chapters(narrator, model, recipe, petit, out)
    sentence = attention_chapter(narrator, model, test_split, out)
    _real_french_chapter(narrator, device)
    can_export = not model.config.prefix  # no other engine supports a prefix mask
    usable = [name for name in commands if name != "export" or can_export]
    _commands_chapter(narrator, out, sentence, usable)
    narrator.gap()
    narrator.paragraph(f"The demo took {duration(time.monotonic() - begin)}.", "dim")
    return None


def _resume_command(default: Path, out: Path, decoder_only: bool) -> str:
    """The command that resumes this demo."""
    parts = ["regard demo"]
    if decoder_only:
        parts.append("--decoder-only")
    if out != default:
        parts.append(f"--out {shlex.quote(str(out))}")
    return " ".join(parts)


def _data_chapter(narrator: Narrator, recipe: Recipe) -> Path:
    """Write Petit to the cache if necessary, and show some of it; returns the folder of its test splits."""
    narrator.chapter(
        "The data",
        f"Petit is a small French–English world that Regard generates: {recipe.data.petit:,} sentence pairs for "
        f"training, and others held out for tests. It covers {len(PHENOMENA)} grammatical phenomena and knows which "
        "words are translations of each other. Every French sentence has exactly one correct translation, so a perfect "
        "translator scores 100.",
    )
    with narrator.waiting("writing Petit …"):
        folder = Path(petit_files(recipe.data, cache_folder()).train[0].files[0]).parent
        tests = petit_test_files(cache_folder())
    narrator.gap()
    table = plain_table("", "", "")
    for french, english, tags in _example_pairs(folder):
        phenomena = shorten_to_width(", ".join(tags), narrator.width - 2 * EXAMPLE_WIDTH)
        table.add_row(Text(french), Text(english, "bold"), Text(phenomena, "dim"))
    narrator.show(table)
    return tests


def _example_pairs(folder: Path) -> list[tuple[str, str, list[str]]]:
    """A few short pairs, each with phenomena that the others do not have."""
    sides = ((folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("fr", "en", "tags"))
    examples: list[tuple[str, str, list[str]]] = []
    shown_tags: set[str] = set()
    for french, english, tags in zip(*sides, strict=True):
        fits = max(len(french), len(english)) <= EXAMPLE_WIDTH - 2 and len(tags.split()) == 2
        if fits and len(examples) < EXAMPLE_PAIRS and shown_tags.isdisjoint(tags.split()):
            examples.append((french, english, tags.split()))
            shown_tags.update(tags.split())
    return examples


def _training_chapter(narrator: Narrator, recipe: Recipe, out: Path, state: RunState, description: str) -> int | None:
    """Train or resume, or report that the demo is already trained."""
    narrator.chapter(
        "Training",
        f"{description}. It starts from random weights and knows no word of either language. BLEU compares its "
        "translations of unseen sentences with the correct ones: it rises as the loss falls.",
    )
    if state == "done":
        narrator.paragraph(
            f"{out} holds a finished demo, which is replayed. To train again, choose another folder with --out."
        )
        return None
    if state == "begun":
        narrator.paragraph(f"{out} holds an interrupted demo, which is resumed.")
    narrator.gap()
    return train_with_display(recipe, out, state, narrator.console)


def _progress_chapter(narrator: Narrator, out: Path) -> None:
    """Show how the translation of one validation sentence changed during training."""
    validated = [event for event in read_metrics(out, strict=False) if isinstance(event, Validated) and event.samples]
    if not validated:
        return
    index = max(range(len(validated[-1].samples)), key=lambda i: _interest(validated, i))
    sample = validated[-1].samples[index]
    narrator.chapter("Progress", "The translation of one sentence that is not in the training data, over the steps.")
    narrator.gap()
    table = plain_table("step>", "BLEU>", sample.source, "")
    for event in _moments(validated, index):
        translation = event.samples[index]
        score = "" if event.score is None else f"{event.score:.1f}"
        table.add_row(f"{event.step:,}", score, Text(translation.output or "(empty)"), _mark(translation))
    table.add_row("", "", Text(f"correct: {sample.reference}", "dim"), "")
    narrator.show(table)


def _interest(validated: list[Validated], index: int) -> tuple[bool, int]:
    """How interesting a sample is: whether it ends up correct, and how often it changed."""
    return _is_correct(validated[-1].samples[index]), len({event.samples[index].output for event in validated})


def _moments(validated: list[Validated], index: int) -> list[Validated]:
    """The first and last validations, and evenly chosen ones between them at which the sample changed."""
    outputs = [event.samples[index].output for event in validated]
    changed = [i for i, output in enumerate(outputs) if i == 0 or output != outputs[i - 1]]
    gaps = max(1, MAX_TRANSLATIONS_SHOWN - 2)
    chosen = [changed[i * (len(changed) - 1) // gaps] for i in range(MAX_TRANSLATIONS_SHOWN - 1)]
    return [validated[i] for i in sorted({*chosen, len(validated) - 1})]


def _is_correct(sample: Sample) -> bool:
    return sample.output == sample.reference


def _mark(sample: Sample) -> Text:
    return Text("✓", "green") if _is_correct(sample) else Text("")


def _scores_chapters(narrator: Narrator, model: Model, recipe: Recipe, petit: Path, out: Path) -> SplitResult:
    """Two chapters on both held-out splits; returns the ordinary test split."""
    narrator.chapter(
        "Scores",
        "The first test has sentences that are not in the training data. The second has known words in combinations "
        "that were held out: an adjective with its noun, a verb with its object. It shows whether the model learned "
        "rules or phrases.",
    )
    splits = {}
    for split in ("test", "compositional"):
        with narrator.waiting(f"translating the {split} sentences …"):
            splits[split] = evaluate_split(model, str(out), petit, split, recipe.decode, align=split == "test")
    results = {name: split_result.result for name, split_result in splits.items()}
    write_scores(out, results)
    write_report(out, [result.scores for result in results.values()])
    narrator.gap()
    table = plain_table("", "BLEU>", "95% interval>", "exact match>")
    for name, result in zip(("new sentences", "new combinations"), results.values(), strict=True):
        assert result.tag_accuracy is not None
        bleu, exact = result.scores.bleu, result.tag_accuracy.overall
        interval = f"{bleu.low:.1f} – {bleu.high:.1f}"
        table.add_row(name, Text(f"{bleu.value:.1f}", "bold"), interval, f"{exact.correct:,} of {exact.total:,}")
    narrator.show(table)
    narrator.unbroken_line(f"{results['test'].scores.bleu.name}: {results['test'].scores.bleu.signature}", "dim")
    assert results["test"].tag_accuracy is not None
    _phenomena_chapter(narrator, results["test"].tag_accuracy.by_tag, out)
    return splits["test"]


def _phenomena_chapter(narrator: Narrator, accuracies: dict[str, Proportion], out: Path) -> None:
    """The hardest and easiest phenomena, and the file with all of them."""
    narrator.chapter(
        "What is hard",
        "Every sentence is tagged with its grammatical phenomena. For each phenomenon, this is the share of sentences "
        "that are translated exactly right.",
    )
    names = [name for name, accuracy in accuracies.items() if accuracy.total >= MIN_SENTENCES_PER_PHENOMENON]
    if len(names) > HARDEST_SHOWN + EASIEST_SHOWN:  # they are sorted, hardest first
        names = [*names[:HARDEST_SHOWN], "⋮", *names[-EASIEST_SHOWN:]]
    table = plain_table("", "", ">", "")
    for name in names:
        if name in accuracies:
            value = accuracies[name].value
            description = shorten_to_width(PHENOMENA[name], narrator.width - PHENOMENON_WIDTH)
            table.add_row(name, bar(value), f"{value:.0%}", Text(description, "dim"))
        else:
            table.add_row(Text(name, "dim"))
    narrator.gap()
    narrator.show(table)
    narrator.unbroken_line(f"All {len(accuracies)} phenomena: {out / TABLES_FILE}", "dim")


def _real_french_chapter(narrator: Narrator, device: str) -> None:
    """Everyday sentences, translated by the bundled model; a single line if there is none."""
    if DEFAULT_MODEL not in bundled_models():
        narrator.gap()
        narrator.paragraph(
            f"(The bundled model for real French, {DEFAULT_MODEL}, is missing from this copy: skipped.)", "dim"
        )
        return
    narrator.chapter(
        "Real French",
        f"The same code, trained for longer on sentences written by people: {DEFAULT_MODEL}, which is bundled with "
        "Regard. It is a small model and makes mistakes.",
    )
    with narrator.waiting("translating …"):
        translations = load(bundled_folder(DEFAULT_MODEL), device).translate(REAL_SENTENCES)
    narrator.gap()
    table = plain_table("", "")
    for french, english in zip(REAL_SENTENCES, translations, strict=True):
        table.add_row(Text(french), Text(english, "bold"))
    narrator.show(table)


def _commands_chapter(narrator: Narrator, out: Path, sentence: str, commands: Collection[str]) -> None:
    """Commands to copy, limited to those that exist."""
    narrator.chapter("Your turn", f"The model is saved in {out}, with a report.md. It knows only Petit's vocabulary.")
    for purpose, lines in next_commands(out, sentence).items():
        available = [line for line in lines if line.split()[1] in commands]
        if available:
            narrator.gap()
            narrator.paragraph(f"{purpose}:")
            for line in available:
                narrator.unbroken_line(f"  {line}", "cyan")


def next_commands(out: Path, sentence: str) -> dict[str, list[str]]:
    """What to do next with the run, with the commands for it."""
    run, text = shlex.quote(str(out)), shell_argument(sentence)
    return {
        "Translate, and explore the attention": [
            f"regard translate {text} --model {run}",
            f"regard attend {text} --model {run} --html attention.html",
        ],
        "See all scores": [
            "regard data petit --out demo-text",
            f"regard evaluate {run} demo-text/test.fr demo-text/test.en",
        ],
        "Train on your own text, mine/train.fr and mine/train.en, one sentence per line": [
            "regard data check mine/train.fr mine/train.en",
            "regard train small-corpus --set data.folder=mine --set data.languages=fr,en",
        ],
        "Export to Hugging Face": [f"regard export {run} demo-huggingface"],
        "Open the web page": ["regard serve"],
    }
