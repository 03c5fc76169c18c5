"""The story, chapter by chapter."""

import shlex
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from regard.decoding.text_model import Model
from regard.demo.attention_chapter import look
from regard.demo.demo_run import DECODER, ENCODER_DECODER, State, find_run, learn
from regard.demo.demo_scores import TABLES, Tried, try_split, write_scores
from regard.demo.narrator import Teller, bar
from regard.evaluation.proportions import Share
from regard.formatting import duration
from regard.interop.load import load
from regard.models import DEFAULT_MODEL, bundled_folder, bundled_models
from regard.petit import PHENOMENA
from regard.plots.heat_map import short
from regard.plots.run_report import write_report
from regard.plots.score_tables import plain_table
from regard.plots.training_display import argument
from regard.training.events import Sample, Validated
from regard.training.metrics_log import read_metrics
from regard.training.recipe import Recipe
from regard.training.training_setup import cache_folder
from regard.training.training_text import petit_files

REAL = (
    "Il fait froid ce matin, prends ton manteau.",
    "Je ne sais pas où j'ai mis mes clés.",
    "Est-ce que tu peux m'aider, s'il te plaît ?",
    "Nous avons mangé dans un petit restaurant près de la gare.",
    "Elle m'a dit qu'elle viendrait demain.",
    "Un chien brun court sur la plage.",
)
PAIRS, PAIR = 4, 27
"""of Petit that are shown, and columns of a sentence of them with the space behind it"""
FIGURES = 46
"""columns of a phenomenon's name, bar and share at most"""
ROWS = 6
"""moments at which a translation is shown"""
HARDEST, EASIEST, SURE = 5, 3, 20
"""phenomena that are shown, and sentences below which one is not judged"""


def demo(
    console: Console,
    out: Path | None = None,
    decoder_only: bool = False,
    changes: Sequence[str] = (),
    commands: Collection[str] = (),
) -> int | None:
    """Train a translator on Petit, score it, look into it; the signal that interrupted the training, if one did.

    A demo that lies in `out` is gone on with, or shown again. `changes` are made to its recipe. At the end the user is
    told of further `commands`, those that there are.
    """
    begun = time.monotonic()
    road = DECODER if decoder_only else ENCODER_DECODER
    out = road.out if out is None else out
    recipe, state = find_run(road.read(changes), out)
    teller = Teller(console)
    console.print(Text.assemble(("Regard", "bold"), ": the Transformer of “Attention Is All You Need”, at work"))
    petit = _petit(teller, recipe)
    if signal := _learn(teller, recipe, out, state, road.what):
        teller.say("Interrupted, and saved. To go on:")
        teller.whole(f"  {_again(road.out, out, decoder_only)}", "cyan")
        return signal
    _better(teller, out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(out, device)
    tried = _scores(teller, model, recipe, petit, out)
    sentence = look(teller, model, tried, out)
    _real(teller, device)
    usable = [name for name in commands if name != "export" or not model.config.prefix]  # no other engine has its mask
    _next(teller, out, sentence, usable)
    teller.gap()
    teller.say(f"All this took {duration(time.monotonic() - begun)}.", "dim")
    return None


def _again(usual: Path, out: Path, decoder_only: bool) -> str:
    """The command that tells this story once more."""
    return "regard demo" + " --decoder-only" * decoder_only + f" --out {shlex.quote(str(out))}" * (out != usual)


def _petit(teller: Teller, recipe: Recipe) -> Path:
    """Write Petit, unless it is there, and show some of it; where it lies."""
    teller.chapter(
        "A small world",
        f"Petit is French and English written by Regard itself: {recipe.data.petit:,} pairs to learn from, and others "
        f"that are kept back for tests. It shows {len(PHENOMENA)} phenomena of grammar, knows which word comes from "
        "which, and no French in it has two Englishes: a perfect translator scores 100.",
    )
    with teller.waiting("writing Petit …"):
        folder = Path(petit_files(recipe.data, cache_folder()).train[0].files[0]).parent
    teller.gap()
    table = plain_table("", "", "")
    for french, english, tags in _some_pairs(folder):
        table.add_row(Text(french), Text(english, "bold"), Text(short(", ".join(tags), teller.width - 2 * PAIR), "dim"))
    teller.show(table)
    return folder


def _some_pairs(folder: Path) -> list[tuple[str, str, list[str]]]:
    """Short ones, each with phenomena that those before it do not show."""
    sides = ((folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("fr", "en", "tags"))
    found: list[tuple[str, str, list[str]]] = []
    seen: set[str] = set()
    for french, english, tags in zip(*sides, strict=True):
        fits = max(len(french), len(english)) <= PAIR - 2 and len(tags.split()) == 2
        if fits and len(found) < PAIRS and seen.isdisjoint(tags.split()):
            found.append((french, english, tags.split()))
            seen.update(tags.split())
    return found


def _learn(teller: Teller, recipe: Recipe, out: Path, state: State, what: str) -> int | None:
    """Train, go on, or say that nothing is left to do."""
    teller.chapter(
        "It learns",
        f"{what}. It begins with random weights and knows no word of either language. As the loss falls, BLEU, which "
        "compares its translations of unseen sentences with the right ones, rises.",
    )
    if state == "done":
        teller.say(
            f"{out} holds this demo, trained before: it is shown again. To train anew, name another folder by --out."
        )
        return None
    if state == "begun":
        teller.say(f"{out} holds a demo that was interrupted: it goes on where it stopped.")
    teller.gap()
    return learn(recipe, out, state, teller.console)


def _better(teller: Teller, out: Path) -> None:
    """One sentence of the validation text, as the model said it at several moments."""
    validated = [event for event in read_metrics(out, strict=False) if isinstance(event, Validated) and event.samples]
    if not validated:
        return
    place = max(range(len(validated[-1].samples)), key=lambda i: _change(validated, i))
    sample = validated[-1].samples[place]
    teller.chapter(
        "It got better",
        "A sentence that it does not learn from, as it was translated on the way.",
    )
    teller.gap()
    table = plain_table("step>", "BLEU>", sample.source, "")
    for event in _moments(validated, place):
        said = event.samples[place]
        score = "" if event.score is None else f"{event.score:.1f}"
        table.add_row(f"{event.step:,}", score, Text(said.output or "(nothing)"), _mark(said))
    table.add_row("", "", Text(f"right: {sample.reference}", "dim"), "")
    teller.show(table)


def _change(validated: list[Validated], place: int) -> tuple[bool, int]:
    """How much there is to be seen in a sample: that it ended right, and how often it changed."""
    return _right(validated[-1].samples[place]), len({event.samples[place].output for event in validated})


def _moments(validated: list[Validated], place: int) -> list[Validated]:
    """The first and the last, and between them those at which the sample changed, evenly chosen."""
    outputs = [event.samples[place].output for event in validated]
    changed = [i for i, output in enumerate(outputs) if i == 0 or output != outputs[i - 1]]
    chosen = [changed[i * (len(changed) - 1) // max(1, ROWS - 2)] for i in range(ROWS - 1)]
    return [validated[i] for i in sorted({*chosen, len(validated) - 1})]


def _right(sample: Sample) -> bool:
    return sample.output == sample.reference


def _mark(sample: Sample) -> Text:
    return Text("✓", "green") if _right(sample) else Text("")


def _scores(teller: Teller, model: Model, recipe: Recipe, petit: Path, out: Path) -> Tried:
    """Two chapters on both held-out splits; the ordinary one."""
    teller.chapter(
        "How good it is",
        "Sentences that it has never seen, and others whose words it knows, but in combinations that were kept from "
        "it: an adjective with its noun, a verb with its object. These ask whether it learned rules or phrases.",
    )
    tried = {}
    for split in ("test", "compositional"):
        with teller.waiting(f"translating the {split} sentences …"):
            tried[split] = try_split(model, str(out), petit, split, recipe.decode, look=split == "test")
    results = {split: each.result for split, each in tried.items()}
    write_scores(out, results)
    write_report(out, [result.scores for result in results.values()])
    teller.gap()
    table = plain_table("", "BLEU>", "95 % interval>", "exactly right>")
    for name, result in zip(("unseen sentences", "unseen combinations"), results.values(), strict=True):
        assert result.petit is not None
        bleu, exact = result.scores.bleu, result.petit.overall
        interval = f"{bleu.low:.1f} – {bleu.high:.1f}"
        table.add_row(name, Text(f"{bleu.score:.1f}", "bold"), interval, f"{exact.correct:,} of {exact.total:,}")
    teller.show(table)
    teller.whole(f"{results['test'].scores.bleu.name}: {results['test'].scores.bleu.signature}", "dim")
    assert results["test"].petit is not None
    _phenomena(teller, results["test"].petit.phenomena, out)
    return tried["test"]


def _phenomena(teller: Teller, shares: dict[str, Share], out: Path) -> None:
    """The hardest and the easiest, and where all the others are."""
    teller.chapter(
        "What is hard",
        "Each sentence says which phenomena it shows, so that one sees what is wrong, and not only how much: here the "
        "share of sentences that are exactly right.",
    )
    names = [name for name, share in shares.items() if share.total >= SURE]  # the hardest first
    shown = names if len(names) <= HARDEST + EASIEST else [*names[:HARDEST], "⋮", *names[-EASIEST:]]
    table = plain_table("", "", ">", "")
    for name in shown:
        if name in shares:
            value = shares[name].value
            about = short(PHENOMENA[name], teller.width - FIGURES)
            table.add_row(name, bar(value), f"{value:.0%}", Text(about, "dim"))
        else:
            table.add_row(Text(name, "dim"))
    teller.gap()
    teller.show(table)
    teller.whole(f"All {len(shares)}: {out / TABLES}", "dim")


def _real(teller: Teller, device: str) -> None:
    """Sentences as people say them, by the model that comes with Regard; one line where there is none."""
    if DEFAULT_MODEL not in bundled_models():
        teller.gap()
        teller.say(
            f"(The model for real French, {DEFAULT_MODEL}, does not come with this copy of Regard: left out.)", "dim"
        )
        return
    teller.chapter(
        "Real French",
        f"The same code, trained for longer on sentences that people wrote: {DEFAULT_MODEL}, which comes with Regard. "
        "It is small, and not always right.",
    )
    with teller.waiting("translating …"):
        said = load(bundled_folder(DEFAULT_MODEL), device).translate(REAL)
    teller.gap()
    table = plain_table("", "")
    for french, english in zip(REAL, said, strict=True):
        table.add_row(Text(french), Text(english, "bold"))
    teller.show(table)


def _next(teller: Teller, out: Path, sentence: str, commands: Collection[str]) -> None:
    """Commands to copy, of those that there are."""
    teller.chapter("Now you", f"The model is yours: it lies in {out}, with a report.md. It knows Petit's words alone.")
    for what, lines in next_commands(out, sentence).items():
        known = [line for line in lines if line.split()[1] in commands]
        if known:
            teller.gap()
            teller.say(f"{what}:")
            for line in known:
                teller.whole(f"  {line}", "cyan")


def next_commands(out: Path, sentence: str) -> dict[str, list[str]]:
    """What one may want to do with the run, and by which commands."""
    run, text = shlex.quote(str(out)), argument(sentence)
    return {
        "Use it, look into it": [
            f"regard translate {text} --model {run}",
            f"regard attend {text} --model {run} --html look.html",
        ],
        "See all its scores": [
            "regard data petit --out petit",
            f"regard evaluate {run} petit/test.fr petit/test.en",
        ],
        "Train on your own text, mine/train.fr and mine/train.en, a sentence a line": [
            "regard data check mine/train.fr mine/train.en",
            "regard train small-corpus --set data.folder=mine --set data.languages=fr,en",
        ],
        "Hand it to Hugging Face's tools": [f"regard export {run} demo-huggingface"],
        "See it all on a page": ["regard serve"],
    }
