"""The terminal report on a corpus."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from regard.data.corpus import REMEDIES, Corpus
from regard.data.corpus_report import MAX_LENGTH_RATIO, CorpusFinding, CorpusReport, length_bin_names
from regard.training.corpus_folder import CorpusFolder


def show_corpus_folder(console: Console, folder: Path, corpus_folder: CorpusFolder) -> None:
    """Print which files of a folder are used for what."""
    console.print(f"[bold]{escape(str(folder))}[/]")
    for line in corpus_folder.summary():
        console.print(f"  {escape(line)}")
    console.print()


def show_report(console: Console, corpus: Corpus, report: CorpusReport) -> None:
    """Print counts, lengths and findings, with file and line."""
    console.print(f"[bold]{report.rows:,} rows[/] in {escape(' and '.join(corpus.files))}\n")
    if report.rows:
        _show_lengths(console, report)
    table = Table("", box=None, header_style="dim", pad_edge=False)
    table.add_column("count", justify="right")
    table.add_column("first occurrences", overflow="fold")  # never cut: the line number is at the end
    ratio = f"length ratio over {MAX_LENGTH_RATIO:g}"
    findings = {"duplicate rows": report.duplicates}
    if corpus.sides == 2 and not report.classes:
        findings[ratio] = report.ratio
    if report.leaks is not None:
        findings["leaked test sentences"] = report.leaks
    for name, finding in findings.items():
        table.add_row(name, *_counted(finding))
    for kind, count in report.problems.counts.items():
        table.add_row(f"[bold]{kind}[/]", *_counted(CorpusFinding(count, report.problems.examples[kind][:3])))
    console.print(table)
    if report.classes:
        console.print("\n[bold]classes[/]")
        for name, count in sorted(report.classes.items()):
            console.print(f"  {escape(name)}  {count:,}")
    for kind in report.problems.counts:
        console.print(f"\n[bold]{kind}[/]: {REMEDIES[kind]}.")


def _show_lengths(console: Console, report: CorpusReport) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("length in words")
    for side in range(len(report.words)):
        table.add_column(f"side {side + 1}", justify="right")
        table.add_column("")
    highest = max(max(counts) for counts in report.histogram) or 1
    for i, name in enumerate(length_bin_names()):
        cells = [(f"{counts[i]:,}", "█" * round(16 * counts[i] / highest)) for counts in report.histogram]
        table.add_row(name, *(cell for pair in cells for cell in pair))
    for unit, totals in (("words", report.words), ("characters", report.characters)):
        table.add_row(f"[dim]{unit}[/]", *(cell for total in totals for cell in (f"{total:,}", "")))
    console.print(table)
    console.print()


def _counted(finding: CorpusFinding) -> tuple[str, str]:
    return f"{finding.count:,}", escape("\n".join(finding.examples))
