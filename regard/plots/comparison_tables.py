"""Systems side by side, on a terminal and as Markdown: scores, what they cost, and what each got wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from regard.evaluation.comparison import Apart, ComparisonResult, Piece, Training
from regard.evaluation.metrics import RESAMPLES, TRIALS, Compared, Comparison, Score
from regard.evaluation.multi_run import ENOUGH, enough_runs
from regard.formatting import duration, escape_markdown, escape_markdown_words, markdown_table, visible
from regard.plots.run_report import power
from regard.plots.score_tables import millions, plain_table, show_note, show_signatures

SURE = 0.05
"""a p-value below which a difference is not laid to chance"""
CLOSING = tuple(".,;:!?…)")
"""marks that stand close behind a word"""
UNKNOWN = "–"


@dataclass(frozen=True)
class Grid:
    """A table before it is drawn: heads, of which those that end in > are over numbers, and rows of texts."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: int | None = None
    """the column that matters most"""
    verdicts: Sequence[str] = field(default_factory=tuple)
    """of each row: better, worse, or nothing; its cells behind the interval are coloured so"""


def show_comparison(console: Console, result: ComparisonResult) -> None:
    """Systems side by side, by each metric, what they cost, and the sentences where they part most."""
    console.print(f"{result.sentences:,} sentences of {escape(' and '.join(result.files))}\n")
    for grid in (systems_grid(result), training_grid(result)):
        _show_grid(console, grid)
    for comparison in result.comparisons:
        _show_grid(console, metric_grid(comparison))
    _show_grid(console, runs_grid(result))
    for text in (*tests_told(result), *costs_told(result)):
        console.print(Text(text, style="dim"))
    console.print()
    show_signatures(console, _signed_scores(result))
    show_note(console, result.note)
    if result.apart:
        console.print(f"[bold]Furthest apart[/] by chrF2++ of the sentence; {_same(result)}")
        console.print(
            Text.assemble(*_signs("not in the reference", "wrong"), ", ", *_signs("missing", "missing")), style="dim"
        )
        for apart in result.apart:
            _show_apart(console, apart, [system.name for system in result.systems])
    elif result.identical == result.sentences:
        console.print("All wrote the same for every sentence.")


def comparison_markdown(result: ComparisonResult) -> str:
    """The same as a page of Markdown: whatever the texts hold, nothing in them is markup."""
    files = " and ".join(f"{escape_markdown(file)}" for file in result.files)
    sections = [
        "# Translators side by side",
        f"{result.sentences:,} sentences of {files}.",
        *_scores_markdown(result),
        "## What they are, and what they cost",
        _markdown(systems_grid(result)),
        _markdown(training_grid(result)),
        _bullets(costs_told(result)),
        *_sentences_markdown(result),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def systems_grid(result: ComparisonResult) -> Grid:
    """How large and how fast each system is, and how many of its outputs look odd."""
    several = _several(result)
    rows = []
    for system, suspects in zip(result.systems, result.suspects, strict=True):
        size = UNKNOWN if system.parameters is None else millions(system.parameters)
        speed = UNKNOWN if system.speed is None else f"{system.speed.per_second:,.1f}"
        odd = f"{sum(suspects.values()) / len(system.runs):,.1f}".removesuffix(".0")
        rows.append([system.name, *[f"{len(system.runs)}"] * several, size, speed, odd])
    return Grid(["", *["runs>"] * several, "parameters>", "sentences/s>", "to look at>"], rows)


def training_grid(result: ComparisonResult) -> Grid:
    """What the training of each system took, in the mean over its runs; empty where nothing is known."""
    rows = []
    for system in result.systems:
        told = system.training
        if told is None:
            rows.append([system.name, *[UNKNOWN] * 3])
            continue
        flops = UNKNOWN if told.flops is None else power(told.flops)
        rows.append(
            [f"{system.name}{' *' * bool(told.start)}", duration(told.seconds), millions(round(told.tokens)), flops]
        )
    known = any(system.training for system in result.systems)
    return Grid(["training", "time>", "target tokens>", "operations>"], rows if known else [])


def metric_grid(comparison: Comparison) -> Grid:
    """Scores by one metric, each against the first."""
    several = any(each.deviation is not None for each in comparison.systems)
    heads = [comparison.metric, "score>", *["± runs>"] * several, "95 % interval>", "difference>", "p>", ""]
    rows, verdicts = [], []
    for each in comparison.systems:
        score, sure = each.score, _sure(each, comparison.systems[0])
        spread = "" if each.deviation is None else f"{each.deviation:.2f}"
        beside = ["", "", ""] if each.p_value is None else [_signed(each.difference), _p(each.p_value), "✓" * sure]
        rows.append(
            [each.system, f"{score.score:.1f}", *[spread] * several, f"{score.low:.1f} – {score.high:.1f}", *beside]
        )
        verdicts.append(("better" if each.difference > 0 else "worse") * sure)
    return Grid(heads, rows, bold=1, verdicts=verdicts)


def runs_grid(result: ComparisonResult) -> Grid:
    """The scores of each run by itself, of systems that have several."""
    scores = [comparison.systems for comparison in result.comparisons]
    rows = []
    for i, system in enumerate(result.systems):
        for j, run in enumerate(system.runs if len(system.runs) > 1 else ()):
            figures = [f"{each[i].runs[j]:.1f}" for each in scores]
            seed = UNKNOWN if run.seed is None else str(run.seed)
            rows.append([system.name, run.system.name, seed, *figures])
    return Grid(["each run", "", "seed>", *(f"{each.metric}>" for each in result.comparisons)], rows)


def tests_told(result: ComparisonResult) -> list[str]:
    """Which tests the p-values come from, and what they say."""
    first = visible(result.systems[0].name)
    tests = {each.test for comparison in result.comparisons for each in comparison.systems}
    told = [f"Each against {first}; ✓ where p is below {SURE}. With several systems ask more of each."]
    if "randomization" in tests:
        what = "p of one run against one" if "bootstrap" in tests else "p"
        told.append(
            f"{what}: how often chance alone would part the two so far on such sentences, by approximate "
            f"randomization ({TRIALS:,} trials). Of other seeds it says nothing."
        )
    return told + (_seeds_told(result) if "bootstrap" in tests else [])


def _seeds_told(result: ComparisonResult) -> list[str]:
    """What is done where systems have several runs, and what too few runs do not tell."""
    told = [
        "Where a system has several runs: their mean, ± their standard deviation, and an interval for other "
        f"sentences and other seeds, by a hierarchical bootstrap: {RESAMPLES:,} draws of sentences (bs and seed in the "
        "signatures), the same for all, and of runs with each, widened by Student's t for what few runs do not tell "
        "(Welch's degrees of freedom). p is how often such draws move the difference of the means as far as it is "
        "from 0."
    ]
    if any(len(system.runs) == 1 for system in result.systems):
        told.append(
            "Of a system with one run it is not known what another seed would do: its figures take it as it is."
        )
    first, *others = result.comparisons[0].systems
    if not all(enough_runs(first, each) for each in others):
        told.append(
            f"No ✓, whatever p is, where one of the two has fewer than {ENOUGH} runs and the other several: two runs "
            "tell little of other seeds, one nothing."
        )
    return told


def costs_told(result: ComparisonResult) -> list[str]:
    """How systems were asked; where training took place, what is counted, and what is not."""
    trained = [(system.name, system.training) for system in result.systems if system.training is not None]
    asked = dict.fromkeys(
        f"Translated on {system.device} in {system.decoding['precision']}, with a beam of {system.decoding['beam']}."
        for system in result.systems
        if system.decoding is not None
    )
    if not trained:
        return [*asked]
    many = " in the mean over runs;" * _several(result)
    return [
        *asked,
        f"Training:{many} time without validating and saving; operations counted from the model's arithmetic, without "
        "padding (the paper's Table 2 estimates them from time and GPU).",
        *_places_told(trained),
        *(
            f"* {visible(name)}: fine-tuning alone; what it started from ({visible(training.start)}) is not counted."
            for name, training in trained
            if training.start
        ),
    ]


def _places_told(trained: Sequence[tuple[str, Training]]) -> list[str]:
    """Where systems were trained; by name, if in several places."""
    places: dict[str, list[str]] = {}
    for name, training in trained:
        places.setdefault(training.place, []).append(name)
    return [
        f"Trained on {visible(place)}" + (f": {visible(', '.join(names))}" if len(places) > 1 else "") + "."
        for place, names in places.items()
    ]


def _show_grid(console: Console, grid: Grid) -> None:
    if not grid.rows:
        return
    table = plain_table(*grid.heads)
    for number, row in enumerate(grid.rows):
        cells = [escape(visible(cell)) for cell in row]
        if grid.bold is not None:
            cells[grid.bold] = f"[bold]{cells[grid.bold]}[/]"
        style = {"better": "green", "worse": "red"}.get(grid.verdicts[number] if grid.verdicts else "")
        if style:
            cells[-3:] = [f"[{style}]{cell}[/]" for cell in cells[-3:]]
        table.add_row(*cells)
    console.print(table)
    console.print()


def _show_apart(console: Console, apart: Apart, names: Sequence[str]) -> None:
    console.print(f"\n[dim]line {apart.line}[/]")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis", max_width=console.width // 3)
    table.add_column(overflow="fold")
    table.add_row("", "source", escape(visible(apart.source)))
    for reference in apart.references:
        table.add_row("", "reference", escape(visible(reference)))
    best = max(apart.chrf)
    for name, output, chrf, pieces in zip(names, apart.outputs, apart.chrf, apart.mistakes, strict=True):
        style = "green" if chrf == best else "none"
        marked = Text("(nothing)", style="dim") if not output.strip() else _joined(pieces)
        table.add_row(f"[{style}]{chrf:.0f}[/]", escape(visible(name)), marked)
    console.print(table)


def _joined(pieces: Sequence[Piece]) -> Text:
    """An output with signs and colours on what is wrong with it."""
    text = Text()
    for gap, piece in _spaced(pieces):
        text.append(gap)
        for part in _signs(piece.text, piece.mark):
            text.append(*part)
    return text


def _signs(text: str, mark: str) -> list[tuple[str, str]]:
    """A text in a terminal between the signs of its mark, with their colour: they do without it too."""
    before, behind, style = {"same": ("", "", ""), "wrong": ("[-", "-]", "red"), "missing": ("{+", "+}", "green")}[mark]
    return [(f"{before}{visible(text)}{behind}", style)]


def _spaced(pieces: Sequence[Piece]) -> list[tuple[str, Piece]]:
    """Each piece with what stands before it: a space, but for marks that close a sentence."""
    return [
        ("" if not i or (piece.mark == "same" and piece.text.startswith(CLOSING)) else " ", piece)
        for i, piece in enumerate(pieces)
    ]


def _scores_markdown(result: ComparisonResult) -> list[str]:
    """By each metric, how sure that is, and what it may be compared with."""
    return [
        "## Scores",
        *(_markdown(metric_grid(comparison)) for comparison in result.comparisons),
        _markdown(runs_grid(result)),
        _bullets(tests_told(result)),
        "sacreBLEU's signatures:",
        "\n".join(f"- {each.name}: `{each.signature}`" for each in _signed_scores(result)),
        f"**{escape_markdown(result.note.test_set.rstrip('.'))}**",
        _bullets((*result.note.comparable, *result.note.warnings)),
    ]


def _sentences_markdown(result: ComparisonResult) -> list[str]:
    """The sentences where systems part most, each as a table."""
    if not result.apart:
        return ["All wrote the same for every sentence."] * (result.identical == result.sentences)
    wrong, missing = (_sign_markdown(Piece("so", mark)) for mark in ("wrong", "missing"))
    return [
        "## Where they are furthest apart",
        f"By chrF2++ of the sentence; {_same(result)}. {wrong} is not in the reference, {missing} is missing.",
        *(_apart_markdown(apart, [system.name for system in result.systems]) for apart in result.apart),
    ]


def _apart_markdown(apart: Apart, names: Sequence[str]) -> str:
    rows = [["source", "", apart.source], *(["reference", "", each] for each in apart.references)]
    written = [[_whole(cell) for cell in row] for row in rows]
    for name, output, chrf, pieces in zip(names, apart.outputs, apart.chrf, apart.mistakes, strict=True):
        marked = "".join(f"{gap}{_sign_markdown(piece)}" for gap, piece in _spaced(pieces))
        written.append([escape_markdown(name), f"{chrf:.0f}", marked if output.strip() else "*(nothing)*"])
    return _lines([f"line {apart.line}", "chrF2++>", ""], written)


def _sign_markdown(piece: Piece) -> str:
    """A text between signs. There are spaces around them or marks behind them, as Markdown wants it."""
    sign = {"same": "", "wrong": "~~", "missing": "**"}[piece.mark]
    return f"{sign}{_whole(piece.text)}{sign}"


def _markdown(grid: Grid) -> str:
    if not grid.rows:
        return ""
    rows = [[escape_markdown(cell) for cell in row] for row in grid.rows]
    if grid.bold is not None:
        for row in rows:
            row[grid.bold] = f"**{row[grid.bold]}**"
    return _lines(grid.heads, rows)


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, of cells that are Markdown already."""
    return markdown_table([head.removesuffix(">") for head in heads], rows, [head.endswith(">") for head in heads])


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {_whole(text)}" for text in texts)


def _whole(text: str) -> str:
    """A text in Markdown as it is, as `escape_markdown`, however long it is: its words alone are cut."""
    return escape_markdown_words(text).strip()


def _signed_scores(result: ComparisonResult) -> list[Score]:
    """A score by each metric, for its signature: all systems have the same."""
    return [comparison.systems[0].score for comparison in result.comparisons]


def _same(result: ComparisonResult) -> str:
    which = "the first run of each; " * _several(result)
    return f"{which}all wrote the same for {result.identical:,} of {result.sentences:,}"


def _several(result: ComparisonResult) -> bool:
    return any(len(system.runs) > 1 for system in result.systems)


def _sure(compared: Compared, first: Compared) -> bool:
    return compared.p_value is not None and compared.p_value < SURE and enough_runs(first, compared)


def _p(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def _signed(difference: float) -> str:
    return f"{round(difference, 1) + 0.0:+.1f}"  # no -0.0
