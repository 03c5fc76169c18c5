"""Errors that are no misconception about attention: a missing import, a wrong signature, a GPU that is not there."""

import re
from collections import Counter
from collections.abc import Iterable

from regard.course.observe import Failure

HEADLINES: list[tuple[str, str, str]] = [
    ("SyntaxError|IndentationError|TabError", "", "Python cannot read the file: there is a syntax error."),
    ("ModuleNotFoundError", r"No module named '([^']+)'", "The import of {0} fails: it is not installed here."),
    ("ImportError", r"cannot import name '([^']+)' from '([^']+)'", "The import fails: {1} has no {0}."),
    ("ImportError", "", "An import fails."),
    ("UnboundLocalError", r"variable '([^']+)'", "{0} is used before it has a value."),
    ("NameError", r"name '(F|nn|torch|math|np|copy)' is not defined", "{0} is not imported."),
    ("NameError", r"name '([^']+)' is not defined", "The name {0} is not defined."),
    ("AttributeError", r"before Module\.__init__\(\) call", "__init__ does not call super().__init__() first."),
    (
        "AttributeError",
        r"super\(\)\.__init__|_parameters'|_modules'",
        "__init__ does not call super().__init__() first.",
    ),
    ("AttributeError", r"module '([^']+)' has no attribute '([^']+)'", "{0} has no {1}."),
    ("AttributeError", r"'(\w+)' object has no attribute '(\w+)'", "{0} has no attribute {1}."),
    (
        "AssertionError|RuntimeError",
        r"not compiled with CUDA|NVIDIA driver|CUDA devices? (?:is|are) |no CUDA|CUDA-capable|No CUDA GPUs",
        "The code asks for a GPU, and there is none here: create tensors on the device of the input.",
    ),
    ("TypeError", r"(\w+)\(\) got an unexpected keyword argument '(\w+)'", "{0} does not take the argument {1}."),
    ("TypeError", r"(\w+)\(\) missing \d+ required .*?: (.+)", "{0} is called without {1}."),
    ("TypeError", r"(\w+)\(\) takes (.+? but \d+ (?:was|were) given)", "{0} takes {1}."),
    ("RecursionError", "", "A function calls itself without end."),
    ("IndexError|ZeroDivisionError|UnicodeError", "(.*)", "The code stops with an error: {0}."),
]
"""Class of an error, a pattern in its message, and what to say. The first one that fits is used."""


def crash_headline(failure: Failure) -> str:
    """A plain crash in one sentence; empty if the error may be the symptom of a mistake, such as sizes that do not fit.

    >>> crash_headline(Failure("NameError", "name 'F' is not defined", 7))
    'F is not imported.'
    >>> crash_headline(Failure("RuntimeError", "mat1 and mat2 shapes cannot be multiplied", 7))
    ''
    """
    for kinds, pattern, headline in HEADLINES:
        found = re.search(pattern, failure.message)
        if found and failure.kind in kinds.split("|"):
            return headline.format(*found.groups())
    return ""


def common_crash(failures: Iterable[Failure]) -> Failure | None:
    """The most frequent plain crash among the errors of the probes."""
    counts = Counter(failure for failure in failures if crash_headline(failure))
    return counts.most_common(1)[0][0] if counts else None
