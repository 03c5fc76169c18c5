"""A comparison of systems in the terminal and as Markdown: scores, costs, and the sentences on which they differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from regard.evaluation.comparison import ComparisonResult, DifferingSentence, DiffSegment, TrainingCost
from regard.evaluation.metrics import (
    BOOTSTRAP_RESAMPLES,
    RANDOMIZATION_TRIALS,
    MetricComparison,
    SacrebleuScore,
    SystemComparison,
)
from regard.evaluation.multi_run import MIN_RUNS, has_enough_runs
from regard.formatting import (
    duration,
    escape_markdown,
    escape_markdown_words,
    markdown_table,
    rate,
    short_number,
    visible,
)
from regard.plots.run_report import power
from regard.plots.score_tables import plain_table, show_note, show_signatures

SIGNIFICANCE_LEVEL = 0.05
"""p-value below which a difference is called significant."""
CLOSING_PUNCTUATION = tuple(".,;:!?…)")
"""Punctuation that follows a word without a space."""
UNKNOWN_CELL = "–"


@dataclass(frozen=True)
class TableData:
    """A table before it is drawn. A heading that ends in > marks a column of numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold_column: int | None = None
    """Index of the most important column."""
    verdicts: Sequence[str] = field(default_factory=tuple)
    """For each row: better, worse or nothing, which colours its last three cells."""


def show_comparison(console: Console, result: ComparisonResult) -> None:
    """Print the systems with their scores by each metric, their costs, and the sentences that differ most."""
    console.print(f"{result.sentences:,} sentences of {escape(' and '.join(result.files))}\n")
    for table in (systems_table(result), training_table(result)):
        _show_table(console, table)
    for comparison in result.comparisons:
        _show_table(console, metric_table(comparison))
    _show_table(console, runs_table(result))
    for text in (*significance_notes(result), *cost_notes(result)):
        console.print(Text(text, style="dim"))
    console.print()
    show_signatures(console, _example_scores(result))
    show_note(console, result.note)
    if result.differing:
        console.print(f"[bold]Largest differences[/] by chrF2++ of the sentence; {_identical(result)}")
        legend = Text.assemble(_marked("not in the reference", "wrong"), ", ", _marked("missing", "missing"))
        console.print(legend, style="dim")
        for sentence in result.differing:
            _show_sentence(console, sentence, [system.name for system in result.systems])
    elif result.identical == result.sentences:
        console.print("All systems give the same output for every sentence.")


def comparison_markdown(result: ComparisonResult) -> str:
    """The same report as Markdown. All texts are escaped, so that none of them is markup."""
    files = " and ".join(escape_markdown(file) for file in result.files)
    sections = [
        "# Comparison of translators",
        f"{result.sentences:,} sentences of {files}.",
        *_scores_markdown(result),
        "## Systems and costs",
        _table_markdown(systems_table(result)),
        _table_markdown(training_table(result)),
        _bullets(cost_notes(result)),
        *_sentences_markdown(result),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def systems_table(result: ComparisonResult) -> TableData:
    """Size and speed of each system, and the number of its suspicious outputs (mean over its runs)."""
    several_runs = _has_several_runs(result)
    rows = []
    for system, suspicious in zip(result.systems, result.suspicious_counts, strict=True):
        parameters = UNKNOWN_CELL if system.parameters is None else short_number(system.parameters)
        speed = UNKNOWN_CELL if system.speed is None else rate(system.speed.per_second)
        mean_suspicious = f"{sum(suspicious.values()) / len(system.runs):,.1f}".removesuffix(".0")
        runs = [str(len(system.runs))] if several_runs else []
        rows.append([system.name, *runs, parameters, speed, mean_suspicious])
    headings = ["", *(["runs>"] if several_runs else []), "parameters>", "sentences/s>", "suspicious>"]
    return TableData(headings, rows)


def training_table(result: ComparisonResult) -> TableData:
    """Training cost of each system, as the mean over its runs; empty if nothing is known."""
    rows = []
    for system in result.systems:
        cost = system.training
        if cost is None:
            rows.append([system.name, *[UNKNOWN_CELL] * 3])
            continue
        name = f"{system.name} *" if cost.start else system.name
        flops = UNKNOWN_CELL if cost.flops is None else power(cost.flops)
        rows.append([name, duration(cost.seconds), short_number(round(cost.tokens)), flops])
    is_known = any(system.training for system in result.systems)
    return TableData(["training", "time>", "target tokens>", "operations>"], rows if is_known else [])


def metric_table(comparison: MetricComparison) -> TableData:
    """Scores by one metric, each compared with the first system."""
    several_runs = any(system.deviation is not None for system in comparison.systems)
    rows, verdicts = [], []
    for system in comparison.systems:
        score, significant = system.score, _is_significant(system, comparison.systems[0])
        cells = [system.system, f"{score.value:.1f}"]
        if several_runs:
            cells.append("" if system.deviation is None else f"{system.deviation:.2f}")
        cells.append(f"{score.low:.1f} – {score.high:.1f}")
        if system.p_value is None:
            cells += ["", "", ""]
        else:
            cells += [_signed(system.difference), _format_p(system.p_value), "✓" if significant else ""]
        rows.append(cells)
        verdict = "better" if system.difference > 0 else "worse"
        verdicts.append(verdict if significant else "")
    deviation = ["± runs>"] if several_runs else []
    headings = [comparison.metric, "score>", *deviation, "95% interval>", "difference>", "p>", ""]
    return TableData(headings, rows, bold_column=1, verdicts=verdicts)


def runs_table(result: ComparisonResult) -> TableData:
    """The scores of each run, for systems that have several."""
    scores = [comparison.systems for comparison in result.comparisons]
    rows = []
    for i, system in enumerate(result.systems):
        for j, run in enumerate(system.runs if len(system.runs) > 1 else ()):
            figures = [f"{systems[i].runs[j]:.1f}" for systems in scores]
            seed = UNKNOWN_CELL if run.seed is None else str(run.seed)
            rows.append([system.name, run.system.name, seed, *figures])
    metrics = (f"{comparison.metric}>" for comparison in result.comparisons)
    return TableData(["each run", "", "seed>", *metrics], rows)


def significance_notes(result: ComparisonResult) -> list[str]:
    """Which tests the p-values come from, and what they mean."""
    first = visible(result.systems[0].name)
    tests = {system.test for comparison in result.comparisons for system in comparison.systems}
    notes = [
        f"Each system is compared with {first}; ✓ marks p < {SIGNIFICANCE_LEVEL}. "
        "With several systems, use a stricter threshold."
    ]
    if "randomization" in tests:
        subject = "p for one run against one" if "bootstrap" in tests else "p"
        notes.append(
            f"{subject}: probability of a difference at least this large by chance on such sentences, by approximate "
            f"randomization ({RANDOMIZATION_TRIALS:,} trials). It says nothing about other seeds."
        )
    return notes + (_seed_notes(result) if "bootstrap" in tests else [])


def _seed_notes(result: ComparisonResult) -> list[str]:
    """How systems of several runs are compared, and what too few runs cannot show."""
    notes = [
        "A system of several runs has the mean of their scores, ± their standard deviation, and an interval over other "
        f"sentences and seeds, from a hierarchical bootstrap: {BOOTSTRAP_RESAMPLES:,} resamples of sentences (bs and "
        "seed in the signatures), the same for all systems, and of runs, widened by Student's t for few runs (Welch's "
        "degrees of freedom). p is the fraction of resamples that deviate from the difference of the means by at least "
        "that difference."
    ]
    if any(len(system.runs) == 1 for system in result.systems):
        notes.append("For a system with one run, the effect of another seed is unknown and not included.")
    first, *others = result.comparisons[0].systems
    if not all(has_enough_runs(first, system) for system in others):
        notes.append(
            f"There is no ✓, whatever p is, if one system has fewer than {MIN_RUNS} runs and the other has several: "
            "two runs say little about other seeds, one says nothing."
        )
    return notes


def cost_notes(result: ComparisonResult) -> list[str]:
    """How the systems were run, where they were trained, and what the cost includes."""
    costs = [(system.name, system.training) for system in result.systems if system.training is not None]
    decoding = dict.fromkeys(
        f"Translated on {system.device} in {system.decoding['precision']} with beam {system.decoding['beam']}."
        for system in result.systems
        if system.decoding is not None
    )
    if not costs:
        return [*decoding]
    mean = " mean over runs;" if _has_several_runs(result) else ""
    return [
        *decoding,
        f"Training:{mean} time without validation and checkpoints; operations counted from the model's arithmetic, "
        "without padding (the paper's Table 2 estimates them from time and GPU).",
        *_device_notes(costs),
        *(
            f"* {visible(name)}: fine-tuning only; the training of {visible(cost.start)} is not counted."
            for name, cost in costs
            if cost.start
        ),
    ]


def _device_notes(costs: Sequence[tuple[str, TrainingCost]]) -> list[str]:
    """The devices on which systems were trained, with names if there are several."""
    systems_by_device: dict[str, list[str]] = {}
    for name, cost in costs:
        systems_by_device.setdefault(cost.device, []).append(name)
    return [
        f"Trained on {visible(device)}" + (f": {visible(', '.join(names))}" if len(systems_by_device) > 1 else "") + "."
        for device, names in systems_by_device.items()
    ]


def _show_table(console: Console, data: TableData) -> None:
    if not data.rows:
        return
    table = plain_table(*data.headings)
    for number, row in enumerate(data.rows):
        cells = [escape(visible(cell)) for cell in row]
        if data.bold_column is not None:
            cells[data.bold_column] = f"[bold]{cells[data.bold_column]}[/]"
        style = {"better": "green", "worse": "red"}.get(data.verdicts[number] if data.verdicts else "")
        if style:
            cells[-3:] = [f"[{style}]{cell}[/]" for cell in cells[-3:]]
        table.add_row(*cells)
    console.print(table)
    console.print()


def _show_sentence(console: Console, sentence: DifferingSentence, names: Sequence[str]) -> None:
    console.print(f"\n[dim]line {sentence.line}[/]")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis", max_width=console.width // 3)
    table.add_column(overflow="fold")
    table.add_row("", "source", escape(visible(sentence.source)))
    for reference in sentence.references:
        table.add_row("", "reference", escape(visible(reference)))
    best = max(sentence.chrf)
    for name, output, chrf, segments in zip(names, sentence.outputs, sentence.chrf, sentence.diffs, strict=True):
        style = "green" if chrf == best else "none"
        text = Text("(empty)", style="dim") if not output.strip() else _diff_text(segments)
        table.add_row(f"[{style}]{chrf:.0f}[/]", escape(visible(name)), text)
    console.print(table)


def _diff_text(segments: Sequence[DiffSegment]) -> Text:
    """An output with its differences marked and coloured."""
    text = Text()
    for gap, segment in _with_spaces(segments):
        text.append(gap)
        text.append(*_marked(segment.text, segment.mark))
    return text


def _marked(text: str, mark: str) -> tuple[str, str]:
    """A text between the brackets of its mark, and the colour; the brackets suffice where there is no colour."""
    before, after, style = {"same": ("", "", ""), "wrong": ("[-", "-]", "red"), "missing": ("{+", "+}", "green")}[mark]
    return f"{before}{visible(text)}{after}", style


def _with_spaces(segments: Sequence[DiffSegment]) -> list[tuple[str, DiffSegment]]:
    """Each segment with the white space before it: a space, except before closing punctuation."""
    return [
        ("" if not i or (segment.mark == "same" and segment.text.startswith(CLOSING_PUNCTUATION)) else " ", segment)
        for i, segment in enumerate(segments)
    ]


def _scores_markdown(result: ComparisonResult) -> list[str]:
    """Scores by each metric, how certain they are, and what they may be compared with."""
    return [
        "## Scores",
        *(_table_markdown(metric_table(comparison)) for comparison in result.comparisons),
        _table_markdown(runs_table(result)),
        _bullets(significance_notes(result)),
        "sacreBLEU signatures:",
        "\n".join(f"- {score.name}: `{score.signature}`" for score in _example_scores(result)),
        f"**{escape_markdown(result.note.test_set.rstrip('.'))}**",
        _bullets((*result.note.comparable, *result.note.warnings)),
    ]


def _sentences_markdown(result: ComparisonResult) -> list[str]:
    """The sentences that differ most, each as a table."""
    if not result.differing:
        is_identical = result.identical == result.sentences
        return ["All systems give the same output for every sentence."] if is_identical else []
    wrong, missing = (_segment_markdown(DiffSegment("text", mark)) for mark in ("wrong", "missing"))
    return [
        "## Largest differences",
        f"By chrF2++ of the sentence; {_identical(result)}. {wrong} is not in the reference, {missing} is missing.",
        *(_sentence_markdown(sentence, [system.name for system in result.systems]) for sentence in result.differing),
    ]


def _sentence_markdown(sentence: DifferingSentence, names: Sequence[str]) -> str:
    texts = [["source", "", sentence.source], *(["reference", "", reference] for reference in sentence.references)]
    rows = [[_escaped(cell) for cell in row] for row in texts]
    for name, output, chrf, segments in zip(names, sentence.outputs, sentence.chrf, sentence.diffs, strict=True):
        marked = "".join(f"{gap}{_segment_markdown(segment)}" for gap, segment in _with_spaces(segments))
        rows.append([escape_markdown(name), f"{chrf:.0f}", marked if output.strip() else "*(empty)*"])
    return _rows_markdown([f"line {sentence.line}", "chrF2++>", ""], rows)


def _segment_markdown(segment: DiffSegment) -> str:
    """A text between the Markdown signs of its mark, which always have spaces or punctuation around them."""
    sign = {"same": "", "wrong": "~~", "missing": "**"}[segment.mark]
    return f"{sign}{_escaped(segment.text)}{sign}"


def _table_markdown(data: TableData) -> str:
    if not data.rows:
        return ""
    rows = [[escape_markdown(cell) for cell in row] for row in data.rows]
    if data.bold_column is not None:
        for row in rows:
            row[data.bold_column] = f"**{row[data.bold_column]}**"
    return _rows_markdown(data.headings, rows)


def _rows_markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of cells that are already Markdown."""
    names = [heading.removesuffix(">") for heading in headings]
    return markdown_table(names, rows, [heading.endswith(">") for heading in headings])


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {_escaped(text)}" for text in texts)


def _escaped(text: str) -> str:
    """A text of any length, escaped for Markdown."""
    return escape_markdown_words(text).strip()


def _example_scores(result: ComparisonResult) -> list[SacrebleuScore]:
    """One score by each metric, for its signature, which all systems share."""
    return [comparison.systems[0].score for comparison in result.comparisons]


def _identical(result: ComparisonResult) -> str:
    runs = "first run of each system; " if _has_several_runs(result) else ""
    return f"{runs}all outputs are the same for {result.identical:,} of {result.sentences:,}"


def _has_several_runs(result: ComparisonResult) -> bool:
    return any(len(system.runs) > 1 for system in result.systems)


def _is_significant(system: SystemComparison, first: SystemComparison) -> bool:
    return system.p_value is not None and system.p_value < SIGNIFICANCE_LEVEL and has_enough_runs(first, system)


def _format_p(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def _signed(difference: float) -> str:
    return f"{round(difference, 1) + 0.0:+.1f}"  # + 0.0 turns -0.0 into 0.0
