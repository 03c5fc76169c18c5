"""The words of a line of code, and how similar they are to those of another line."""

import ast
import re
from collections.abc import Set
from difflib import SequenceMatcher
from functools import lru_cache

from regard.course.solution_file import parse_source

OPERATIONS_WEIGHT = 0.9
"""How much the share of common operations counts, compared with that of all words."""
SAME_OPERATION = {
    word: operations[0]
    for operations in (
        ("transpose", "permute", "swapaxes", "swapdims", "movedim", "mT", "T"),
        ("view", "reshape", "flatten", "unflatten", "contiguous"),
        ("matmul", "bmm", "einsum", "@", "mm", "baddbmm"),
        ("masked_fill", "where", "masked_fill_"),
        ("tril", "triu", "tril_", "triu_"),
        ("sqrt", "**", "rsqrt", "pow"),
        ("log_softmax", "LogSoftmax"),
        ("softmax", "Softmax"),
        ("dropout", "Dropout", "drop"),
        ("relu", "ReLU", "gelu", "GELU", "activation", "act"),
        ("cat", "concat", "stack"),
        ("arange", "range", "linspace"),
        ("sin", "cos"),
        ("std", "var"),
        ("max", "maximum", "amax", "nlargest"),
        ("min", "minimum", "amin", "nsmallest"),
        ("==", "eq", "equal"),
        ("!=", "ne", "not_equal"),
        ("<", "lt", "less"),
        ("<=", "le", "less_equal"),
        (">", "gt", "greater"),
        (">=", "ge", "greater_equal"),
        ("&", "logical_and"),
        ("|", "logical_or"),
        ("~", "logical_not"),
    )
    for word in operations
}
"""Names of operations that students use for the same purpose."""
COMMON_OPERATIONS = {"transpose", "view", "matmul", "max", "min", "==", "!=", "<", "<=", ">", ">=", "&", "|", "~"}
DISTINCTIVE_OPERATIONS = frozenset(SAME_OPERATION.values()) - COMMON_OPERATIONS
"""Operations that few lines use."""


@lru_cache(maxsize=1024)
def statements(source: str) -> list[tuple[str, tuple[int, ...]]]:
    """The kind and the lines of each statement. Of statements that contain others, only the header counts."""
    tree = parse_source(source)
    nodes = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    simple = [node for node in nodes if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    ends = [node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno or node.lineno for node in simple]
    return [
        (type(node).__name__, tuple(range(node.lineno, max(end, node.lineno) + 1)))
        for node, end in zip(simple, ends, strict=True)
    ]


def changed_names(source: str, numbers: Set[int], other: str, other_numbers: Set[int]) -> frozenset[str]:
    """The names in these lines of two sources that are not at the same place in both."""
    words, other_words = _words(source, numbers), _words(other, other_numbers)
    matches = SequenceMatcher(None, words, other_words, autojunk=False).get_opcodes()
    changes = [(words[a:b], other_words[c:d]) for kind, a, b, c, d in matches if kind != "equal"]
    names = {word for pair in changes for part in pair for word in part if word.isidentifier()}
    return frozenset(SAME_OPERATION.get(name, name) for name in names)


def words_of(source: str, numbers: Set[int]) -> frozenset[str]:
    """The names, numbers and operators in these lines; operations with the same purpose have the same word."""
    ignored = {"self", "torch", "nn", "F", "=", "return", "x", "dim"}
    return frozenset(SAME_OPERATION.get(word, word) for word in _words(source, numbers) if word not in ignored)


def _words(source: str, numbers: Set[int]) -> list[str]:
    lines = source.split("\n")
    text = " ".join(lines[number - 1].partition("  #")[0] for number in sorted(numbers) if number <= len(lines))
    return re.findall(r"[^\W\d]\w*|\d+(?:\.\d+)?|\*\*|[@~<>=!]=?|[*/+&|-]", text)


def similarity(one: frozenset[str], other: frozenset[str], weights: dict[str, int]) -> float:
    """The share of common words, or of common operations if that is more: variables often have other names."""
    operations, other_operations = one & DISTINCTIVE_OPERATIONS, other & DISTINCTIVE_OPERATIONS
    by_operations = overlap(operations, other_operations, weights) if operations and other_operations else 0.0
    return max(overlap(one, other, weights), OPERATIONS_WEIGHT * by_operations)


def overlap(one: frozenset[str], other: frozenset[str], weights: dict[str, int]) -> float:
    """The share of common words, where each word counts by its weight."""
    total = sum(weights.get(word, 1) for word in one | other)
    return sum(weights.get(word, 1) for word in one & other) / total if total else 0.0
