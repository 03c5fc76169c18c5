"""A run's report, `report.md` with `curves.png`: a function of what its folder holds, the same each time."""

import json
import math
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.atomic_files import write_file
from regard.config import ModelConfig
from regard.errors import RegardError
from regard.evaluation.classification import ClassScores
from regard.evaluation.metrics import TranslationScores
from regard.evaluation.perplexity import LanguageScore
from regard.formatting import code_cell, duration, escape_markdown, markdown_table, visible
from regard.plots.training_display import NAME_SOME, UNTRIED, argument, example, plural, untried, usage
from regard.storage.model_folder import RECIPE_FILE
from regard.training.events import TRANSIENT_NOTES, Ended, Event, Noted, Saved, Started, Stepped, Validated
from regard.training.flops import paper_flops, peak_flops
from regard.training.metrics_log import METRICS, read_metrics
from regard.training.recipe import TrainSection
from regard.untrusted_files import is_regular_file, read_file, read_json

REPORT, CURVES = "report.md", "curves.png"
SHOWN = 3
"""samples, and moments at which they are shown"""
NOTES = 10
MAX_RECIPE = 1_000_000
"""bytes"""
PAPER_BASE, PAPER_BIG = 3.3e18, 2.3e19
"""operations, by the paper's Table 2"""

Scores = TranslationScores | LanguageScore | ClassScores


def write_report(folder: Path, scores: Sequence[Scores] | None = None) -> Path:
    """Write the report of a run into its folder; `scores` are those of the finished model on test sets."""
    events = read_metrics(folder, strict=False)
    started = [event for event in events if isinstance(event, Started)]
    if not started:
        raise RegardError(f"{folder / METRICS} tells of no run: name a folder that regard train wrote")
    stepped = [event for event in events if isinstance(event, Stepped)]
    validated = [event for event in events if isinstance(event, Validated)]
    recipe = _recipe(folder)
    sections = [f"# {escape_markdown(started[-1].name)}", _opening(started[-1], recipe)]
    tried = [event for event in validated if not untried(event)]
    if stepped or tried:
        from regard.plots.figures import curves_png

        write_file(folder / CURVES, curves_png(stepped, tried, visible(started[-1].name)))
        sections.append(f"![Loss, score and learning rate over the steps]({CURVES})")
    sections += [
        _trained(events, started, _config(folder), recipe),
        _best(validated, recipe),
        *(["## Scores", *map(_scored, scores)] if scores else []),
        _cost(events, started[-1]),
        _on_the_way([each for each in events if isinstance(each, Noted) and not each.text.startswith(TRANSIENT_NOTES)]),
        _samples([event for event in validated if event.samples]),
        _use(started[-1], validated, _end(events), recipe),
    ]
    write_file(folder / REPORT, "\n\n".join(section for section in sections if section) + "\n")
    return folder / REPORT


def _recipe(folder: Path) -> dict[str, Any]:
    """The recipe's sections; none if there is no recipe."""
    path = folder / RECIPE_FILE
    if not is_regular_file(path):
        return {}
    try:
        return tomllib.loads(read_file(path, MAX_RECIPE).decode())
    except ValueError as error:
        raise RegardError(f"{path}: {error}") from None


def _config(folder: Path) -> ModelConfig | None:
    """The shape of the best model; None as long as there is none."""
    path = folder / "config.json"
    if not is_regular_file(path):
        return None
    try:
        return ModelConfig(**read_json(path)["model"])
    except (ValueError, TypeError, KeyError) as error:
        raise RegardError(f"{path}: {error}") from None


def _opening(started: Started, recipe: dict[str, Any]) -> str:
    what = {
        "translation": "A model that translates",
        "language": "A language model",
        "classification": "A model that names the class of a text",
    }[started.task]
    languages = _section(recipe, "data").get("languages")
    between = " → ".join(map(str, languages)) if isinstance(languages, list) else ""
    return f"{what}{f' ({escape_markdown(between)})' if between else ''}, trained by Regard."


def _trained(
    events: Sequence[Event], started: Sequence[Started], config: ModelConfig | None, recipe: dict[str, Any]
) -> str:
    """What was trained, on what, for how long, where."""
    last = started[-1]
    data, train = _section(recipe, "data"), _section(recipe, "train")
    start = _section(recipe, "model").get("start")
    rows = [("model", _shape(config)), ("fine-tuned from", escape_markdown(start) if isinstance(start, str) else "")]
    rows += [("parameters", f"{last.parameters:,}")]
    too_long = f", and {last.left_out:,} too long, left out" if last.left_out else ""
    rows += [("data", f"{plural(last.examples, 'example')}{too_long}"), ("from", _files(data))]
    problems = [f"{count:,} {escape_markdown(kind)}" for kind, count in last.problems.items() if count]
    rows += [("lines left out", ", ".join(problems)), ("steps", _steps(events, last))]
    batch = train.get("batch_tokens")
    rows += [("batch", f"{batch:,} tokens on the larger side" if isinstance(batch, int) else "")]
    rows += [
        *_amounts(events, last),
        ("device", "; then ".join(dict.fromkeys(escape_markdown(each.place) for each in started))),
    ]
    resumed = [f"{each.step:,}" for each in started if each.step]
    rows += [("went on from step", ", ".join(resumed))]
    return "## What was trained\n\n" + markdown_table(["", ""], [list(row) for row in rows if row[1]])


def _amounts(events: Sequence[Event], started: Started) -> list[tuple[str, str]]:
    """Tokens, or texts of a classifier, and time."""
    stepped = [event for event in events if isinstance(event, Stepped)]
    ended = _end(events)
    last = ended or (stepped[-1] if stepped else None)
    if last is None:
        return []
    tokens, seconds = last.tokens, last.seconds
    epochs = f", {stepped[-1].epoch:.1f} epochs" if stepped else ""
    aside = sum(event.seconds for event in events if isinstance(event, Validated | Saved))
    what = "texts" if started.task == "classification" else "target tokens"
    speed = f"{tokens / seconds:,.0f} {what}/s" if seconds else ""
    return [
        (what, f"{tokens:,}{epochs}"),
        ("time", f"{duration(seconds)} of training, {duration(aside)} of validating and saving"),
        ("speed", speed),
    ]


def _shape(config: ModelConfig | None) -> str:
    if config is None:
        return ""
    layers = f"{config.layers}"
    if config.kind == "encoder-decoder":
        layers += f" + {config.decoder_depth}"
    shape = f"{config.kind}, {layers} layers, {config.heads} heads, width {config.d_model:,}"
    return f"{shape}, feed-forward {config.d_ff:,}, {config.vocab_size:,} ids"


def _files(data: dict[str, Any]) -> str:
    """The names of the training text, as the recipe tells them."""
    if data.get("petit"):
        return f"Petit, {plural(data['petit'], 'pair')}" if isinstance(data["petit"], int) else ""
    corpora = data.get("train")
    corpora = corpora if isinstance(corpora, list) else []
    named = [each.get("files") for each in corpora if isinstance(each, dict)]
    return "; ".join(
        ", ".join(escape_markdown(str(file)) for file in files) for files in named if isinstance(files, list)
    )


def _steps(events: Sequence[Event], started: Started) -> str:
    done = max(event.step for event in events)
    reasons = {
        "steps": "all of them",
        "patience": "then it no longer got better",
        "interrupted": "then it was interrupted",
        "diverged": "then it diverged",
    }
    ended = _end(events)
    return f"{done:,} of {started.steps:,}" + (", not yet at an end" if ended is None else f", {reasons[ended.reason]}")


def _best(validated: Sequence[Validated], recipe: dict[str, Any]) -> str:
    """The validation whose model was kept."""
    found = [each for each in validated if each.best]
    if not found:
        return ""
    best = found[-1]
    if untried(best):
        return f"## Validation\n\nThere was {UNTRIED} ({NAME_SOME} in the recipe)."
    heads, row = ["step", "loss, nats"], [f"{best.step:,}", f"{best.loss:.4f}"]
    if best.measure != "accuracy" and best.loss < 700:
        heads, row = [*heads, "perplexity"], [*row, f"{math.exp(best.loss):,.2f}"]
    if best.score is not None:
        heads, row = [*heads, str(best.measure)], [*row, f"{best.score:.2f}"]
    which = f"the best of {len(validated):,} validations" if len(validated) > 1 else "the only validation"
    about = f"The model in this folder is that of {which}."
    if best.measure == "BLEU" and best.score is not None:
        sentences = _section(recipe, "train").get("validation_sentences", TrainSection.validation_sentences)
        of = f", of the validation text's first {sentences:,} sentences at most" if isinstance(sentences, int) else ""
        about += f" BLEU is of greedy translations here{of}."
    return f"## The best validation\n\n{about}\n\n{markdown_table(heads, [row])}"


def _scored(scores: Scores) -> str:
    """A test set's scores with what they may be compared with."""
    if isinstance(scores, LanguageScore):
        rows = [
            [f"{scores.loss:.4f}", f"{scores.perplexity:,.2f}", f"{scores.bits_per_byte:.4f}", f"{scores.tokens:,}"]
        ]
        return markdown_table(["loss, nats per token", "perplexity", "bits per byte", "tokens"], rows)
    if isinstance(scores, ClassScores):
        share = scores.accuracy
        interval = f"{share.low:.1%} – {share.high:.1%}"
        row = [f"{share.value:.1%}", interval, f"{scores.macro_f1:.1%}", f"{scores.majority:.1%}", f"{share.total:,}"]
        return markdown_table(["accuracy", "95 % interval", "macro-F1", "most frequent class", "texts"], [row])
    three = (scores.bleu, scores.bleu_lowercase, scores.chrf)
    rows = [
        [each.name, f"{each.value:.1f}", f"{each.low:.1f} – {each.high:.1f}", code_cell(each.signature)]
        for each in three
    ]
    table = markdown_table(["", "score", "95 % interval", "sacreBLEU signature"], rows)
    notes = [f"- {escape_markdown(each)}" for each in (*scores.note.comparable, *scores.note.warnings)]
    head = f"**{escape_markdown(scores.note.test_set.rstrip('.'))}**"
    return "\n\n".join([head, table, *(["\n".join(notes)] if notes else [])])


def _cost(events: Sequence[Event], started: Started) -> str:
    """Operations, counted, and by the paper's way where the GPU is known."""
    ended = _end(events)
    if ended is None:
        return ""
    lines = [f"- {power(ended.flops)} floating-point operations, counted from the model's arithmetic, without padding"]
    rate = peak_flops(started.place)
    if rate is not None:
        told = re.search(r"(\d+) devices", started.place)
        devices = int(told[1]) if told else 1
        estimate = paper_flops(ended.seconds, devices, rate)
        many = f"{devices} devices × " if devices > 1 else ""
        what = f"{duration(ended.seconds)} of training × {many}{power(rate)} per second"
        lines.append(f"- {power(estimate)} by the paper's way (its Table 2): {what}, what a GPU of this kind sustains")
        if estimate:
            lines.append(f"- so that {ended.flops / estimate:.0%} of what the GPU could do was done")
    paper = f"The paper estimates {power(PAPER_BASE)} for its base model, and {power(PAPER_BIG)} for its big one."
    return "\n\n".join(["## What it cost", "\n".join(lines), paper])


def power(number: float) -> str:
    """A large number, as printed in books.

    >>> power(3.3e18)
    '3.3 × 10¹⁸'
    """
    if not number or not math.isfinite(number):
        return f"{number:g}"
    figures, exponent = f"{number:.1e}".split("e")
    return f"{figures} × 10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _on_the_way(notes: Sequence[Noted]) -> str:
    if not notes:
        return ""
    lines = [f"- step {note.step:,}: {escape_markdown(note.text)}" for note in notes[:NOTES]]
    lines += [f"- and {len(notes) - NOTES:,} more, in {METRICS}"] if len(notes) > NOTES else []
    return "\n".join(["## What happened on the way", "", *lines])


def _samples(validated: Sequence[Validated]) -> str:
    """What became of the same sources: at first, halfway, at last."""
    if not validated:
        return ""
    moments = sorted({0, len(validated) // 2, len(validated) - 1})
    blocks = []
    for sample in validated[-1].samples[:SHOWN]:
        said = [
            [f"{each.step:,}", escape_markdown(other.output) or "*(nothing)*"]
            for each in (validated[moment] for moment in moments)
            for other in each.samples
            if other.source == sample.source
        ]
        reference = [["reference", f"*{escape_markdown(sample.reference)}*"]] if sample.reference else []
        blocks.append(markdown_table(["step", escape_markdown(sample.source)], said + reference))
    return "\n\n".join(["## Samples over time", *blocks])


def _use(started: Started, validated: Sequence[Validated], ended: Ended | None, recipe: dict[str, Any]) -> str:
    """Commands and a program to be pasted."""
    if ended is not None and ended.best_step is None:
        return "## How it is used\n\nThere is no model to use yet: it comes with the first validation."
    last = validated[-1] if validated else None
    text, out = example(started, last), shlex.quote(visible(started.out))
    quoted = json.dumps(text, ensure_ascii=False)
    heat = _section(recipe, "decode").get("temperature")
    drawn = started.task == "language" and isinstance(heat, int | float) and heat > 0
    command = usage(started, last, f" --temperature {heat}" if drawn else "")
    commands = {
        "translation": [
            command,
            f"regard evaluate {out} SOURCE REFERENCE",
            f"regard attend {argument(text)} --model {out} --html look.html",
        ],
        "language": [command, f"regard evaluate {out} TEXT"],
        "classification": [f"regard evaluate {out} TEXTS CLASSES"],
    }[started.task]
    call = {
        "translation": f"translate([{quoted}])",
        "language": f"generate({quoted}{f', temperature={heat}' if drawn else ''})",
        "classification": f"classify([{quoted}])",
    }[started.task]
    program = ["import regard", "", f"m = regard.load({json.dumps(visible(started.out), ensure_ascii=False)})"]
    blocks = ["```sh", *commands, "```", "", "```python", *program, f"m.{call}", "```"]
    return "\n".join(["## How it is used", "", *blocks])


def _end(events: Sequence[Event]) -> Ended | None:
    return next((event for event in reversed(events) if isinstance(event, Ended)), None)


def _section(recipe: dict[str, Any], name: str) -> dict[str, Any]:
    found = recipe.get(name)
    return found if isinstance(found, dict) else {}
