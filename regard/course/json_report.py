"""Reports for programs: `regard check --json`, and the results file that Gradescope reads."""

import io
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from regard.course.check import CheckReport
from regard.course.hidden_probes import HIDDEN_NAME
from regard.course.terminal_report import describe_mark, several_note, show_report

TEXT_WIDTH = 100
"""Columns of the report as plain text."""


def as_json(report: CheckReport) -> dict[str, Any]:
    """What was found, under stable keys."""
    diagnosis = report.diagnosis
    return {
        "assignment": report.assignment.name,
        "passed": report.passed,
        "points": report.points,
        "max_points": report.max_points,
        "mistakes": [
            {
                "id": mistake.id,
                "line": mistake.line,
                "title": report.title_of(mistake.id),
                "deduction": report.grade.deductions[mistake.id],
            }
            for mistake in diagnosis.mistakes
        ],
        "marks": [
            {"name": name, "points": round(mark.scored, 6), "max_points": mark.possible}
            for name, mark in report.marks.items()
        ],
        "possible": list(diagnosis.possible),
        "stage": diagnosis.stage,
        "failures": [
            {"probe": probe, "kind": failure.kind, "message": failure.message, "line": failure.line}
            for probe, failure in diagnosis.failures.items()
        ],
        "missing": list(report.missing),
        "gaps": [{"name": name, "line": line} for name, line in report.gaps],
        "shapes": [
            {
                "line": remark.line,
                "kind": remark.kind,
                "said": remark.commented,
                "was": remark.actual,
                "of": list(remark.variables),
            }
            for remark in report.shapes
        ],
        "style": [{"line": remark.line, "code": remark.code, "text": remark.text} for remark in report.style],
        "unusual": [{"line": unusual.line, "text": unusual.text} for unusual in report.unusual],
        "missing_isolation": list(report.run.missing_isolation),
    }


def reports_as_json(reports: Sequence[CheckReport]) -> dict[str, Any]:
    """The JSON for a file: the report's; or totals and `assignments`, the reports, if it answers several."""
    if len(reports) == 1:
        return as_json(reports[0])
    return {
        "assignments": [as_json(report) for report in reports],
        "passed": all(report.passed for report in reports),
        "points": sum(report.points for report in reports),
        "max_points": sum(report.max_points for report in reports),
    }


def error_as_json(error: Exception) -> dict[str, Any]:
    """The JSON for a file that could not be checked."""
    empty: dict[str, Any] = {"mistakes": [], "shapes": [], "style": []}
    return {"assignment": None, "passed": False, "points": 0.0, **empty, "error": str(error)}


def as_gradescope(report: CheckReport, hint: int = 0) -> dict[str, Any]:
    """Gradescope's `results.json`: the report as students see it, and a test for each mark."""
    tests = [
        {
            "name": name.replace("_", " "),
            "score": round(scored, 6),
            "max_score": possible,
            "status": "passed" if scored >= possible else "failed",
            "output": describe_mark(report, name),
            "visibility": "hidden" if name.startswith(HIDDEN_NAME) else "visible",
        }
        for name, (scored, possible) in report.marks.items()
    ]
    return {
        "score": report.points,
        "output": as_text(report, hint),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def reports_as_gradescope(reports: Sequence[CheckReport], hint: int = 0) -> dict[str, Any]:
    """Gradescope's `results.json` for a file, whose points are the sum over the assignments that it answers."""
    documents = [as_gradescope(report, hint) for report in reports]
    if len(reports) == 1:
        return documents[0]
    tests = [
        test | {"name": f"{report.assignment.name}: {test['name']}"}
        for report, document in zip(reports, documents, strict=True)
        for test in document["tests"]
    ]
    output = "\n".join([several_note(reports), "", *(document["output"] for document in documents)])
    return documents[0] | {"score": sum(report.points for report in reports), "output": output, "tests": tests}


def error_as_gradescope(error: Exception) -> dict[str, Any]:
    """Gradescope's `results.json` for a file that could not be checked."""
    return {"score": 0.0, "output": str(error), "output_format": "text", "visibility": "visible", "tests": []}


def as_text(report: CheckReport, hint: int = 0) -> str:
    """The report as plain text, without colours, with this level of hints."""
    file = io.StringIO()
    show_report(Console(file=file, width=TEXT_WIDTH, highlight=False, color_system=None), report, hint)
    return file.getvalue()
