"""Functions without a return: the student only sees an error about None, raised somewhere else."""

import ast
from collections.abc import Mapping, Sequence

from regard.course.observe import Failure
from regard.course.solution_file import parse_source
from regard.course.unfinished import Function, top_functions

NO_RETURN = "NoReturn"
"""The kind of a failure that is explained by a missing return."""


def explain_missing_returns(failures: Mapping[str, Failure], source: str, reference: str) -> dict[str, Failure]:
    """The failures, where errors about None name the function that returns None and the line of its `def`."""
    functions = functions_without_return(source, reference)
    return {probe: _explain(failure, functions) for probe, failure in failures.items()}


def functions_without_return(source: str, reference: str) -> list[tuple[str, int]]:
    """Functions that can end without a value although the reference's always return one, with their lines.

    >>> functions_without_return("def f(x):\\n    y = 2 * x\\n", "def f(x):\\n    return 2 * x\\n")
    [('f', 1)]
    """
    tree, reference_tree = parse_source(source), parse_source(reference)
    if tree is None or reference_tree is None:
        return []
    returning = {name for name, function in top_functions(reference_tree) if _always_returns(function.body)}
    return [
        (name, function.lineno)
        for name, function in top_functions(tree)
        if name in returning and not _is_generator(function) and not _always_returns(function.body)
    ]


def _explain(failure: Failure, functions: Sequence[tuple[str, int]]) -> Failure:
    if "NoneType" not in failure.message:
        return failure
    if functions:
        name, line = functions[0]
        return Failure(NO_RETURN, f"{name} returns None. Is a return statement missing?", line)
    if failure.line is None:
        message = "a function returned None where a tensor was expected. Is a return statement missing?"
        return Failure(NO_RETURN, message, None)
    return failure


def _is_generator(function: Function) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _always_returns(body: Sequence[ast.stmt]) -> bool:
    """Whether every path through these statements ends with a returned value or an error."""
    match body[-1] if body else None:
        case ast.Return(value=value):
            return value is not None
        case ast.Raise():
            return True
        case ast.If(body=then, orelse=otherwise):
            return _always_returns(then) and _always_returns(otherwise)
        case ast.With(body=inner):
            return _always_returns(inner)
        case ast.Try(body=inner, orelse=otherwise, handlers=handlers):
            return _always_returns(otherwise or inner) and all(_always_returns(handler.body) for handler in handlers)
        case ast.Match(cases=cases):
            return all(_always_returns(case.body) for case in cases)
        case ast.While(test=ast.Constant(value=True)):
            return True
    return False
