"""Files and notebooks that answer several assignments, which are all checked."""

import ast
from collections.abc import Sequence
from pathlib import Path

from regard.course.assignment import ASSIGNMENTS_FOLDER, Assignment, load_assignments
from regard.course.check import CheckReport, assignment_of, check
from regard.course.solution_file import Definition, Solution, parse_source, read_solution
from regard.errors import RegardError

MIN_SHARE_OF_NEW_NAMES = 0.75
"""Minimum share of a further assignment's names that a file must define. Single functions may be helpers."""


def check_all(
    path: Path,
    name: str | None = None,
    course: Path = ASSIGNMENTS_FOLDER,
    others: Sequence[tuple[str, Path]] = (),
    hidden: Path | None = None,
) -> list[CheckReport]:
    """A report for each assignment that a file answers, or only for the named one."""
    solution = read_solution(path)
    names = [name] if name else [assignment.name for assignment in assignments_in(solution, path, course)]
    if len(names) > 1 and hidden is not None:
        raise RegardError(
            f"{path.name} answers several assignments ({', '.join(names)}): choose the one that the hidden probes are "
            "for with --assignment"
        )
    return [check(path, found, course, others=others, hidden=hidden) for found in names]


def assignments_in(solution: Solution, path: Path, course: Path = ASSIGNMENTS_FOLDER) -> list[Assignment]:
    """The assignments that a file answers, in the course's order; a RegardError if there is none.

    Besides the one with the largest share of its names, these are the ones most of whose other names are defined. If
    the code of one uses the names of another, the other is only a part of it.
    """
    chosen = [assignment_of(solution, path, course)]
    candidates = load_assignments(course)
    for candidate in sorted(candidates, key=lambda candidate: -len(candidate.defines)):
        taken = {name for assignment in chosen for name in assignment.defines}
        names = set(candidate.defines) - taken
        present = names & solution.names
        if names and len(present) >= MIN_SHARE_OF_NEW_NAMES * len(names):
            chosen.append(candidate)
    parts = [assignment for assignment in chosen if _is_part_of_another(assignment, chosen, solution)]
    order = [candidate.name for candidate in candidates]
    answered = [assignment for assignment in chosen if assignment not in parts] or chosen[:1]
    return sorted(answered, key=lambda assignment: order.index(assignment.name))


def _is_part_of_another(assignment: Assignment, chosen: Sequence[Assignment], solution: Solution) -> bool:
    names = set(assignment.defines)
    return any(_names_used_by(solution, set(other.defines) - names) & names for other in chosen if other != assignment)


def _names_used_by(solution: Solution, names: set[str]) -> set[str]:
    """The names that the top-level functions and classes of these names use."""
    tree = parse_source(solution.source)
    nodes = [] if tree is None else [node for node in tree.body if isinstance(node, Definition) and node.name in names]
    return {child.id for node in nodes for child in ast.walk(node) if isinstance(child, ast.Name)}
