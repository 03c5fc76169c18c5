"""An assignment as a notebook for nbgrader: solution cells, and a test cell with points for each probe.

It is the instructor's version: nbgrader replaces each region between BEGIN SOLUTION and END SOLUTION by a gap when it
releases the assignment. The metadata follow version 3 of nbgrader's schema. A test cell calls `check_part`, which runs
a probe in the notebook's own process.
"""

import ast
import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.course.assignment import ASSIGNMENTS_FOLDER, Assignment, load_assignment
from regard.course.check import explain_failure
from regard.course.diagnose import matcher_for
from regard.course.hidden_probes import HIDDEN_NAME
from regard.course.notebook_writer import Cell, cells_of, notebook_document
from regard.course.numeric_equality import same_probe
from regard.course.observe import observe
from regard.course.solution_file import Definition
from regard.course.unfinished import Function, find_gaps, top_functions
from regard.errors import RegardError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
SCHEMA_VERSION = 3
SUBMITTED: dict[str, Any] = {}
"""The names that a notebook defines, while one of its parts is checked."""
SUBMITTED_SOURCE = f"from {__name__} import SUBMITTED\nglobals().update(SUBMITTED)\n"
"""The source of a solution that consists of these names."""


def as_nbgrader_notebook(assignment: Assignment, course: Path | None = None) -> str:
    """The instructor's notebook. The test cells read the assignment from `course` if it is not a bundled one."""
    cells = [
        (cell, _metadata(f"code-{number}", is_solution=BEGIN in cell.text) if cell.kind == "code" else {})
        for number, cell in enumerate(_whole_regions(cells_of(merge_solution(assignment), assignment.story)), 1)
    ]
    for probe, points in assignment.points.items():
        cells.append((Cell("code", _test_code(assignment, probe, course)), _metadata(f"test-{probe}", points=points)))
    document = notebook_document([cell for cell, _ in cells])
    for entry, (_, metadata) in zip(document["cells"], cells, strict=True):
        entry["metadata"] |= metadata
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def check_part(assignment: str, part: str, names: Mapping[str, Any], course: str | None = None) -> None:
    """Run one probe on the names of a notebook; an AssertionError if its values are not the reference's."""
    loaded = load_assignment(assignment, Path(course) if course else ASSIGNMENTS_FOLDER)
    if part not in loaded.probes:
        raise RegardError(f"the assignment {assignment} has no part {part!r}")
    SUBMITTED.clear()
    SUBMITTED.update({name: names[name] for name in loaded.defines if name in names})
    narrow = replace(loaded)
    vars(narrow)["probes"] = {part: loaded.probes[part]}  # sets the cached_property
    run = observe(SUBMITTED_SOURCE, narrow)
    if same_probe(run, matcher_for(loaded).reference, part):
        return
    failure = run.failures.get(part)
    reason = explain_failure(failure) if failure else "The values are not as expected"
    advice = "Save the notebook and run `regard check` on it to find out why."
    raise AssertionError(f"{_first_line(loaded, part)} {reason.rstrip('.')}. {advice}")


def merge_solution(assignment: Assignment) -> str:
    """The starter with the reference's code in place of each gap, between the marks of a solution region.

    Methods and helpers that only the reference has are part of the last region where they can be.
    """
    starter, reference = ast.parse(assignment.starter), ast.parse(assignment.reference)
    bodies, functions = dict(top_functions(reference)), dict(top_functions(starter))
    gaps = find_gaps(assignment.starter)
    lines = assignment.starter.split("\n")
    for index, (name, line) in reversed(list(enumerate(gaps))):
        if name not in bodies:
            raise RegardError(f"{assignment.folder}/reference.py does not define {name}, which is a gap in the starter")
        function = functions[name]
        indent = " " * function.body[0].col_offset
        region = [BEGIN, *_new_statements(function, bodies[name], line, assignment.reference)]
        region = [f"{indent}{text}" if text else "" for text in region]
        class_name = name.rpartition(".")[0]
        if class_name and not any(other.rpartition(".")[0] == class_name for other, _ in gaps[index + 1 :]):
            region += _extra_methods(class_name, starter, reference, assignment.reference)
        if index == len(gaps) - 1:
            region += _extra_definitions(starter, reference, assignment.reference)
        gap = next(statement for statement in function.body if line <= (statement.end_lineno or statement.lineno))
        lines[gap.lineno - 1 : gap.end_lineno] = [*region, f"{indent}{END}"]
    return _with_imports("\n".join(lines), starter, reference)


def _new_statements(function: Function, solved: Function, gap: int, reference: str) -> list[str]:
    """The lines of a solved function without its docstring and the statements that precede the gap, not indented."""
    given = {ast.dump(statement) for statement in function.body if (statement.end_lineno or statement.lineno) < gap}
    written = [statement for statement in solved.body if not _is_text(statement) and ast.dump(statement) not in given]
    if not written:
        return ["pass"]
    first, last = written[0].lineno - 1, written[-1].end_lineno
    return textwrap.dedent("\n".join(reference.split("\n")[first:last])).split("\n")


def _extra_methods(class_name: str, starter: ast.Module, reference: ast.Module, source: str) -> list[str]:
    """The lines of the methods that only the reference's class has."""
    given = dict(top_functions(starter))
    extra = {name: node for name, node in top_functions(reference) if name not in given}
    methods = [node for name, node in extra.items() if name.rpartition(".")[0] == class_name]
    return [line for node in methods for line in ["", *_lines_of(node, source)]]


def _extra_definitions(starter: ast.Module, reference: ast.Module, source: str) -> list[str]:
    """The lines of the functions, classes and variables that only the reference has."""
    given = {node.name for node in starter.body if isinstance(node, Definition)}
    given |= {ast.dump(node) for node in starter.body}
    extra = [
        node
        for node in reference.body
        if not isinstance(node, ast.Import | ast.ImportFrom) and not _is_text(node)
        if ast.dump(node) not in given and getattr(node, "name", None) not in given
    ]
    return [line for node in extra for line in ["", "", *_lines_of(node, source)]]


def _with_imports(merged: str, starter: ast.Module, reference: ast.Module) -> str:
    """The source with the imports that only the reference has."""
    given = {ast.dump(node) for node in starter.body}
    imports = [node for node in reference.body if isinstance(node, ast.Import | ast.ImportFrom)]
    missing = [ast.unparse(node) for node in imports if ast.dump(node) not in given]
    head = [node for node in starter.body if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node)]
    end = head[-1].end_lineno if head else 0
    lines = merged.split("\n")
    return "\n".join([*lines[:end], *missing, *lines[end:]])


def _lines_of(node: ast.stmt, source: str) -> list[str]:
    """The lines of a statement, with its decorators."""
    first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
    return source.split("\n")[first - 1 : node.end_lineno]


def _whole_regions(cells: list[Cell]) -> list[Cell]:
    """The cells, with those joined that share a solution region."""
    joined: list[Cell] = []
    for cell in cells:
        if joined and joined[-1].text.count(BEGIN) > joined[-1].text.count(END):
            joined[-1] = replace(joined[-1], text=f"{joined[-1].text}\n\n\n{cell.text}")
        else:
            joined.append(cell)
    return joined


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _metadata(grade_id: str, is_solution: bool = False, points: int | float | None = None) -> dict[str, Any]:
    """A cell's metadata for nbgrader: a solution, a test with points, or code that students cannot change."""
    is_test = points is not None
    entry: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "grade_id": re.sub(r"\W", "-", grade_id),
        "grade": is_test,
        "locked": not is_solution,
        "solution": is_solution,
        "task": False,
    }
    return {"nbgrader": entry | ({"points": points} if is_test else {})}


def _test_code(assignment: Assignment, probe: str, course: Path | None) -> str:
    where = f", course={str(course)!r}" if course else ""
    code = (
        "from regard.course.nbgrader_notebook import check_part\n\n"
        f"check_part({assignment.name!r}, {probe!r}, globals(){where})"
    )
    if probe.startswith(HIDDEN_NAME):
        code = f"### BEGIN HIDDEN TESTS\n{code}\n### END HIDDEN TESTS"
    return f"# {_first_line(assignment, probe)}\n{code}"


def _first_line(assignment: Assignment, probe: str) -> str:
    """The first line of a probe's docstring."""
    return (assignment.probes[probe].__doc__ or probe).strip().split("\n")[0]
