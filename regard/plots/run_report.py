"""Writes a run's report, `report.md` with `curves.png`, from the files in its folder."""

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
from regard.evaluation.tagging import TaggingScores
from regard.formatting import code_cell, duration, escape_markdown, markdown_table, visible
from regard.plots.optional_matplotlib import INSTALL_MATPLOTLIB, has_matplotlib
from regard.plots.run_lines import SET_VALIDATION, example_text, plural, shell_argument, usage
from regard.plots.run_progress import is_unvalidated
from regard.storage.model_folder import RECIPE_FILE
from regard.training.events import TRANSIENT_NOTES, Ended, Event, Noted, Saved, Started, Stepped, Validated
from regard.training.flops import paper_flops, peak_flops
from regard.training.metrics_log import METRICS_FILE, read_metrics
from regard.training.recipe import TrainSection
from regard.untrusted_files import is_regular_file, read_file, read_json

REPORT_FILE, CURVES_FILE = "report.md", "curves.png"
MAX_SAMPLES = 3
MAX_NOTES = 10
MAX_RECIPE_BYTES = 1_000_000
PAPER_BASE_FLOPS, PAPER_BIG_FLOPS = 3.3e18, 2.3e19
"""Training cost of the paper's models, from its Table 2."""

ReportScores = TranslationScores | LanguageScore | ClassScores | TaggingScores


def write_report(folder: Path, scores: Sequence[ReportScores] | None = None) -> Path:
    """Write the report of a run into its folder; `scores` are those of the finished model."""
    events = read_metrics(folder, strict=False)
    started = [event for event in events if isinstance(event, Started)]
    if not started:
        raise RegardError(f"{folder / METRICS_FILE} records no run: give a folder that regard train wrote")
    stepped = [event for event in events if isinstance(event, Stepped)]
    validated = [event for event in events if isinstance(event, Validated)]
    recipe = _recipe(folder)
    sections = [f"# {escape_markdown(started[-1].name)}", _opening(started[-1], recipe)]
    scored = [event for event in validated if not is_unvalidated(event)]
    if stepped or scored:
        sections.append(_curves_section(folder, stepped, scored, started[-1].name))
    sections += [
        _training_section(events, started, _config(folder), recipe),
        _validation_section(validated, recipe),
        *(["## Scores", *map(_scores_section, scores)] if scores else []),
        _cost_section(events, started[-1]),
        _notes_section(
            [event for event in events if isinstance(event, Noted) and not event.text.startswith(TRANSIENT_NOTES)]
        ),
        _samples_section([event for event in validated if event.samples]),
        _usage_section(started[-1], validated, _end(events), recipe),
    ]
    write_file(folder / REPORT_FILE, "\n\n".join(section for section in sections if section) + "\n")
    return folder / REPORT_FILE


def _curves_section(folder: Path, stepped: Sequence[Stepped], scored: Sequence[Validated], name: str) -> str:
    """Draw the curves of the run and show them, or say what is missing to draw them."""
    if not has_matplotlib():
        return f"Curves are drawn only if matplotlib is installed: `{INSTALL_MATPLOTLIB}`."
    from regard.plots.figures import curves_png

    write_file(folder / CURVES_FILE, curves_png(stepped, scored, visible(name)))
    return f"![Loss, score and learning rate over the steps]({CURVES_FILE})"


def _recipe(folder: Path) -> dict[str, Any]:
    """The recipe's sections; empty if there is no recipe."""
    path = folder / RECIPE_FILE
    if not is_regular_file(path):
        return {}
    try:
        return tomllib.loads(read_file(path, MAX_RECIPE_BYTES).decode())
    except ValueError as error:
        raise RegardError(f"{path}: {error}") from None


def _config(folder: Path) -> ModelConfig | None:
    """The architecture of the best model; None if there is no model yet."""
    path = folder / "config.json"
    if not is_regular_file(path):
        return None
    try:
        return ModelConfig(**read_json(path)["model"])
    except (ValueError, TypeError, KeyError) as error:
        raise RegardError(f"{path}: {error}") from None


def _opening(started: Started, recipe: dict[str, Any]) -> str:
    description = {
        "translation": "A translation model",
        "language": "A language model",
        "classification": "A text classifier",
        "tagging": "A tagger of words",
        "masked": "A masked language model",
    }[started.task]
    languages = _section(recipe, "data").get("languages")
    between = " → ".join(map(str, languages)) if isinstance(languages, list) else ""
    return f"{description}{f' ({escape_markdown(between)})' if between else ''}, trained with Regard."


def _training_section(
    events: Sequence[Event], started: Sequence[Started], config: ModelConfig | None, recipe: dict[str, Any]
) -> str:
    """What was trained, on what, for how long and where."""
    last = started[-1]
    data, train = _section(recipe, "data"), _section(recipe, "train")
    start = _section(recipe, "model").get("start")
    shape = f"your own module {escape_markdown(last.module)}" if last.module else _shape(config)
    rows = [("model", shape), ("fine-tuned from", escape_markdown(start) if isinstance(start, str) else "")]
    rows += [("parameters", f"{last.parameters:,}")]
    too_long = f"; {last.left_out:,} more were too long" if last.left_out else ""
    rows += [("data", f"{plural(last.examples, 'example')}{too_long}"), ("from", _files(data))]
    problems = [f"{count:,} {escape_markdown(kind)}" for kind, count in last.problems.items() if count]
    rows += [("skipped lines", ", ".join(problems)), ("steps", _steps(events, last))]
    batch = train.get("batch_tokens")
    rows += [("batch", f"{batch:,} tokens on the larger side" if isinstance(batch, int) else "")]
    rows += [
        *_amounts(events, last),
        ("device", "; then ".join(dict.fromkeys(escape_markdown(event.place) for event in started))),
    ]
    resumed = [f"{event.step:,}" for event in started if event.step]
    rows += [("resumed after step", ", ".join(resumed))]
    return "## Training\n\n" + markdown_table(["", ""], [list(row) for row in rows if row[1]])


def _amounts(events: Sequence[Event], started: Started) -> list[tuple[str, str]]:
    """Number of tokens (or texts, for a classifier), time and speed."""
    stepped = [event for event in events if isinstance(event, Stepped)]
    ended = _end(events)
    last = ended or (stepped[-1] if stepped else None)
    if last is None:
        return []
    tokens, seconds = last.tokens, last.seconds
    epochs = f", {stepped[-1].epoch:.1f} epochs" if stepped else ""
    overhead = sum(event.seconds for event in events if isinstance(event, Validated | Saved))
    unit = "texts" if started.task == "classification" else "target tokens"
    speed = f"{tokens / seconds:,.0f} {unit}/s" if seconds else ""
    return [
        (unit, f"{tokens:,}{epochs}"),
        ("time", f"{duration(seconds)} of training, {duration(overhead)} of validation and saving"),
        ("speed", speed),
    ]


def _shape(config: ModelConfig | None) -> str:
    if config is None:
        return ""
    layers = f"{config.layers}"
    if config.kind == "encoder-decoder":
        layers += f" + {config.decoder_depth}"
    shape = f"{config.kind}, {layers} layers, {config.heads} heads, width {config.d_model:,}"
    return f"{shape}, feed-forward {config.d_ff:,}, {config.vocabulary_sizes}"


def _files(data: dict[str, Any]) -> str:
    """The training files, as the recipe names them."""
    if data.get("petit"):
        return f"Petit, {plural(data['petit'], 'pair')}" if isinstance(data["petit"], int) else ""
    corpora = data.get("train")
    corpora = corpora if isinstance(corpora, list) else []
    named = [corpus.get("files") for corpus in corpora if isinstance(corpus, dict)]
    return "; ".join(
        ", ".join(escape_markdown(str(file)) for file in files) for files in named if isinstance(files, list)
    )


def _steps(events: Sequence[Event], started: Started) -> str:
    done = max(event.step for event in events)
    reasons = {
        "steps": "all steps",
        "patience": "stopped early because there was no improvement",
        "interrupted": "interrupted",
        "diverged": "diverged",
    }
    ended = _end(events)
    return f"{done:,} of {started.steps:,}" + (", not finished" if ended is None else f", {reasons[ended.reason]}")


def _validation_section(validated: Sequence[Validated], recipe: dict[str, Any]) -> str:
    """The validation whose model was kept."""
    bests = [event for event in validated if event.best]
    if not bests:
        return ""
    best = bests[-1]
    if is_unvalidated(best):
        text = f"There was no validation text, so the last model is kept ({SET_VALIDATION} in the recipe)."
        return f"## Validation\n\n{text}"
    heads, row = ["step", "loss, nats"], [f"{best.step:,}", f"{best.loss:.4f}"]
    if best.measure not in ("accuracy", "F1") and best.loss < 700:
        heads, row = [*heads, "perplexity"], [*row, f"{math.exp(best.loss):,.2f}"]
    if best.score is not None:
        heads, row = [*heads, str(best.measure)], [*row, f"{best.score:.2f}"]
    origin = f"the best of {len(validated):,} validations" if len(validated) > 1 else "the only validation"
    about = f"The model in this folder is from {origin}."
    if best.measure == "BLEU" and best.score is not None:
        sentences = _section(recipe, "train").get("validation_sentences", TrainSection.validation_sentences)
        about += " BLEU is computed from greedy translations"
        if isinstance(sentences, int):
            about += f" of at most the first {sentences:,} validation sentences"
        about += "."
    return f"## Best validation\n\n{about}\n\n{markdown_table(heads, [row])}"


def _scores_section(scores: ReportScores) -> str:
    """The scores on one test set, with notes on what they can be compared with."""
    if isinstance(scores, LanguageScore):
        rows = [
            [f"{scores.loss:.4f}", f"{scores.perplexity:,.2f}", f"{scores.bits_per_byte:.4f}", f"{scores.tokens:,}"]
        ]
        return markdown_table(["loss, nats per token", "perplexity", "bits per byte", "tokens"], rows)
    if isinstance(scores, TaggingScores):
        return _tagging_table(scores)
    if isinstance(scores, ClassScores):
        share = scores.accuracy
        interval = f"{share.low:.1%} – {share.high:.1%}"
        row = [f"{share.value:.1%}", interval, f"{scores.macro_f1:.1%}", f"{scores.majority:.1%}", f"{share.total:,}"]
        return markdown_table(["accuracy", "95% interval", "macro-F1", "most frequent class", "texts"], [row])
    metrics = (scores.bleu, scores.bleu_lowercase, scores.chrf)
    rows = [
        [metric.name, f"{metric.value:.1f}", f"{metric.low:.1f} – {metric.high:.1f}", code_cell(metric.signature)]
        for metric in metrics
    ]
    table = markdown_table(["", "score", "95% interval", "sacreBLEU signature"], rows)
    notes = [f"- {escape_markdown(note)}" for note in (*scores.note.comparable, *scores.note.warnings)]
    head = f"**{escape_markdown(scores.note.test_set.rstrip('.'))}**"
    return "\n\n".join([head, table, *(["\n".join(notes)] if notes else [])])


def _tagging_table(scores: TaggingScores) -> str:
    share, spans = scores.words.accuracy, scores.spans
    heads = ["accuracy", "95% interval", "macro-F1", "most frequent label", "words", "sentences"]
    row = [f"{share.value:.1%}", f"{share.low:.1%} – {share.high:.1%}", f"{scores.words.macro_f1:.1%}"]
    row += [f"{scores.words.majority:.1%}", f"{share.total:,}", f"{scores.sentences:,}"]
    if spans is not None:
        heads = ["F1 of spans", "precision", "recall", "spans", *heads]
        row = [f"{spans.f1:.1%}", f"{spans.precision:.1%}", f"{spans.recall:.1%}", f"{spans.count:,}", *row]
    return markdown_table(heads, [row])


def _cost_section(events: Sequence[Event], started: Started) -> str:
    """Floating-point operations: counted, and estimated as in the paper if the GPU is known."""
    ended = _end(events)
    if ended is None:
        return ""
    method = "counted from the model's arithmetic without padding"
    if started.module:
        method = "estimated as 6 for each parameter and token, because the arithmetic of your own module is not known"
    lines = [f"- {power(ended.flops)} floating-point operations, {method}"]
    rate = peak_flops(started.place)
    if rate is not None:
        match = re.search(r"(\d+) devices", started.place)
        devices = int(match[1]) if match else 1
        estimate = paper_flops(ended.seconds, devices, rate)
        times_devices = f"{devices} devices × " if devices > 1 else ""
        product = f"{duration(ended.seconds)} of training × {times_devices}{power(rate)} per second"
        lines.append(f"- {power(estimate)} by the method of the paper's Table 2: {product}, as this GPU sustains")
        if estimate:
            lines.append(f"- GPU utilization: {ended.flops / estimate:.0%}")
    base, big = power(PAPER_BASE_FLOPS), power(PAPER_BIG_FLOPS)
    paper = f"For comparison, the paper estimates {base} for its base model and {big} for its big model."
    return "\n\n".join(["## Cost", "\n".join(lines), paper])


def power(number: float) -> str:
    """A large number in scientific notation.

    >>> power(3.3e18)
    '3.3 × 10¹⁸'
    """
    if not number or not math.isfinite(number):
        return f"{number:g}"
    figures, exponent = f"{number:.1e}".split("e")
    return f"{figures} × 10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _notes_section(notes: Sequence[Noted]) -> str:
    if not notes:
        return ""
    lines = [f"- step {note.step:,}: {escape_markdown(note.text)}" for note in notes[:MAX_NOTES]]
    lines += [f"- and {len(notes) - MAX_NOTES:,} more, in {METRICS_FILE}"] if len(notes) > MAX_NOTES else []
    return "\n".join(["## Notes", "", *lines])


def _samples_section(validated: Sequence[Validated]) -> str:
    """Outputs for the same sources at the first, a middle and the last validation."""
    if not validated:
        return ""
    moments = sorted({0, len(validated) // 2, len(validated) - 1})
    blocks = []
    for sample in validated[-1].samples[:MAX_SAMPLES]:
        outputs = [
            [f"{event.step:,}", escape_markdown(earlier.output) or "*(nothing)*"]
            for event in (validated[moment] for moment in moments)
            for earlier in event.samples
            if earlier.source == sample.source
        ]
        reference = [["reference", f"*{escape_markdown(sample.reference)}*"]] if sample.reference else []
        blocks.append(markdown_table(["step", escape_markdown(sample.source)], outputs + reference))
    return "\n\n".join(["## Samples over time", *blocks])


def _usage_section(
    started: Started, validated: Sequence[Validated], ended: Ended | None, recipe: dict[str, Any]
) -> str:
    """Commands and a program that use the model."""
    if ended is not None and ended.best_step is None:
        return "## Usage\n\nThere is no model to use yet: the first validation saves one."
    last = validated[-1] if validated else None
    text, out = example_text(started, last), shlex.quote(visible(started.out))
    quoted = json.dumps(text, ensure_ascii=False)
    temperature = _section(recipe, "decode").get("temperature")
    sampled = started.task == "language" and isinstance(temperature, int | float) and temperature > 0
    command = usage(started, last, f" --temperature {temperature}" if sampled else "")
    commands = {
        "translation": [
            command,
            f"regard evaluate {out} SOURCE REFERENCE",
            f"regard attend {shell_argument(text)} --model {out} --html attention.html",
        ],
        "language": [command, f"regard evaluate {out} TEXT"],
        "classification": [f"regard evaluate {out} TEXTS CLASSES"],
        "tagging": [command, f"regard evaluate {out} FILE"],
        "masked": [command, f"regard evaluate {out} TEXT"],
    }[started.task]
    call = {
        "translation": f"translate([{quoted}])",
        "language": f"generate({quoted}{f', temperature={temperature}' if sampled else ''})",
        "classification": f"classify([{quoted}])",
        "tagging": f"tag({quoted})",
        "masked": f"fill({quoted})",
    }[started.task]
    arguments = json.dumps(visible(started.out), ensure_ascii=False)
    shell = ["```sh", *commands, "```", ""]
    if started.module:  # the commands do not know the user's code
        shell, arguments = [], f"{arguments}, network={started.module}(...)"
    program = ["```python", "import regard", "", f"model = regard.load({arguments})", f"model.{call}", "```"]
    return "\n".join(["## Usage", "", *shell, *program])


def _end(events: Sequence[Event]) -> Ended | None:
    return next((event for event in reversed(events) if isinstance(event, Ended)), None)


def _section(recipe: dict[str, Any], name: str) -> dict[str, Any]:
    section = recipe.get(name)
    return section if isinstance(section, dict) else {}
