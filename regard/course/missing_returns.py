"""Functions that forget to return: what a student sees of them is an error about None, somewhere else."""

import ast
from collections.abc import Mapping, Sequence

from regard.course.notebook import parsed
from regard.course.observe import Failure
from regard.course.unfinished import Function, functions

KIND = "NoReturn"
"""of errors that are told so"""


def told_of_returns(failures: Mapping[str, Failure], source: str, reference: str) -> dict[str, Failure]:
    """The errors; those about None name the function that returns it, and the line of its `def`."""
    forgetful = forgotten_returns(source, reference)
    return {probe: _told(each, forgetful) for probe, each in failures.items()}


def forgotten_returns(source: str, reference: str) -> list[tuple[str, int]]:
    """The functions that can end without a value, where the reference's of that name returns one; with their lines.

    >>> forgotten_returns("def f(x):\\n    y = 2 * x\\n", "def f(x):\\n    return 2 * x\\n")
    [('f', 1)]
    """
    mine, right = parsed(source), parsed(reference)
    if mine is None or right is None:
        return []
    giving = {name for name, each in functions(right) if _ends(each.body)}
    return [(name, each.lineno) for name, each in functions(mine) if name in giving and not _never_falls(each)]


def _told(failure: Failure, forgetful: Sequence[tuple[str, int]]) -> Failure:
    if "NoneType" not in failure.message:
        return failure
    if forgetful:
        name, line = forgetful[0]
        return Failure(KIND, f"{name} returns None: is a return missing?", line)
    if failure.line is None:
        return Failure(KIND, "a function returns None where a tensor is wanted: is a return missing?", None)
    return failure


def _never_falls(function: Function) -> bool:
    """Whether it always ends with a value; a generator, and a gap, are other matters."""
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
    return yields or _ends(function.body)


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether statements end with a value or an error, whichever way they go."""
    match body[-1] if body else None:
        case ast.Return(value=value):
            return value is not None
        case ast.Raise():
            return True
        case ast.If(body=then, orelse=otherwise):
            return _ends(then) and _ends(otherwise)
        case ast.With(body=within):
            return _ends(within)
        case ast.Try(body=within, orelse=otherwise, handlers=handlers):
            return _ends(otherwise or within) and all(_ends(each.body) for each in handlers)
        case ast.Match(cases=cases):
            return all(_ends(each.body) for each in cases)
        case ast.While(test=ast.Constant(value=True)):
            return True
    return False
