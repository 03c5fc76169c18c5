"""Files of a class that are nearly the same, although names, comments and formatting may differ.

A file is reduced to its syntax tree without the names that it defines, comments, docstrings and annotations, and
compared by short runs of that tree. The starter's runs do not count, and a run that many students wrote counts little:
a short assignment has few natural solutions. A pair is a reason to read both files, not a proof.
"""

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from regard.course.solution_file import Definition, parse_source

RUN_LENGTH = 12
"""Number of syntax elements in a run that is compared."""
MIN_SIMILARITY = 0.8
"""Minimum share of the runs of two files that both have, weighted by how rare they are."""
MIN_EVIDENCE = 20.0
"""Minimum weight, in bits, of what two files share. Short solutions are often alike, and count only if identical."""
OTHER_FILES = 10
"""Number of imagined files without a run, so that what a few students share counts in a small class too."""


@dataclass(frozen=True)
class SimilarPair:
    """Two files that are nearly the same."""

    names: tuple[str, str]
    similarity: float
    """Weighted share of the runs of either file that both have, from 0 to 1."""
    is_identical: bool = False
    """Whether the texts are the same, with all names and comments."""

    def __str__(self) -> str:
        """How similar they are, in words."""
        return "identical" if self.is_identical else f"{self.similarity:.0%} the same"


def find_similar(sources: Mapping[str, str], given: Iterable[str] = ()) -> list[SimilarPair]:
    """The pairs of files that are nearly the same, the most similar first.

    `given` are sources that students may use, such as the starter. Files that are not valid Python are left out.
    """
    known = frozenset[int]().union(*map(code_runs, given))
    runs = {name: code_runs(source) - known for name, source in sources.items()}
    runs = {name: file for name, file in runs.items() if file}
    texts = {name: " ".join(sources[name].split()) for name in runs}
    counts = Counter(run for file in runs.values() for run in file)
    # Neighbouring runs overlap, so that each of them adds the information of one element.
    weights = {run: math.log2((len(runs) + OTHER_FILES) / count) / RUN_LENGTH for run, count in counts.items()}
    totals = {name: sum(weights[run] for run in file) for name, file in runs.items()}
    pairs = []
    for one, other in combinations(runs, 2):
        if texts[one] == texts[other]:
            pairs.append(SimilarPair((one, other), 1.0, is_identical=True))
            continue
        smaller, larger = sorted((totals[one], totals[other]))
        if smaller < max(MIN_EVIDENCE, MIN_SIMILARITY * larger):
            continue  # even if one contained the other, they would not be similar enough
        shared = sum(weights[run] for run in runs[one] & runs[other])
        similarity = shared / (smaller + larger - shared)
        if shared >= MIN_EVIDENCE and similarity >= MIN_SIMILARITY:
            pairs.append(SimilarPair((one, other), similarity))
    return sorted(pairs, key=lambda pair: (not pair.is_identical, -pair.similarity, pair.names))


def code_runs(source: str) -> frozenset[int]:
    """Hashes of all runs of syntax elements within each function, so that the order of functions does not matter."""
    tree = parse_source(source)
    if tree is None:
        return frozenset()
    own = set(_own_names(tree))
    runs: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            elements = list(_elements(function, own))
            starts = range(len(elements) - RUN_LENGTH + 1)
            runs.update(hash(tuple(elements[start : start + RUN_LENGTH])) for start in starts)
    return frozenset(runs)


def _own_names(tree: ast.Module) -> Iterator[str]:
    """The names that a file defines: its functions, classes, variables, parameters and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _elements(node: ast.AST, own: set[str]) -> Iterator[str]:
    """The syntax elements of a function in the order of the source. A name of the file's own is only a placeholder."""
    match node:
        case ast.Name():
            yield "_" if node.id in own else node.id
            return
        case ast.Constant():
            yield "text" if isinstance(node.value, str | bytes) else repr(node.value)
            return
        case ast.Attribute():
            yield from _elements(node.value, own)
            yield "._" if node.attr in own else f".{node.attr}"
            return
        case ast.keyword():
            yield "=_" if node.arg in own else f"={node.arg}"
            yield from _elements(node.value, own)
            return
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Pass():
            return  # a docstring, an import: no evidence
        case ast.AnnAssign(value=ast.expr() as value):
            yield from _elements(ast.Assign(targets=[node.target], value=value), own)
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            yield "def"
            yield from ("arg" for _ in node.args.args)
            body = node.body if isinstance(node.body, list) else [node.body]
            for statement in body:
                yield from _elements(statement, own)
            return
    if not isinstance(node, ast.expr_context):
        yield type(node).__name__
    for child in ast.iter_child_nodes(node):
        yield from _elements(child, own)
