"""A report on a solution in the terminal: what it does, where to look, what to ask oneself; it needs no colours."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.course.assignment import Mistake
from regard.course.check import Report, explained
from regard.course.diagnose import Found
from regard.course.missing_returns import KIND
from regard.course.mistake_location import Stage
from regard.course.observe import Failure
from regard.course.shape_comments import Remark
from regard.course.style import style_note
from regard.course.worked_example import Shown, shown
from regard.formatting import visible

WIDEST = 88
"""columns of prose"""
MOST_PRINTED, MOST_REMARKS, MOST_FAILURES = 12, 12, 5
"""lines of what a solution printed, remarks of a kind, and errors that are shown"""
STYLE_LATER = "Style counts once some other part is right and nothing is left to be written."
INDENT = (0, 0, 0, 2)


def show(console: Console, report: Report) -> None:
    """The report; where it is no terminal, without the blanks that fill lines there."""
    if console.is_terminal:
        _show(console, report)
        return
    with console.capture() as captured:
        _show(console, report)
    lines = (line.rstrip() for line in captured.get().rstrip().split("\n"))
    console.file.write("\n".join(lines) + "\n")


def _show(console: Console, report: Report) -> None:
    """All of it: verdict, mistakes, numbers, questions, errors; then remarks, output and points."""
    console.print(Text.assemble((visible(report.path.name), "bold"), (f"  {visible(report.assignment.title)}", "dim")))
    console.print()
    console.print(verdict(report))
    for found in report.diagnosis.mistakes:
        _show_mistake(console, report, found)
    _show_possible(console, report)
    if not report.passed:
        _show_interface(console, report)
        _show_numbers(console, report)
        _show_stage(console, report)
    for found in report.diagnosis.mistakes:
        _show_question(console, report, found)
    _show_remarks(console, "Shape comments", [(each.line, shape_said(each)) for each in report.shapes], report)
    style = [(each.line, f"{each.code} {each.text}") for each in report.style]
    _show_remarks(console, "Style", style, report, style_note() or "")
    _show_printed(console, report)
    if report.begun and report.ran:
        _show_points(console, report)


def verdict(report: Report) -> Text:
    """What there is to say in one line."""
    sign, style, said = _verdict(report)
    return Text(f"{sign} {said}", style)


def _verdict(report: Report) -> tuple[str, str, str]:
    count = len(report.diagnosis.mistakes)
    if report.passed:
        return "✓", "bold green", "All right: it does what the assignment asks."
    if not report.ran:
        return "✗", "bold red", "It could not be run."
    if not report.begun:
        return "·", "bold yellow", "Not begun yet: this is the starter as it was given."
    if count:
        return "✗", "bold red", "One mistake was found." if count == 1 else "Two mistakes were found."
    if report.gaps:
        return "·", "bold yellow", "Not done yet: some parts are still to be written."
    if report.diagnosis.failures and not report.seen.values:
        return "✗", "bold red", "It cannot be used as the assignment asks."
    if any(each.kind == KIND for each in report.diagnosis.failures.values()):
        return "✗", "bold red", "Nothing comes back where a tensor is wanted."
    if report.diagnosis.possible:
        return "✗", "bold red", "Something is not right: one of the mistakes below, and the numbers cannot tell which."
    return "✗", "bold red", "Something is not right, and it is none of the mistakes that are known."


def line_shown(report: Report, line: int | None) -> Text | None:
    """A line of the solution, and where it stands."""
    lines = report.solution.source.split("\n")
    if line is None or not 0 < line <= len(lines):
        return None
    return Text.assemble((f"{report.solution.where(line)} │ ", "cyan"), visible(lines[line - 1].strip()))


def shape_said(remark: Remark) -> str:
    """A remark on a shape comment, in words."""
    it = f"{', '.join(remark.of)} {'is' if len(remark.of) == 1 else 'are'}" if remark.of else "it is"
    if remark.kind == "missing":
        return f"says no shape; {it} {remark.was}"
    return f"says {remark.said}, but {it} {remark.was}"


def _show_mistake(console: Console, report: Report, found: Found) -> None:
    told = mistake(report, found)
    parts = [Text.assemble((told.title, "bold"), (f"  {found.id}", "dim"))]
    if (line := line_shown(report, found.line)) is not None:
        parts += [line]
    _print_block(console, parts)
    _print_block(console, [Text(told.why)] if told.why else [])


def _show_question(console: Console, report: Report, found: Found) -> None:
    if question := mistake(report, found).question:
        _print_block(console, [Text.assemble(("Ask yourself: ", "bold magenta"), question)])


def mistake(report: Report, found: Found) -> Mistake:
    """What the bank tells of a mistake; of one that it does not know, the id alone."""
    return report.bank.get(found.id) or Mistake(found.id, found.id, "", "")


def _show_possible(console: Console, report: Report) -> None:
    titles = [report.bank[each].title if each in report.bank else each for each in report.diagnosis.possible]
    head = [Text("And one of these, of which the numbers cannot tell which:")] if report.diagnosis.mistakes else []
    _print_block(console, [*head, *(Text("• ").append(title) for title in titles)] if titles else [])


def _show_interface(console: Console, report: Report) -> None:
    """What keeps the checker from looking: names, gaps, errors, shapes."""
    if report.missing and report.ran:
        _print_block(console, [Text(f"Not defined at the top of the file: {', '.join(report.missing)}.")])
    if report.gaps:
        gaps = [Text(f"{report.solution.where(line)} │ {visible(name)}") for name, line in report.gaps]
        _print_block(console, [Text("Still to be written:", "bold"), *gaps])
    for failure, probes in _by_failure(report)[:MOST_FAILURES]:
        _show_failure(console, report, failure, probes)
    for (probe, name), (expected, got) in list(report.wrong_shapes.items())[:MOST_FAILURES]:
        said = f"{name} ({probe}) should have the shape {expected}, and has {got}."
        _print_block(console, [Text(visible(said))])


def _by_failure(report: Report) -> list[tuple[Failure, list[str]]]:
    """Errors, each once, with the probes that met it; not those of parts that are known to be missing."""
    found: dict[Failure, list[str]] = {}
    for probe, failure in report.diagnosis.failures.items():
        is_known = failure.kind == "NotImplementedError" and report.gaps
        if not is_known and not (failure.kind == "KeyError" and failure.message.strip("'") in report.missing):
            found.setdefault(failure, []).append(probe)
    return list(found.items())


def _show_failure(console: Console, report: Report, failure: Failure, probes: Sequence[str]) -> None:
    met = ", ".join(name for name in probes if name)
    parts = [Text.assemble(visible(explained(failure)), (f"  {met}", "dim"))]
    if (line := line_shown(report, failure.line)) is not None:
        parts.append(line)
    _print_block(console, parts)


def _show_numbers(console: Console, report: Report) -> None:
    table = shown(report.seen, report.right, report.assignment.stages) if report.ran else None
    if table is None:
        return
    head = f"{visible(table.name)}, on the checker's own small example"
    _print_block(console, [Text.assemble((head, "bold"), (f"  {table.note}", "dim"))])
    if table.expected and table.got:
        console.print(Padding(_side_by_side(table), INDENT))


def _side_by_side(table: Shown) -> Table:
    grid = Table.grid(padding=(0, 4))
    grid.add_row(Text("expected", "dim"), Text("yours", "dim"))
    got = [[_cell(table, row, column) for column in range(len(cells))] for row, cells in enumerate(table.got)]
    expected = [[Text(f"{cell} ") for cell in cells] for cells in table.expected]
    grid.add_row(_matrix(expected), _matrix(got))
    return grid


def _cell(table: Shown, row: int, column: int) -> Text:
    """A number; one that differs is marked, for those without colours too."""
    differs = bool(table.differs) and table.differs[row][column]
    return Text(f"{table.got[row][column]}{'*' if differs else ' '}", "bold red" if differs else "default")


def _matrix(cells: Sequence[Sequence[Text]]) -> Table:
    matrix = Table.grid(padding=(0, 1))
    for _ in cells[0] if cells else ():
        matrix.add_column(justify="right", no_wrap=True)
    for row in cells:
        matrix.add_row(*row)
    return matrix


def _show_stage(console: Console, report: Report) -> None:
    if report.diagnosis.progress is not None:
        _print_block(console, [Text(visible(stage_said(report, report.diagnosis.progress)))])


def stage_said(report: Report, stage: Stage) -> str:
    """How far all is right, in words that need not be looked up in the reference."""
    said = report.assignment.said
    if not stage.reached:
        return f"The first that differs: {said(stage.name)}."
    at = f"{report.solution.where(stage.line)} ({said(stage.reached)})" if stage.line else said(stage.reached)
    if not stage.unseen:
        return f"Up to {at} all is right; what comes behind it differs: {said(stage.name)}."
    unseen = f"No variable held, on the way there: {'; '.join(map(said, stage.unseen))}."
    return f"Right is {at}; what comes behind it differs: {said(stage.name)}. {unseen}"


def _show_remarks(
    console: Console, head: str, remarks: Sequence[tuple[int | None, str]], report: Report, note: str = ""
) -> None:
    """Remarks apart from mistakes: they change nothing in the verdict."""
    rows = [Text.assemble((_at(report, line), "cyan"), f"  {visible(text)}") for line, text in remarks]
    more = [Text(f"… and {len(rows) - MOST_REMARKS} more", "dim")] if len(rows) > MOST_REMARKS else []
    said = [Text(note, "dim")] if note else []
    if rows or said:
        _print_block(console, [Text(head, "bold"), *rows[:MOST_REMARKS], *more, *said])


def _at(report: Report, line: int | None) -> str:
    return "" if line is None else report.solution.where(line)


def _show_printed(console: Console, report: Report) -> None:
    lines = report.seen.printed.rstrip().split("\n") if report.seen.printed.strip() else []
    if lines:
        shown_lines = [Text(visible(line)[:WIDEST], "dim") for line in lines[:MOST_PRINTED]]
        more = [Text(f"… and {len(lines) - MOST_PRINTED} more lines", "dim")] if len(lines) > MOST_PRINTED else []
        _print_block(console, [Text("It printed", "bold"), *shown_lines, *more])
    for note in report.seen.notes:
        _print_block(console, [Text(f"Note: {visible(note)}", "yellow")])


def _show_points(console: Console, report: Report) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=False)
    for name, (got, most) in report.marks.items():
        sign = ("✓ ", "green") if got == most else ("✗ ", "red")
        named = Text.assemble(sign, name.replace("_", " "))
        table.add_row(named, f"{got:g}/{most:g}", Text(said_of(report, name), "dim"))
    total = f"{report.points:g} of {report.most_points:g} points"
    console.print()
    console.print(Text(total, "bold"))
    console.print(Padding(table, INDENT), width=WIDEST + 12)


def said_of(report: Report, name: str) -> str:
    """What a mark is for: the first sentence of its probe's docstring."""
    if name in report.assignment.probes:
        return (report.assignment.probes[name].__doc__ or "").strip().split("\n")[0]
    if name == "style":
        if report.style:
            return f"Remarks on style: {len(report.style)}."
        return "No remarks on style." if report.style_counts else STYLE_LATER
    return f"Right, and no function longer than {report.assignment.brevity_lines} lines."


def _print_block(console: Console, lines: Iterable[Text]) -> None:
    """Lines below the verdict, after a blank one."""
    if found := list(lines):
        console.print()
        console.print(Padding(Group(*found), INDENT), width=min(WIDEST, console.width))
