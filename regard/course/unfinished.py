"""What is still to be written in a starter: functions that raise NotImplementedError, or hold nothing but `...`."""

import ast

from regard.course.notebook import parsed

Function = ast.FunctionDef | ast.AsyncFunctionDef


def gaps(source: str) -> list[tuple[str, int]]:
    """Each function with a gap, and the gap's line; none in a file that is no Python.

    >>> gaps("def f():\\n    ...\\nclass A:\\n    def g(self):\\n        raise NotImplementedError('write me')\\n")
    [('f', 2), ('A.g', 5)]
    """
    if (tree := parsed(source)) is None:
        return []
    return [(name, line) for name, each in functions(tree) for line in _gaps_of(each)]


def functions(tree: ast.Module) -> list[tuple[str, Function]]:
    """The functions at the top of a file, and those of its classes."""
    found: list[tuple[str, Function]] = []
    for node in tree.body:
        if isinstance(node, Function):
            found.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            found += [(f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, Function)]
    return found


def is_same_code(source: str, starter: str) -> bool:
    """Whether two files say the same to Python, whatever their comments and blank lines."""
    one, other = parsed(source), parsed(starter)
    return one is not None and other is not None and ast.dump(one) == ast.dump(other)


def _gaps_of(function: Function) -> list[int]:
    raised = [each.lineno for each in ast.walk(function) if isinstance(each, ast.Raise) and _is_gap(each)]
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    empty = [each.lineno for each in body if isinstance(each, ast.Expr) and _is_ellipsis(each.value)]
    assigned = [each.lineno for each in ast.walk(function) if isinstance(each, ast.Assign) and _is_ellipsis(each.value)]
    return sorted({*raised, *empty, *assigned})


def _is_gap(node: ast.Raise) -> bool:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
