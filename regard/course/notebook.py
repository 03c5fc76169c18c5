"""A student's file as Python source: a `.py`, or a notebook's code cells, with the way back to where a line stands."""

import ast
import io
import json
import re
import tokenize
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.untrusted_files import read_file

MOST_SOURCE, MOST_NOTEBOOK = 1_000_000, 100_000_000
"""bytes of Python, and of a notebook with all its pictures"""
PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "python", "python3", "pypy")
"""whose cells are Python all the same"""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
TOP_DEFINITION = re.compile(r"^(?:async\s+def|def|class)\s+(\w+)", re.MULTILINE)
MAGIC = re.compile(r"^(\s*)(?:([\w, ]+?)\s*=\s*)?([%!?].*|[\w.]+\?{1,2}\s*)$")
"""`%time`, `!pip`, `files = !ls`, `torch.bmm?`: indentation, what it is given to, the magic"""


@dataclass(frozen=True)
class Solution:
    """What a student wrote."""

    source: str
    """Python, with `\\n` at the ends of its lines"""
    cells: tuple[int, ...] = ()
    """the first lines of a notebook's code cells; none of a `.py`"""

    def where(self, line: int) -> str:
        """Where the student finds a line of the source; cells are counted without those of text.

        >>> Solution("a = 1\\nb = 2\\nc = 3", cells=(1, 3)).where(3)
        'cell 2, line 1'
        """
        cell = bisect_right(self.cells, line)
        return f"cell {cell}, line {line - self.cells[cell - 1] + 1}" if cell else f"line {line}"

    @property
    def names(self) -> frozenset[str]:
        """What it defines at its top, as far as its text tells; a file that is no Python still shows its definitions.

        >>> sorted(Solution("import math\\nhalf = 0.5\\nclass A:\\n    b = 1").names)
        ['A', 'half', 'math']
        """
        return frozenset(name for _, part in self._parts for name in _names(part))

    @property
    def syntax_error(self) -> tuple[int, str] | None:
        """The first line that is no Python, and why; None if all is.

        >>> Solution("x = 1\\ndef (:\\n").syntax_error
        (2, 'invalid syntax')
        """
        for first, part in self._parts:
            try:
                with warnings.catch_warnings(action="ignore"):
                    ast.parse(part)
            except SyntaxError as error:
                return first - 1 + (error.lineno or 1), error.msg
            except (ValueError, MemoryError, RecursionError) as error:
                return first, str(error) or type(error).__name__
        return None

    @property
    def _parts(self) -> list[tuple[int, str]]:
        """The cells, or the file as a whole, with their first lines."""
        starts, lines = self.cells or (1,), self.source.split("\n")
        ends = [*starts[1:], len(lines) + 1]
        return [(first, "\n".join(lines[first - 1 : end - 1])) for first, end in zip(starts, ends, strict=True)]


def read_solution(path: Path) -> Solution:
    """A student's `.py` or `.ipynb`; a ValueError that says what to do when it is neither."""
    if path.is_dir():
        raise RegardError(f"{path} is a folder, and a solution is one file: .py or .ipynb")
    if path.suffix not in (".py", ".ipynb"):
        raise RegardError(f"{path} is neither a .py nor an .ipynb file")
    content = read_file(path, MOST_NOTEBOOK if path.suffix == ".ipynb" else MOST_SOURCE)
    solution = _notebook(content, path) if path.suffix == ".ipynb" else Solution(_text(content, path))
    if len(solution.source) > MOST_SOURCE:
        raise RegardError(f"{path} holds {len(solution.source):,} characters of code: {MOST_SOURCE:,} are the most")
    if not solution.source.strip():
        raise RegardError(f"{path} is empty: was it saved?")
    return solution


def as_notebook(source: str) -> str:
    """A Python source as a notebook: a code cell for each function or class at its top, and for what is between."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text.splitlines(True)}
        for text in _blocks(source)
    ]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    told = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def _blocks(source: str) -> list[str]:
    """The parts of a source around its top definitions; comments belong to what they stand above."""
    nodes = ast.parse(source).body
    ends = [0]  # the lines behind which a new part begins
    for node, behind in pairwise(nodes):
        if isinstance(node, Definition) or isinstance(behind, Definition):
            ends.append(node.end_lineno or node.lineno)
    lines = source.split("\n")
    parts = ["\n".join(lines[first:end]).strip("\n") for first, end in pairwise([*ends, len(lines)])]
    return [part for part in parts if part.strip()]


def parsed(source: str) -> ast.Module | None:
    """The syntax tree, without warnings; None when it is no Python."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _text(content: bytes, path: Path) -> str:
    """A file's text as Python reads it: in UTF-8, with or without a mark at its start, or as its first lines say."""
    if b"\0" in content:
        raise RegardError(f"{path} holds zero bytes, which no Python file has: save it as text in UTF-8")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise RegardError(f"{path} cannot be read as text ({error}): save it in UTF-8") from None
    return _lines(text)


def _lines(text: str) -> str:
    """With `\\n` alone at the ends of lines, and without the mark of a file's start."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _notebook(content: bytes, path: Path) -> Solution:
    """The code cells of a notebook, one below the other."""
    try:
        told = json.loads(content.decode("utf-8-sig"))
    except UnicodeError:
        raise RegardError(f"{path} is not in UTF-8, as notebooks are: download it anew") from None
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{path} is no notebook: {error}") from None
    lines: list[str] = []
    starts: list[int] = []
    for text in _code_cells(told, path):
        starts.append(len(lines) + 1)
        lines += _without_magics(_lines(text)).split("\n")
    if not starts:
        raise RegardError(f"{path} has no cell with code")
    source = "\n".join(lines)
    if "\0" in source:
        raise RegardError(f"{path} holds zero bytes, which no Python file has")
    return Solution(source.encode(errors="replace").decode(), tuple(starts))  # JSON may hold halves of letters


def _code_cells(told: Any, path: Path) -> list[str]:
    """The texts of the code cells, of this format of notebooks or the one before it."""
    sheets = told.get("worksheets", [told]) if isinstance(told, dict) else []
    cells = [cell for sheet in _all(sheets, dict) for cell in _all(sheet.get("cells"), dict)]
    if not cells:
        raise RegardError(f"{path} is no notebook: it has no cells")
    code = [cell.get("source", cell.get("input", "")) for cell in cells if cell.get("cell_type") == "code"]
    texts = ["".join(_all(each, str)) if isinstance(each, list) else each for each in code]
    return [each for each in texts if isinstance(each, str)]


def _all(value: Any, kind: type) -> list[Any]:
    return [each for each in value if isinstance(each, kind)] if isinstance(value, list) else []


def _without_magics(cell: str) -> str:
    """A cell with the notebook's own commands as comments; each line stays where it was."""
    if parsed(cell) is not None:
        return cell
    lines = cell.split("\n")
    first = next((place for place, line in enumerate(lines) if line.strip()), 0)
    if command := re.match(r"%%(\w+)", lines[first]):
        if command[1] not in PYTHON_MAGICS:
            return "\n".join(f"# {line}" for line in lines)
        lines[first] = f"# {lines[first]}"
    depth = 0
    for place, line in enumerate(lines):
        if depth <= 0:  # within brackets, a line may begin with a remainder's `%`
            lines[place] = MAGIC.sub(_as_comment, line)
        code = lines[place].partition("#")[0]
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))
    return "\n".join(lines)


def _as_comment(found: re.Match[str]) -> str:
    indent, target, magic = found.groups()
    return f"{indent}{target} = None  # {magic}" if target else f"{indent}pass  # {magic}"


def _names(source: str) -> set[str]:
    tree = parsed(source)
    if tree is None:
        return set(TOP_DEFINITION.findall(source))
    found: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.alias():
                found.add((node.asname or node.name).split(".")[0])
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass  # names of their own
            case _:
                waiting += ast.iter_child_nodes(node)
    return found
