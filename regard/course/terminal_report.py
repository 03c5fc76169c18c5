"""The report on a solution in the terminal. It is readable without colours."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.course.check import CheckReport, explain_failure
from regard.course.crashes import common_crash, crash_headline
from regard.course.grading import BREVITY, STYLE, Mark
from regard.course.missing_returns import NO_RETURN
from regard.course.mistake_hints import mistake_blocks, next_hint, question_block, show_line
from regard.course.mistake_location import StageProgress
from regard.course.observe import Failure
from regard.course.shape_comments import ShapeRemark
from regard.course.style import style_note
from regard.course.worked_example import ExampleTable, example_table
from regard.formatting import visible

MAX_PROSE_COLUMNS = 88
POINTS_TABLE_COLUMNS = 100
MAX_PRINTED_LINES = 12
"""Maximum number of lines of the solution's own output that are shown."""
MAX_REMARKS = 12
"""Maximum number of remarks of one kind that are shown."""
MAX_MISSING_SHAPES = 3
"""Maximum number of missing shape comments that are shown one by one."""
MAX_FAILURES = 5
"""Maximum number of errors, and of wrong shapes, that are shown."""
STYLE_LATER = "Counted once another part is correct and nothing is left to write."
INDENT = (0, 0, 0, 2)


def show_report(console: Console, report: CheckReport, hint: int = 0) -> None:
    """Print the report with this level of hints; without trailing blanks if the output is not a terminal."""
    if console.is_terminal:
        _show(console, report, hint)
        return
    with console.capture() as captured:
        _show(console, report, hint)
    lines = (line.rstrip() for line in captured.get().rstrip().split("\n"))
    console.file.write("\n".join(lines) + "\n")


def show_reports(console: Console, reports: Sequence[CheckReport], hint: int = 0) -> None:
    """Print the reports of a file that may answer several assignments."""
    if len(reports) > 1:
        console.print(Text(several_note(reports)))
    for report in reports:
        if len(reports) > 1:
            console.print()
        show_report(console, report, hint)


def several_note(reports: Sequence[CheckReport]) -> str:
    """A sentence that lists the assignments that a file answers."""
    names = ", ".join(report.assignment.name for report in reports)
    passed = sum(report.passed for report in reports)
    return f"The file answers {len(reports)} assignments, {passed} of them correctly: {names}."


def _show(console: Console, report: CheckReport, hint: int) -> None:
    """Verdict, errors, values, questions and hints; then remarks, printed output and points."""
    console.print(Text.assemble((visible(report.path.name), "bold"), (f"  {visible(report.assignment.title)}", "dim")))
    console.print()
    console.print(verdict(report))
    if not report.passed:
        _show_obstacles(console, report)
        _show_values(console, report)
        _show_progress(console, report)
    for block in (question_block(report), *mistake_blocks(report, hint)):
        _print_block(console, block)
    if more := next_hint(report, hint):
        _print_block(console, [Text(more, "dim")])
    _show_shape_remarks(console, report)
    style = [(remark.line, f"{remark.code} {remark.text}") for remark in report.style]
    _show_remarks(console, "Style", style, report, style_note() or "")
    _show_printed(console, report)
    if report.is_started and report.ran:
        _show_points(console, report)


def verdict(report: CheckReport) -> Text:
    """The result in one line, after a sign and a blank."""
    sign, style, text = _verdict(report)
    return Text(f"{sign} {text}", style)


def _verdict(report: CheckReport) -> tuple[str, str, str]:
    diagnosis = report.diagnosis
    if report.passed:
        return "✓", "bold green", "Correct: the solution does what the assignment asks."
    if not report.ran:
        return "✗", "bold red", crash_headline(report.run.failures[""]) or "The file could not be run."
    if not report.is_started:
        return "·", "bold yellow", "Not started yet: this is the unchanged starter."
    if diagnosis.mistakes:
        return "✗", "bold red", "Found one mistake." if len(diagnosis.mistakes) == 1 else "Found two mistakes."
    if report.gaps:
        return "·", "bold yellow", "Not finished yet: some parts still have to be written."
    failures = [failure for failure, _ in _probes_by_failure(report)]
    if (crash := common_crash(failures)) is not None:
        return "✗", "bold red", crash_headline(crash)
    if diagnosis.failures and not report.run.values:
        return "✗", "bold red", "The solution cannot be used the way the assignment describes."
    if any(failure.kind == NO_RETURN for failure in diagnosis.failures.values()):
        return "✗", "bold red", "A function returns None where a tensor is expected."
    if diagnosis.possible:
        return "✗", "bold red", "There is a mistake. Several known mistakes give these numbers."
    return "✗", "bold red", "There is a mistake, but it is not one of the known ones."


def describe_shape_remark(remark: ShapeRemark) -> str:
    """A remark on a shape comment, as a phrase."""
    if remark.variables:
        verb = "has" if len(remark.variables) == 1 else "have"
        *others, last = remark.variables
        names = f"{', '.join(others)} and {last}" if others else last
        actual = f"{names} {verb} shape {remark.actual}"
    else:
        actual = f"the shape is {remark.actual}"
    if remark.kind == "missing":
        return f"no shape comment; {actual}"
    return f"the comment says {remark.commented}, but {actual}"


def _show_obstacles(console: Console, report: CheckReport) -> None:
    """What keeps the checker from testing the solution: missing names, gaps, errors, wrong shapes."""
    if report.missing and report.ran:
        _print_block(console, [Text(f"Not defined at the top level of the file: {', '.join(report.missing)}.")])
    if report.gaps:
        gaps = [Text(f"{report.solution.where(line)} │ {visible(name)}") for name, line in report.gaps]
        _print_block(console, [Text("Still to write:", "bold"), *gaps])
    for failure, probes in _probes_by_failure(report)[:MAX_FAILURES]:
        _show_failure(console, report, failure, probes)
    for (probe, name), (expected, actual) in list(report.wrong_shapes.items())[:MAX_FAILURES]:
        text = f"{name} ({probe}) should have shape {expected} but has shape {actual}."
        _print_block(console, [Text(visible(text))])


def _probes_by_failure(report: CheckReport) -> list[tuple[Failure, list[str]]]:
    """Each error once, with the probes that raised it; without errors of parts that are known to be missing."""
    probes: dict[Failure, list[str]] = {}
    for probe, failure in report.diagnosis.failures.items():
        is_gap = failure.kind == "NotImplementedError" and report.gaps
        is_missing = failure.kind == "KeyError" and failure.message.strip("'") in report.missing
        if not is_gap and not is_missing:
            probes.setdefault(failure, []).append(probe)
    return list(probes.items())


def _show_failure(console: Console, report: CheckReport, failure: Failure, probes: Sequence[str]) -> None:
    names = ", ".join(name for name in probes if name)
    suffix = f"  (in {names})" if names else ""
    lines = [Text.assemble(visible(explain_failure(failure)), (suffix, "dim"))]
    if (line := show_line(report, failure.line)) is not None:
        lines.append(line)
    _print_block(console, lines)


def _show_values(console: Console, report: CheckReport) -> None:
    table = example_table(report.run, report.reference, report.assignment.stages) if report.ran else None
    if table is None:
        return
    heading = f"{visible(table.name)} in a small example"
    _print_block(console, [Text.assemble((heading, "bold"), (f"  {table.note}", "dim"))])
    if table.expected and table.actual:
        console.print(Padding(_side_by_side(table), INDENT))


def _side_by_side(table: ExampleTable) -> Table:
    grid = Table.grid(padding=(0, 4))
    grid.add_row(Text("expected", "dim"), Text("yours", "dim"))
    actual = [[_cell(table, row, column) for column in range(len(cells))] for row, cells in enumerate(table.actual)]
    expected = [[Text(f"{cell} ") for cell in cells] for cells in table.expected]
    grid.add_row(_matrix(expected), _matrix(actual))
    return grid


def _cell(table: ExampleTable, row: int, column: int) -> Text:
    """A number. One that differs is red and has an asterisk, which needs no colours."""
    text = table.actual[row][column]
    if table.differs and table.differs[row][column]:
        return Text(f"{text}*", "bold red")
    return Text(f"{text} ", "default")


def _matrix(cells: Sequence[Sequence[Text]]) -> Table:
    matrix = Table.grid(padding=(0, 1))
    for _ in cells[0] if cells else ():
        matrix.add_column(justify="right", no_wrap=True)
    for row in cells:
        matrix.add_row(*row)
    return matrix


def _show_progress(console: Console, report: CheckReport) -> None:
    if report.diagnosis.progress is not None:
        _print_block(console, [Text(visible(describe_progress(report, report.diagnosis.progress)))])


def describe_progress(report: CheckReport, progress: StageProgress) -> str:
    """How far the solution is correct, in words that do not require knowing the reference."""
    describe = report.assignment.describe_stage
    wrong = describe(progress.first_wrong)
    if not progress.last_right:
        return f"The first step that differs: {wrong}."
    right = describe(progress.last_right)
    where = report.solution.where(progress.line) if progress.line else ""
    if progress.goes_on and where:
        return f"{where.capitalize()} begins correctly, with {right}. What it computes from that may be wrong."
    if where:
        right = f"{where} ({right})"
    if not progress.unseen:
        return f"Everything is correct up to {right}. The next step differs: {wrong}."
    unseen = "; ".join(map(describe, progress.unseen))
    return (
        f"The result of {right} is correct. The next step differs: {wrong}. "
        f"Earlier steps that are not in any variable, and were not checked: {unseen}."
    )


def _show_shape_remarks(console: Console, report: CheckReport) -> None:
    """All wrong shape comments that fit, and the first few missing ones."""
    missing = [remark for remark in report.shapes if remark.kind == "missing"]
    hidden = missing[MAX_MISSING_SHAPES:]
    shown = [(remark.line, describe_shape_remark(remark)) for remark in report.shapes if remark not in hidden]
    note = f"{len(missing)} lines that change a shape have no shape comment." if hidden else ""
    _show_remarks(console, "Shape comments", shown, report, note)


def _show_remarks(
    console: Console, heading: str, remarks: Sequence[tuple[int, str]], report: CheckReport, note: str = ""
) -> None:
    """Remarks that do not change the verdict."""
    lines = [
        Text.assemble((report.solution.where(line), "cyan"), f"  {visible(text)}")
        for line, text in remarks[:MAX_REMARKS]
    ]
    if len(remarks) > MAX_REMARKS:
        lines.append(Text(f"… and {len(remarks) - MAX_REMARKS} more", "dim"))
    if note:
        lines.append(Text(note, "dim"))
    if lines:
        _print_block(console, [Text(heading, "bold"), *lines])


def _show_printed(console: Console, report: CheckReport) -> None:
    if report.run.printed.strip():
        printed = report.run.printed.rstrip().split("\n")
        lines = [Text(visible(line)[:MAX_PROSE_COLUMNS], "dim") for line in printed[:MAX_PRINTED_LINES]]
        if len(printed) > MAX_PRINTED_LINES:
            lines.append(Text(f"… and {len(printed) - MAX_PRINTED_LINES} more lines", "dim"))
        _print_block(console, [Text("Printed by the solution", "bold"), *lines])
    for note in report.run.notes:
        _print_block(console, [Text(f"Note: {visible(note)}", "yellow")])


def _show_points(console: Console, report: CheckReport) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=False)
    for name, mark in report.marks.items():
        label = Text.assemble(_mark_sign(mark), name.replace("_", " "))
        table.add_row(label, show_mark(mark), Text(describe_mark(report, name), "dim"))
    console.print()
    console.print(Text(f"{report.points:.4g} of {report.max_points:g} points", "bold"))
    if explanation := report.grade.explain():
        console.print(Padding(Text(explanation), INDENT), width=min(MAX_PROSE_COLUMNS, console.width))
    console.print(Padding(table, INDENT), width=POINTS_TABLE_COLUMNS)


def _mark_sign(mark: Mark) -> tuple[str, str]:
    if mark.scored == mark.possible:
        return ("✓ ", "green") if mark.possible else ("· ", "dim")
    return ("✓ ", "green") if mark.scored > mark.possible else ("✗ ", "red")


def show_mark(mark: Mark) -> str:
    """The points of a mark, such as 1.5/2, or +1 if none are expected."""
    return f"{mark.scored:.3g}/{mark.possible:g}" if mark.possible else f"{mark.scored:+g}"


def describe_mark(report: CheckReport, name: str) -> str:
    """What a mark is for: the first line of its probe's docstring, or a sentence on style, shapes or brevity."""
    assignment = report.assignment
    if name in assignment.probes:
        return (assignment.probes[name].__doc__ or "").strip().split("\n")[0]
    if name == BREVITY:
        limits = {
            "statements in forward": assignment.brevity_statements,
            "lines in a function": assignment.brevity_lines,
        }
        limit = " and ".join(f"at most {count} {what}" for what, count in limits.items() if count)
        return f"{assignment.brevity_points:+g} for a correct solution with {limit}."
    if count := len(report.style if name == STYLE else report.shapes):
        return f"Style remarks: {count}." if name == STYLE else f"Wrong or missing shape comments: {count}."
    if not report.grade.is_judged:
        return STYLE_LATER
    return "No style remarks." if name == STYLE else "No shape comment is wrong or missing."


def _print_block(console: Console, lines: Iterable[Text]) -> None:
    """Print indented lines after a blank one."""
    if block := list(lines):
        console.print()
        console.print(Padding(Group(*block), INDENT), width=min(MAX_PROSE_COLUMNS, console.width))
