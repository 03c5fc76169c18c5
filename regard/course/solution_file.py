"""A student's file as Python source: a `.py` file or the code cells of a notebook, with a map back to the cells."""

import ast
import io
import json
import re
import tokenize
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.untrusted_files import read_file

MAX_SOURCE_BYTES = 1_000_000
MAX_NOTEBOOK_BYTES = 100_000_000
"""Maximum size of a notebook, including the images in its outputs."""
PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "python", "python3", "pypy")
"""Cell magics after which the rest of the cell is still Python."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
TOP_DEFINITION = re.compile(r"^(?:async\s+def|def|class)\s+(\w+)", re.MULTILINE)
MAGIC = re.compile(r"^(\s*)(?:([\w, ]+?)\s*=\s*)?([%!?].*|[\w.]+\?{1,2}\s*)$")
"""A notebook command such as `%time`, `!pip`, `files = !ls` or `torch.bmm?`: indentation, target, command."""


@dataclass(frozen=True)
class Solution:
    """The code that a student wrote."""

    source: str
    """Python source with `\\n` line endings."""
    cells: tuple[int, ...] = ()
    """The first line of each code cell of a notebook; empty for a `.py` file."""

    def where(self, line: int) -> str:
        """How to find a line of the source in the student's file. Only code cells are counted.

        >>> Solution("a = 1\\nb = 2\\nc = 3", cells=(1, 3)).where(3)
        'cell 2, line 1'
        """
        cell = bisect_right(self.cells, line)
        return f"cell {cell}, line {line - self.cells[cell - 1] + 1}" if cell else f"line {line}"

    @property
    def names(self) -> frozenset[str]:
        """The names defined at the top level. In a file with a syntax error, only definitions are recognised.

        >>> sorted(Solution("import math\\nhalf = 0.5\\nclass A:\\n    b = 1").names)
        ['A', 'half', 'math']
        """
        return frozenset(name for _, text in self._blocks for name in _top_names(text))

    @property
    def syntax_error(self) -> tuple[int, str] | None:
        """The first line that is not valid Python, and the reason; None if all of it is valid.

        >>> Solution("x = 1\\ndef (:\\n").syntax_error
        (2, 'invalid syntax')
        """
        for first_line, text in self._blocks:
            try:
                with warnings.catch_warnings(action="ignore"):
                    ast.parse(text)
            except SyntaxError as error:
                return first_line - 1 + (error.lineno or 1), error.msg
            except (ValueError, MemoryError, RecursionError) as error:
                return first_line, str(error) or type(error).__name__
        return None

    @property
    def _blocks(self) -> list[tuple[int, str]]:
        """The cells, or the complete file, each with its first line."""
        starts, lines = self.cells or (1,), self.source.split("\n")
        ends = [*starts[1:], len(lines) + 1]
        return [(start, "\n".join(lines[start - 1 : end - 1])) for start, end in zip(starts, ends, strict=True)]


def read_solution(path: Path) -> Solution:
    """Read a student's `.py` or `.ipynb` file; a RegardError that says what to do if it cannot be read."""
    if path.is_dir():
        raise RegardError(f"{path} is a folder: pass a single .py or .ipynb file")
    suffix = path.suffix.lower()
    if suffix not in (".py", ".ipynb"):
        raise RegardError(f"{path} is neither a .py nor an .ipynb file")
    content = read_file(path, MAX_NOTEBOOK_BYTES if suffix == ".ipynb" else MAX_SOURCE_BYTES)
    solution = _read_notebook(content, path) if suffix == ".ipynb" else Solution(_decode_source(content, path))
    if len(solution.source) > MAX_SOURCE_BYTES:
        raise RegardError(
            f"{path} has {len(solution.source):,} characters of code; the maximum is {MAX_SOURCE_BYTES:,}"
        )
    if not solution.source.strip():
        raise RegardError(f"{path} is empty: has it been saved?")
    return solution


def parse_source(source: str) -> ast.Module | None:
    """The syntax tree, without warnings; None if the source is not valid Python."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _decode_source(content: bytes, path: Path) -> str:
    """Decode a file as Python does: UTF-8 with or without a byte order mark, or the declared encoding."""
    if b"\0" in content:
        raise RegardError(f"{path} contains zero bytes and is not a text file: save it as UTF-8 text")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise RegardError(f"{path} cannot be read as text ({error}): save it in UTF-8") from None
    return _with_line_feeds(text)


def _with_line_feeds(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _read_notebook(content: bytes, path: Path) -> Solution:
    """The code cells of a notebook as one source."""
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except UnicodeError:
        raise RegardError(f"{path} is not encoded in UTF-8, as notebooks are: download it again") from None
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{path} is not a notebook: {error}") from None
    lines: list[str] = []
    starts: list[int] = []
    for text in _code_cells(notebook, path):
        starts.append(len(lines) + 1)
        lines += _comment_out_magics(_with_line_feeds(text)).split("\n")
    if not starts:
        raise RegardError(f"{path} has no code cells")
    source = "\n".join(lines)
    if "\0" in source:
        raise RegardError(f"{path} contains zero bytes, which Python source cannot have")
    return Solution(source.encode(errors="replace").decode(), tuple(starts))  # JSON may contain unpaired surrogates


def _code_cells(notebook: Any, path: Path) -> list[str]:
    """The texts of the code cells of a notebook in format 4 or 3."""
    sheets = notebook.get("worksheets", [notebook]) if isinstance(notebook, dict) else []
    cells = [cell for sheet in _items_of_type(sheets, dict) for cell in _items_of_type(sheet.get("cells"), dict)]
    if not cells:
        raise RegardError(f"{path} is not a notebook: it has no cells")
    sources = [cell.get("source", cell.get("input", "")) for cell in cells if cell.get("cell_type") == "code"]
    texts = ["".join(_items_of_type(source, str)) if isinstance(source, list) else source for source in sources]
    return [text for text in texts if isinstance(text, str)]


def _items_of_type(value: Any, kind: type) -> list[Any]:
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list) else []


def _comment_out_magics(cell: str) -> str:
    """A cell with its notebook commands turned into comments. Every line keeps its number."""
    if parse_source(cell) is not None:
        return cell
    lines = cell.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if command := re.match(r"%%(\w+)", lines[first]):
        if command[1] not in PYTHON_MAGICS:
            return "\n".join(f"# {line}" for line in lines)
        lines[first] = f"# {lines[first]}"
    depth = 0
    for index, line in enumerate(lines):
        if depth <= 0:  # inside brackets, a line may begin with the modulo operator
            lines[index] = MAGIC.sub(_as_comment, line)
        code = lines[index].partition("#")[0]
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))
    return "\n".join(lines)


def _as_comment(match: re.Match[str]) -> str:
    indent, target, magic = match.groups()
    return f"{indent}{target} = None  # {magic}" if target else f"{indent}pass  # {magic}"


def _top_names(source: str) -> set[str]:
    tree = parse_source(source)
    if tree is None:
        return set(TOP_DEFINITION.findall(source))
    names: set[str] = set()
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.alias():
                names.add((node.asname or node.name).split(".")[0])
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass  # they have a scope of their own
            case _:
                nodes += ast.iter_child_nodes(node)
    return names
