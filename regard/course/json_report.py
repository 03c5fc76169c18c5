"""A report for programs: JSON, and the results that Gradescope reads."""

import io
from dataclasses import asdict
from typing import Any

from rich.console import Console

from regard.course.check import Report
from regard.course.terminal_report import said_of, show


def as_json(report: Report) -> dict[str, Any]:
    """What was found, by stable names."""
    told = report.diagnosis
    return {
        "assignment": report.assignment.name,
        "passed": report.passed,
        "points": report.points,
        "max_points": report.most_points,
        "mistakes": [{"id": each.id, "line": each.line, "title": _title(report, each.id)} for each in told.mistakes],
        "possible": list(told.possible),
        "stage": told.stage,
        "failures": [
            {"probe": probe, "kind": each.kind, "message": each.message, "line": each.line}
            for probe, each in told.failures.items()
        ],
        "missing": list(report.missing),
        "gaps": [{"name": name, "line": line} for name, line in report.gaps],
        "shapes": [asdict(each) | {"of": list(each.of)} for each in report.shapes],
        "style": [asdict(each) for each in report.style],
    }


def no_json(error: Exception) -> dict[str, Any]:
    """The same of a file that nothing could be found out about."""
    empty: dict[str, Any] = {"mistakes": [], "shapes": [], "style": []}
    return {"assignment": None, "passed": False, "points": 0.0, **empty, "error": str(error)}


def as_gradescope(report: Report) -> dict[str, Any]:
    """What Gradescope reads as `results.json`: the report as its students see it, and a test for each mark."""
    tests = [
        {
            "name": name.replace("_", " "),
            "score": got,
            "max_score": most,
            "status": "passed" if got == most else "failed",
            "output": said_of(report, name),
            "visibility": "visible",
        }
        for name, (got, most) in report.marks.items()
    ]
    return {
        "score": report.points,
        "output": as_text(report),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def no_gradescope(error: Exception) -> dict[str, Any]:
    """The same of a file that nothing could be found out about."""
    return {"score": 0.0, "output": str(error), "output_format": "text", "visibility": "visible", "tests": []}


def as_text(report: Report) -> str:
    """The report without colours."""
    file = io.StringIO()
    show(Console(file=file, width=100, highlight=False, color_system=None), report)
    return file.getvalue()


def _title(report: Report, name: str) -> str:
    return report.bank[name].title if name in report.bank else name
