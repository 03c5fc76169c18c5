"""Tables of evaluation results: scores, what they may be compared with, and suspicious outputs."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.evaluation.alignment import AlignmentScore, AlignmentScores
from regard.evaluation.classification import ClassScore, ClassScores
from regard.evaluation.comparability import ComparabilityNote
from regard.evaluation.metrics import SacrebleuScore
from regard.evaluation.proportions import Proportion
from regard.evaluation.results import (
    AlignedAttention,
    ClassificationResult,
    LanguageResult,
    MaskedResult,
    SuspiciousOutput,
    System,
    TaggingResult,
    TranslationResult,
)
from regard.evaluation.suspicious_outputs import SUSPICION_KINDS
from regard.evaluation.tag_accuracy import TagAccuracy
from regard.formatting import rate, short_number, shorten

MAX_SUSPICIOUS_SHOWN = 5
"""Maximum number of suspicious outputs that are shown in full."""
MAX_TEXT_SHOWN = 160
"""Maximum length of a source or output that is shown, in characters."""
MIN_WIDTH_FOR_DESCRIPTIONS = 100
"""Number of terminal columns from which tags are shown with their descriptions."""
TAG_FIGURES_WIDTH = 66
"""Maximum number of columns that the name and figures of a tag take."""
MAX_CONFUSION_CLASSES = 10
"""Maximum number of classes for a confusion matrix; with more, only the most frequent confusions are listed."""


def show_translation(
    console: Console, result: TranslationResult, tag_descriptions: Mapping[str, str] | None = None
) -> None:
    """Print scores, comparability, suspicious outputs and, where there is gold, accuracy by tag and alignment."""
    _show_heading(console, result.system, result.files, f"{result.scores.sentences:,} sentences")
    scores = (result.scores.bleu, result.scores.bleu_lowercase, result.scores.chrf)
    table = plain_table("", "score>", "95% interval>")
    for score in scores:
        table.add_row(score.name, f"[bold]{score.value:.1f}[/]", f"{score.low:.1f} – {score.high:.1f}")
    console.print(table)
    console.print()
    show_signatures(console, scores)
    show_note(console, result.scores.note)
    _show_suspicious(console, result.suspicious_counts, result.suspicious)
    if result.tag_accuracy:
        _show_tag_accuracy(console, result.tag_accuracy, tag_descriptions or {})
    if result.alignment:
        _show_alignment(console, result.alignment, result.attention or "cross")


def show_language(console: Console, result: LanguageResult) -> None:
    """Print loss, perplexity and bits per byte, and the context the model had."""
    score = result.score
    _show_heading(console, result.system, result.files, f"{score.tokens:,} tokens, {score.bytes:,} bytes")
    table = plain_table("", ">", "")
    perplexity = f"{score.perplexity:,.2f}" if score.perplexity < 1e9 else f"{score.perplexity:.2e}"
    rows = (
        ("loss", f"{score.loss:.4f}", "nats per token"),
        ("perplexity", perplexity, "per token: comparable only with the same tokenizer"),
        ("bits per byte", f"{score.bits_per_byte:.4f}", "of UTF-8: comparable between tokenizers on the same text"),
    )
    for name, figure, meaning in rows:
        table.add_row(name, f"[bold]{figure}[/]", f"[dim]{meaning}[/]")
    console.print(table)
    console.print(f"\n{escape(_describe_context(result))}")


def show_masked(console: Console, result: MaskedResult) -> None:
    """Print loss, pseudo-perplexity and accuracy."""
    score = result.score
    _show_heading(console, result.system, result.files, f"{score.tokens:,} tokens")
    table = plain_table("", ">", "")
    perplexity = (
        f"{score.pseudo_perplexity:,.2f}" if score.pseudo_perplexity < 1e9 else f"{score.pseudo_perplexity:.2e}"
    )
    rows = (
        ("loss", f"{score.loss:.4f}", "nats per masked token"),
        ("pseudo-perplexity", perplexity, "comparable only between masked language models with the same tokenizer"),
        ("accuracy", f"{score.accuracy:.1%}", "tokens whose most likely replacement is correct"),
    )
    for name, figure, meaning in rows:
        table.add_row(name, f"[bold]{figure}[/]", f"[dim]{meaning}[/]")
    console.print(table)
    texts = "1 text" if result.texts == 1 else f"{result.texts:,} texts"
    console.print(
        f"\nEach line is one text ({texts} in total). Every token was masked once, and predicted from all others."
    )


def show_classification(console: Console, result: ClassificationResult) -> None:
    """Print accuracy, the scores of each class, and the confusion matrix."""
    scores = result.scores
    _show_heading(console, result.system, result.files, f"{scores.accuracy.total:,} texts")
    table = plain_table("", ">", "95% interval>", "")
    accuracy = scores.accuracy
    counts = f"[dim]{accuracy.correct:,} of {accuracy.total:,}[/]"
    table.add_row("accuracy", f"[bold]{accuracy.value:.1%}[/]", _interval(accuracy), counts)
    table.add_row("macro-F1", f"[bold]{scores.macro_f1:.1%}[/]", "", "[dim]mean over the classes[/]")
    table.add_row("most frequent class", f"{scores.majority:.1%}", "", "[dim]accuracy of always predicting it[/]")
    console.print(table)
    console.print()
    console.print(_class_table("class", "texts", scores.classes))
    console.print()
    if len(scores.classes) <= MAX_CONFUSION_CLASSES:
        console.print(_confusion_matrix(scores))
    else:
        _show_confusions(console, scores)


def show_tagging(console: Console, result: TaggingResult) -> None:
    """Print accuracy, the scores of spans and of each label, and the most frequent confusions."""
    words, spans = result.scores.words, result.scores.spans
    amount = f"{result.scores.sentences:,} sentences, {words.accuracy.total:,} words"
    _show_heading(console, result.system, result.files, amount)
    if result.skipped:
        count = sum(skipped.count for skipped in result.skipped)
        noun = "sentence was" if count == 1 else "sentences were"
        console.print(f"[yellow]![/] {count:,} {noun} skipped and not scored:")
        for skipped in result.skipped:
            console.print(Padding(escape(str(skipped)), (0, 0, 0, 2), expand=False))
        console.print()
    table = plain_table("", ">", "95% interval>", "")
    accuracy = words.accuracy
    counts = f"[dim]{accuracy.correct:,} of {accuracy.total:,} words[/]"
    table.add_row("accuracy", f"[bold]{accuracy.value:.1%}[/]", _interval(accuracy), counts)
    if spans is not None:
        figures = f"[dim]precision {spans.precision:.1%}, recall {spans.recall:.1%}, {spans.count:,} spans[/]"
        table.add_row("F1 of spans", f"[bold]{spans.f1:.1%}[/]", "", figures)
        table.add_row("macro-F1 of spans", f"{spans.macro_f1:.1%}", "", "[dim]mean over the types[/]")
    else:
        table.add_row("macro-F1", f"[bold]{words.macro_f1:.1%}[/]", "", "[dim]mean over the labels[/]")
    table.add_row("most frequent label", f"{words.majority:.1%}", "", "[dim]accuracy of always predicting it[/]")
    console.print(table)
    console.print()
    if spans is not None:
        console.print(_class_table("type", "spans", spans.types))
        console.print()
    console.print(_class_table("label", "words", words.classes))
    if accuracy.correct < accuracy.total:
        console.print()
        _show_confusions(console, words)


def _class_table(heading: str, unit: str, classes: Sequence[ClassScore]) -> Table:
    table = plain_table(heading, "precision>", "recall>", "F1>", f"{unit}>")
    for score in classes:
        figures = (f"{value:.1%}" for value in (score.precision, score.recall, score.f1))
        table.add_row(escape(score.name), *figures, f"{score.count:,}")
    return table


def show_signatures(console: Console, scores: Sequence[SacrebleuScore]) -> None:
    """Print each signature on one unbroken line, so that it can be copied."""
    for score in scores:
        console.print(Text(f"{score.name}: {score.signature}", style="dim"), soft_wrap=True)
    console.print()


def show_note(console: Console, note: ComparabilityNote) -> None:
    """Print what the test set is, what its scores may be compared with, and warnings."""
    console.print(f"[bold]{escape(note.test_set)}[/]")
    for text in note.comparable:
        console.print(Padding(escape(text), (0, 0, 0, 2), expand=False))
    for text in note.warnings:
        console.print(Padding(f"[yellow]![/] {escape(text)}", (0, 0, 0, 2), expand=False))
    console.print()


def plain_table(*columns: str) -> Table:
    """A table without borders. A column whose heading ends in > is right-aligned."""
    has_headings = any(column.removesuffix(">") for column in columns)
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0), show_header=has_headings)
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left")
    return table


def _show_heading(console: Console, system: System, files: Sequence[str], amount: str) -> None:
    facts = []
    if system.parameters is not None:
        facts.append(f"{short_number(system.parameters)} parameters")
    if system.device is not None:
        facts.append(f"on {system.device}")
    if system.decoding is not None:
        facts += [f"in {system.decoding['precision']}", f"beam {system.decoding['beam']}"]
    if system.speed is not None:
        facts.append(f"{rate(system.speed.per_second)} {system.speed.unit}/s")
    console.print(f"[bold]{escape(system.name)}[/] on {escape(' and '.join(files))}: {amount}")
    console.print(f"[dim]{', '.join(facts) or 'outputs from a file'}[/]\n")


def _show_suspicious(console: Console, counts: Mapping[str, int], suspicious: Sequence[SuspiciousOutput]) -> None:
    if not counts:
        console.print("No suspicious outputs: no loops, copies or unexpected lengths.")
        return
    table = plain_table("suspicious outputs", "count>", "", "first lines")
    for kind, count in counts.items():
        lines = [output.line for output in suspicious if output.kind == kind]
        first = ", ".join(map(str, lines[:3])) + (" …" if len(lines) > 3 else "")
        table.add_row(f"[yellow]{kind}[/]", f"{count:,}", f"[dim]{SUSPICION_KINDS[kind]}[/]", first)
    console.print(table)
    console.print()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    by_line: dict[int, list[SuspiciousOutput]] = {}
    for output in _alternate_kinds(suspicious):
        by_line.setdefault(output.line, []).append(output)
    for line, reasons in list(by_line.items())[:MAX_SUSPICIOUS_SHOWN]:
        table.add_row(str(line), escape(shorten(reasons[0].source, MAX_TEXT_SHOWN)))
        table.add_row("→", escape(shorten(reasons[0].output, MAX_TEXT_SHOWN)) or "[dim](empty)[/]")
        for reason in reasons:
            table.add_row("", f"[yellow]{reason.kind}[/][dim]: {escape(reason.detail)}[/]")
    console.print(table)


def _alternate_kinds(suspicious: Sequence[SuspiciousOutput]) -> list[SuspiciousOutput]:
    """The outputs ordered so that one of each kind comes before a second of any."""
    counts: Counter[str] = Counter()
    ranks = []
    for output in suspicious:
        counts[output.kind] += 1
        ranks.append(counts[output.kind])
    return [output for _, output in sorted(zip(ranks, suspicious, strict=True), key=lambda pair: pair[0])]


def _show_tag_accuracy(console: Console, accuracy: TagAccuracy, descriptions: Mapping[str, str]) -> None:
    overall = accuracy.overall
    console.print(
        f"\n[bold]Exact match: {overall.value:.1%}[/] ({_interval(overall)}), {overall.correct:,} of "
        f"{overall.total:,} sentences; by tag, lowest first\n"
    )
    with_descriptions = console.width >= MIN_WIDTH_FOR_DESCRIPTIONS and bool(descriptions)
    columns = ["", "correct>", "of>", ">", "95% interval>"]
    table = plain_table(*columns, *([""] if with_descriptions else []))
    for tag, score in accuracy.by_tag.items():
        row = [escape(tag), f"{score.correct:,}", f"{score.total:,}", f"[bold]{score.value:.1%}[/]", _interval(score)]
        if with_descriptions:
            row.append(f"[dim]{escape(descriptions.get(tag, ''))}[/]")
        table.add_row(*row)
    if with_descriptions:
        column = table.columns[-1]
        column.no_wrap, column.overflow, column.max_width = True, "ellipsis", console.width - TAG_FIGURES_WIDTH
    console.print(table)


def _show_alignment(console: Console, scores: Mapping[str, AlignmentScores], attention: AlignedAttention) -> None:
    """Print error rates, with one column for each way to assign rows to tokens."""
    name = {"cross": "cross-attention", "decoder": "self-attention from target to source"}[attention]
    console.print(f"\n[bold]Alignment error rate of {name}[/] against the gold links, with the reference as target\n")
    columns = [column for row_token in scores for column in (f"{row_token} a word>", "")]
    table = plain_table("", *columns)
    for cells in zip(*(_error_rates(score) for score in scores.values()), strict=True):
        table.add_row(cells[0][0], *(cell for _, rate, where in cells for cell in (rate, f"[dim]{where}[/]")))
    console.print(table)
    console.print(
        "\n[dim]Each target word is linked to the source word with the most weight, in the row that writes the word or "
        "in the row that reads it. Layers and heads are counted from 0. The best ones are selected on the same "
        "sentences. The diagonal ignores the text.[/]"
    )


def _error_rates(scores: AlignmentScores) -> list[tuple[str, str, str]]:
    """What is scored, its error rate, and the layer and head."""
    layer, head = scores.best
    best_layer = min(range(len(scores.layers)), key=lambda i: scores.layers[i].error_rate)
    return [
        ("best head", f"[bold]{_rate(scores.heads[layer][head])}[/]", f"layer {layer} head {head}"),
        ("best layer", _rate(scores.layers[best_layer]), f"layer {best_layer}"),
        ("mean of all", _rate(scores.mean), ""),
        ("diagonal", _rate(scores.diagonal), ""),
        ("lowest possible", _rate(scores.reachable), ""),
    ]


def _confusion_matrix(scores: ClassScores) -> Table:
    names = [score.name for score in scores.classes]
    table = plain_table("label ↓  predicted →", *(f"{escape(shorten(name, 14))}>" for name in names))
    for i, (name, row) in enumerate(zip(names, scores.confusion, strict=True)):
        cells = [f"[bold green]{n:,}[/]" if i == j else f"{n:,}" if n else "[dim]·[/]" for j, n in enumerate(row)]
        table.add_row(escape(shorten(name, 30)), *cells)
    return table


def _show_confusions(console: Console, scores: ClassScores) -> None:
    names = [score.name for score in scores.classes]
    cells = [(count, i, j) for i, row in enumerate(scores.confusion) for j, count in enumerate(row) if i != j and count]
    table = plain_table("label", "predicted as", "times>")
    for count, i, j in sorted(cells, key=lambda cell: (-cell[0], cell[1:]))[:MAX_CONFUSION_CLASSES]:
        table.add_row(escape(names[i]), escape(names[j]), f"{count:,}")
    console.print(table)


def _describe_context(result: LanguageResult) -> str:
    """What the model saw of the text before each token."""
    unit = {"line": "Each line", "blank-line": "Each block between blank lines", "file": "The file"}[result.documents]
    texts = "1 text" if result.texts == 1 else f"{result.texts:,} texts"
    start = (
        f"It starts with {result.starts_with}."
        if result.starts_with
        else "Nothing precedes it, so its first token is not predicted."
    )
    return (
        f"{unit} is one text ({texts} in total). {start} It is read in windows of {result.context:,} tokens, "
        f"{result.stride:,} tokens apart. Every token is predicted once; after the first window each has at least "
        f"{result.context - result.stride:,} tokens of context."
    )


def _interval(proportion: Proportion) -> str:
    return f"{proportion.low:.1%} – {proportion.high:.1%}"


def _rate(score: AlignmentScore) -> str:
    return f"{score.error_rate:.1%}"
