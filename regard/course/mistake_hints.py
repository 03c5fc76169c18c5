"""What a report reveals about the mistakes of a solution, hint by hint.

Without a hint there is only a question, next to the values that are wrong. Each hint adds to the ones before it.
"""

from collections.abc import Iterator

from rich.text import Text

from regard.course.assignment import Mistake
from regard.course.check import CheckReport
from regard.course.diagnose import MistakeMatch
from regard.formatting import visible

PLACE, MISTAKE, FIX = 1, 2, 3
"""The levels of hints: the line that contains the mistake, what the mistake is, how to fix it."""
MAX_QUESTIONS = 3
"""Maximum number of questions about a mistake that may be one of several."""
NO_FIX = "The course does not describe a fix for this mistake."


def mistake_blocks(report: CheckReport, hint: int) -> Iterator[list[Text]]:
    """Blocks of text about each mistake: its line, its name and its fix, as far as this level reveals them."""
    for match in report.diagnosis.mistakes:
        yield [*_place(report, match, hint), *_name(report, match.id, hint)]
        if hint >= FIX:
            yield [_fix(report, match.id)]
    if hint >= MISTAKE and report.diagnosis.possible:
        also = "also " if report.diagnosis.mistakes else ""
        yield [Text(f"There is {also}one of these mistakes, and the numbers cannot tell which:")]
        for mistake_id in report.diagnosis.possible:
            yield [*_name(report, mistake_id, hint), *([_fix(report, mistake_id)] if hint >= FIX else [])]


def question_block(report: CheckReport) -> list[Text]:
    """The questions that lead to the mistakes."""
    diagnosis = report.diagnosis
    ids = [*(match.id for match in diagnosis.mistakes), *diagnosis.possible[:MAX_QUESTIONS]]
    questions = dict.fromkeys(question for mistake_id in ids if (question := _entry(report, mistake_id).question))
    return [Text.assemble(("Ask yourself: ", "bold magenta"), question) for question in questions]


def next_hint(report: CheckReport, hint: int) -> str:
    """How to get the next hint; empty if there is none."""
    if hint >= FIX or not (report.diagnosis.mistakes or report.diagnosis.possible):
        return ""
    next_level = hint + 1
    if next_level == PLACE and not report.diagnosis.mistakes:
        next_level = MISTAKE  # several mistakes have no place in common
    content = {PLACE: "where to look", MISTAKE: "what the mistake is", FIX: "how to fix it"}[next_level]
    return f"--hint {next_level} shows {content}."


def show_line(report: CheckReport, line: int | None) -> Text | None:
    """A line of the solution with its position."""
    lines = report.solution.source.split("\n")
    if line is None or not 0 < line <= len(lines):
        return None
    return Text.assemble((f"{report.solution.where(line)} │ ", "cyan"), visible(lines[line - 1].strip()))


def _place(report: CheckReport, match: MistakeMatch, hint: int) -> list[Text]:
    """The line, or else the functions that contain the mistake, or else the part that it is about."""
    if hint < PLACE:
        return []
    if (line := show_line(report, match.line)) is not None:
        return [line]
    place = ", ".join(match.functions) or _entry(report, match.id).part
    return [Text.assemble(("Look at: ", "cyan"), visible(place))] if place else []


def _name(report: CheckReport, mistake_id: str, hint: int) -> list[Text]:
    if hint < MISTAKE:
        return []
    mistake = _entry(report, mistake_id)
    heading = Text.assemble((mistake.title, "bold"), (f"  {mistake_id}", "dim"))
    return [heading, Text(mistake.why)] if mistake.why else [heading]


def _fix(report: CheckReport, mistake_id: str) -> Text:
    return Text.assemble(("Fix: ", "bold green"), _entry(report, mistake_id).fix or NO_FIX)


def _entry(report: CheckReport, mistake_id: str) -> Mistake:
    """The catalogue's entry for a mistake; only the id if the catalogue does not have it."""
    return report.catalogue.get(mistake_id) or Mistake(mistake_id, mistake_id, "", "")
