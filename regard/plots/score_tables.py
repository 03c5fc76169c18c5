"""Scores for people: tables that say what they may be compared with, and what to look at."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.evaluation.alignment import AlignmentScore, AlignmentScores
from regard.evaluation.classification import ClassScores
from regard.evaluation.comparability import Note
from regard.evaluation.evaluate import (
    Attention,
    ClassesResult,
    LanguageResult,
    Suspected,
    System,
    TranslationResult,
)
from regard.evaluation.metrics import Score
from regard.evaluation.petit_scores import PetitScore
from regard.evaluation.proportions import Share
from regard.evaluation.suspicious_outputs import KINDS
from regard.petit import PHENOMENA

EXAMPLES = 5
"""suspects that are shown"""
WIDE = 100
"""columns from which there is room for explanations"""
FIGURES = 66
"""columns that the name and figures of a phenomenon take at most"""
CLASSES = 10
"""classes up to which a confusion table can be read; beyond, the most frequent confusions are told"""


def show_translation(console: Console, result: TranslationResult) -> None:
    """Scores, what they may be compared with, outputs to look at, and Petit's gold where there is some."""
    _head(console, result.system, result.files, f"{result.scores.sentences:,} sentences")
    scores = (result.scores.bleu, result.scores.bleu_lowercase, result.scores.chrf)
    table = plain_table("", "score>", "95 % interval>")
    for score in scores:
        table.add_row(score.name, f"[bold]{score.score:.1f}[/]", f"{score.low:.1f} – {score.high:.1f}")
    console.print(table)
    console.print()
    show_signatures(console, scores)
    show_note(console, result.scores.note)
    _show_suspects(console, result.suspects, result.suspected)
    if result.petit:
        _show_petit(console, result.petit)
    if result.alignment:
        _show_alignment(console, result.alignment, result.attention or "cross")


def show_language(console: Console, result: LanguageResult) -> None:
    """The loss by its three names, and what the model saw."""
    score = result.score
    _head(console, result.system, result.files, f"{score.tokens:,} tokens, {score.bytes:,} bytes")
    table = plain_table("", ">", "")
    perplexity = f"{score.perplexity:,.2f}" if score.perplexity < 1e9 else f"{score.perplexity:.2e}"
    rows = (
        ("loss", f"{score.loss:.4f}", "nats per token"),
        ("perplexity", perplexity, "of a token: comparable with the same tokenizer alone"),
        ("bits per byte", f"{score.bits_per_byte:.4f}", "of UTF-8: comparable between tokenizers, on the same text"),
    )
    for name, figure, meaning in rows:
        table.add_row(name, f"[bold]{figure}[/]", f"[dim]{meaning}[/]")
    console.print(table)
    console.print(f"\n{escape(_context(result))}")


def show_classes(console: Console, result: ClassesResult) -> None:
    """Accuracy, each class by itself, and who is taken for whom."""
    scores = result.scores
    _head(console, result.system, result.files, f"{scores.accuracy.total:,} texts")
    table = plain_table("", ">", "95 % interval>", "")
    accuracy = scores.accuracy
    counted = f"[dim]{accuracy.correct:,} of {accuracy.total:,}[/]"
    table.add_row("accuracy", f"[bold]{accuracy.value:.1%}[/]", _interval(accuracy), counted)
    table.add_row("macro-F1", f"[bold]{scores.macro_f1:.1%}[/]", "", "[dim]the mean over classes, however rare[/]")
    table.add_row("most frequent class", f"{scores.majority:.1%}", "", "[dim]what always answering it would give[/]")
    console.print(table)
    console.print()
    table = plain_table("class", "precision>", "recall>", "F1>", "texts>")
    for each in scores.classes:
        figures = (f"{value:.1%}" for value in (each.precision, each.recall, each.f1))
        table.add_row(escape(each.name), *figures, f"{each.count:,}")
    console.print(table)
    console.print()
    if len(scores.classes) <= CLASSES:
        console.print(_confusion(scores))
    else:
        _show_confusions(console, scores)


def show_signatures(console: Console, scores: Sequence[Score]) -> None:
    """Whole and in one line each, so that they can be copied."""
    for score in scores:
        console.print(Text(f"{score.name}: {score.signature}", style="dim"), soft_wrap=True)
    console.print()


def show_note(console: Console, note: Note) -> None:
    """What a test set is, what its scores compare with, and what is to be doubted."""
    console.print(f"[bold]{escape(note.test_set)}[/]")
    for text in note.comparable:
        console.print(Padding(escape(text), (0, 0, 0, 2), expand=False))
    for text in note.warnings:
        console.print(Padding(f"[yellow]![/] {escape(text)}", (0, 0, 0, 2), expand=False))
    console.print()


def plain_table(*columns: str) -> Table:
    """Columns by their heads; one that ends in > is right-aligned."""
    heads = any(column.removesuffix(">") for column in columns)
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0), show_header=heads)
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left")
    return table


def millions(count: int) -> str:
    """A number of parameters.

    >>> millions(9_120_000)
    '9.1 M'
    """
    return f"{count / 1e6:,.1f} M" if count >= 1e5 else f"{count:,}"


def _head(console: Console, system: System, files: Sequence[str], amount: str) -> None:
    told = [] if system.parameters is None else [f"{millions(system.parameters)} parameters"]
    told += [] if system.device is None else [f"on {system.device}"]
    told += [] if system.decoding is None else [f"in {system.decoding['precision']}", f"beam {system.decoding['beam']}"]
    told += [] if system.speed is None else [f"{system.speed.per_second:,.1f} {system.speed.unit}/s"]
    console.print(f"[bold]{escape(system.name)}[/] on {escape(' and '.join(files))}: {amount}")
    console.print(f"[dim]{', '.join(told) or 'outputs made elsewhere'}[/]\n")


def _show_suspects(console: Console, counts: dict[str, int], suspected: Sequence[Suspected]) -> None:
    if not counts:
        console.print("No output looks odd by itself: no loops, copies, or wrong lengths.")
        return
    table = plain_table("to look at", "count>", "", "first lines")
    for kind, count in counts.items():
        lines = [each.line for each in suspected if each.kind == kind]
        first = ", ".join(map(str, lines[:3])) + (" …" if len(lines) > 3 else "")
        table.add_row(f"[yellow]{kind}[/]", f"{count:,}", f"[dim]{KINDS[kind]}[/]", first)
    console.print(table)
    console.print()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    by_line: dict[int, list[Suspected]] = {}
    for each in _varied(suspected):
        by_line.setdefault(each.line, []).append(each)
    for line, found in list(by_line.items())[:EXAMPLES]:
        table.add_row(str(line), escape(_cut(found[0].source)))
        table.add_row("→", escape(_cut(found[0].output)) or "[dim](nothing)[/]")
        for each in found:
            table.add_row("", f"[yellow]{each.kind}[/][dim]: {escape(each.detail)}[/]")
    console.print(table)


def _varied(suspected: Sequence[Suspected]) -> list[Suspected]:
    """One of each kind before a second of any."""
    times: Counter[str] = Counter()
    ranks = []
    for each in suspected:
        times[each.kind] += 1
        ranks.append(times[each.kind])
    return [each for _, each in sorted(zip(ranks, suspected, strict=True), key=lambda pair: pair[0])]


def _show_petit(console: Console, score: PetitScore) -> None:
    overall = score.overall
    console.print(
        f"\n[bold]Exactly right: {overall.value:.1%}[/] ({_interval(overall)}), {overall.correct:,} of "
        f"{overall.total:,}; by phenomenon, the hardest first\n"
    )
    wide = console.width >= WIDE
    table = plain_table("", "right>", "of>", ">", *(["95 % interval>", ""] if wide else ["95 % interval>"]))
    for name, each in score.phenomena.items():
        row = [name, f"{each.correct:,}", f"{each.total:,}", f"[bold]{each.value:.1%}[/]", _interval(each)]
        table.add_row(*row, *([f"[dim]{escape(PHENOMENA[name])}[/]"] if wide else []))
    if wide:
        about = table.columns[-1]
        about.no_wrap, about.overflow, about.max_width = True, "ellipsis", console.width - FIGURES
    console.print(table)


def _show_alignment(console: Console, scores: dict[str, AlignmentScores], attention: Attention) -> None:
    """Error rates in a column for each moment."""
    what = {"cross": "cross-attention", "decoder": "its attention from target to source"}[attention]
    console.print(f"\n[bold]Alignment error rate of {what}[/] against gold, the reference as target\n")
    columns = [column for moment in scores for column in (f"{moment} a word>", "")]
    table = plain_table("", *columns)
    for cells in zip(*(_rates(each) for each in scores.values()), strict=True):
        table.add_row(cells[0][0], *(cell for _, rate, place in cells for cell in (rate, f"[dim]{place}[/]")))
    console.print(table)
    console.print(
        "\n[dim]Each target word has one link: to the source word with the most weight as it is written, or read. "
        "Layers and heads are counted from 0; the best are chosen on these very sentences. A diagonal looks at no "
        "text.[/]"
    )


def _rates(scores: AlignmentScores) -> list[tuple[str, str, str]]:
    """What is scored, its error rate, and where that is."""
    layer, head = scores.best
    by_layer = min(range(len(scores.layers)), key=lambda i: scores.layers[i].error_rate)
    return [
        ("best head", f"[bold]{_rate(scores.heads[layer][head])}[/]", f"layer {layer} head {head}"),
        ("best layer", _rate(scores.layers[by_layer]), f"layer {by_layer}"),
        ("mean of all", _rate(scores.mean), ""),
        ("a diagonal", _rate(scores.diagonal), ""),
        ("lowest reachable", _rate(scores.reachable), ""),
    ]


def _confusion(scores: ClassScores) -> Table:
    names = [each.name for each in scores.classes]
    table = plain_table("truth ↓  answer →", *(f"{escape(_cut(name, 14))}>" for name in names))
    for i, (name, row) in enumerate(zip(names, scores.confusion, strict=True)):
        cells = [f"[bold green]{n:,}[/]" if i == j else f"{n:,}" if n else "[dim]·[/]" for j, n in enumerate(row)]
        table.add_row(escape(_cut(name, 30)), *cells)
    return table


def _show_confusions(console: Console, scores: ClassScores) -> None:
    names = [each.name for each in scores.classes]
    cells = [(count, i, j) for i, row in enumerate(scores.confusion) for j, count in enumerate(row) if i != j and count]
    table = plain_table("truth", "taken for", "times>")
    for count, i, j in sorted(cells, key=lambda cell: (-cell[0], cell[1:]))[:CLASSES]:
        table.add_row(escape(names[i]), escape(names[j]), f"{count:,}")
    console.print(table)


def _context(result: LanguageResult) -> str:
    """What a model saw of the text before each token, in words."""
    one = {"line": "Each line", "blank-line": "What stands between blank lines", "file": "The file"}[result.documents]
    start = (
        f"{result.starts_with} stands before it"
        if result.starts_with
        else "nothing can stand before it, so that its first token is not counted"
    )
    return (
        f"{one} is a text ({result.texts:,} in all); {start}. It is read in windows of {result.context:,} tokens, "
        f"{result.stride:,} apart: every token is foretold once, behind the first window from at least "
        f"{result.context - result.stride:,} before it."
    )


def _interval(share: Share) -> str:
    return f"{share.low:.1%} – {share.high:.1%}"


def _rate(score: AlignmentScore) -> str:
    return f"{score.error_rate:.1%}"


def _cut(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
