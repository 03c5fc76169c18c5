"""What a student still has to write: functions that raise NotImplementedError or contain `...`."""

import ast
from collections.abc import Mapping, Sequence

from regard.course.observe import Failure
from regard.course.solution_file import Definition, parse_source

Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_gaps(source: str) -> list[tuple[str, int]]:
    """Each function with a gap, and the line of the gap; none if the source is not valid Python.

    >>> find_gaps("def f():\\n    ...\\nclass A:\\n    def g(self):\\n        raise NotImplementedError\\n")
    [('f', 2), ('A.g', 5)]
    """
    tree = parse_source(source)
    if tree is None:
        return []
    return [(name, line) for name, function in top_functions(tree) for line in _gap_lines(function)]


def unfinished_probes(failures: Mapping[str, Failure], defines: Sequence[str], source: str) -> frozenset[str]:
    """The probes that failed because a part is not written yet: a gap, a name that is missing, an empty function.

    >>> failures = {"mask": Failure("NotImplementedError", "", 3), "model": Failure("KeyError", "'Decoder'", None)}
    >>> sorted(unfinished_probes(failures, ["Decoder"], ""))
    ['mask', 'model']
    """
    has_gaps = bool(find_gaps(source))

    def is_unfinished(failure: Failure) -> bool:
        is_missing = failure.kind == "KeyError" and failure.message.strip("'") in defines
        is_empty = has_gaps and "NoneType" in failure.message
        return failure.kind == "NotImplementedError" or is_missing or is_empty

    return frozenset(probe for probe, failure in failures.items() if is_unfinished(failure))


def top_functions(tree: ast.Module) -> list[tuple[str, Function]]:
    """The top-level functions of a file and the methods of its top-level classes, with their names."""
    functions: list[tuple[str, Function]] = []
    for node in tree.body:
        if isinstance(node, Function):
            functions.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            functions += [(f"{node.name}.{child.name}", child) for child in node.body if isinstance(child, Function)]
    return functions


def is_untouched(source: str, starter: str) -> bool:
    """Whether all functions and classes of a starter are in a file as they were. A notebook has other code as well."""
    tree, starter_tree = parse_source(source), parse_source(starter)
    if tree is None or starter_tree is None:
        return False
    definitions = _definitions(tree)
    return all(definitions.get(name) == code for name, code in _definitions(starter_tree).items())


def _definitions(tree: ast.Module) -> dict[str, str]:
    """The code of each top-level definition, without comments and formatting."""
    return {node.name: ast.dump(node) for node in tree.body if isinstance(node, Definition)}


def _gap_lines(function: Function) -> list[int]:
    nodes = list(ast.walk(function))
    raised = [node.lineno for node in nodes if isinstance(node, ast.Raise) and _is_not_implemented(node)]
    assigned = [node.lineno for node in nodes if isinstance(node, ast.Assign) and _is_ellipsis(node.value)]
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    empty = [
        statement.lineno for statement in body if isinstance(statement, ast.Expr) and _is_ellipsis(statement.value)
    ]
    return sorted({*raised, *empty, *assigned})


def _is_not_implemented(node: ast.Raise) -> bool:
    error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
