"""Notebooks for students: an assignment's starter as cells, in the order of the story that `notebook.py` tells.

`notebook.py` is in jupytext's py:percent format: `# %% [markdown]` begins a text cell, each line of which starts with
`#`, and `# %%` begins a code cell. A third kind of cell inserts the starter, so that gaps and docstrings exist once:
`# %% starter="NAME"` becomes a code cell with the starter's code that has not been inserted yet, up to and including
the definition of NAME.
"""

import ast
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard.course.solution_file import Definition, parse_source
from regard.errors import RegardError

CELL_MARKER = "# %%"
CELL_HEADER = re.compile(r"""# %%\s*(?:(?P<markdown>\[markdown\])|starter="(?P<starter>\w+)")?\s*""")
"""The line that begins a cell."""


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook."""

    kind: str
    """`markdown`, or `code`."""
    text: str
    starter: str = ""
    """For a cell to be filled in by the student, the last name of the starter that it defines."""
    line: int = 1
    """The line of `notebook.py` where the cell begins."""


def as_notebook(source: str, story: Path | None = None) -> str:
    """A starter as an `.ipynb` document, told by a `notebook.py` file if there is one.

    Without a story, each top-level function or class becomes a code cell, and so does the code in between.
    """
    return json.dumps(notebook_document(cells_of(source, story)), indent=1, ensure_ascii=False) + "\n"


def cells_of(source: str, story: Path | None = None) -> list[Cell]:
    """The cells of a source's notebook."""
    if story is not None and story.is_file():
        return fill_in(read_percent_cells(story.read_text(encoding="utf-8"), story), source, story)
    return [Cell("code", text) for text in _split_at_definitions(source)]


def notebook_document(cells: list[Cell]) -> dict[str, Any]:
    """Cells as a notebook in format 4."""
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return {"cells": list(map(_as_json, cells)), "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}


def read_percent_cells(text: str, path: Path) -> list[Cell]:
    """The cells of a `notebook.py` file; a RegardError with the line if the format is not followed."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(CELL_MARKER)]
    for number, line in enumerate(lines[: starts[0] if starts else None], 1):
        if line.strip():
            raise RegardError(
                f"{path}, line {number}: {line.strip()!r} is not in a cell: begin one with '# %%' or '# %% [markdown]'"
            )
    if not starts:
        raise RegardError(f"{path} has no cells: begin each one with '# %%' or '# %% [markdown]'")
    return [
        _read_cell(lines[start], lines[start + 1 : end], start + 1, path)
        for start, end in pairwise([*starts, len(lines)])
    ]


def fill_in(cells: list[Cell], source: str, path: Path) -> list[Cell]:
    """The cells with the code of a source, a starter or a solution, where the story inserts the starter.

    Code after the last definition that the story names becomes part of the last of these cells.
    """
    names = [cell.starter for cell in cells if cell.starter]
    if not names:
        raise RegardError(f"{path} has no cell for the student's code: add one with '# %% starter=\"NAME\"'")
    blocks = _split_at_definitions(_without_docstring(source))
    filled = []
    for cell in cells:
        if cell.starter:
            end = next((index for index, block in enumerate(blocks, 1) if _defines(block, cell.starter)), None)
            if end is None:
                raise RegardError(
                    f"{path}, line {cell.line}: the starter does not define {cell.starter}, or an earlier cell "
                    "contains it already"
                )
            if cell.starter == names[-1]:
                end = len(blocks)
            cell = Cell("code", "\n\n\n".join(blocks[:end]), cell.starter, cell.line)
            blocks = blocks[end:]
        filled.append(cell)
    return filled


def _read_cell(header: str, lines: list[str], number: int, path: Path) -> Cell:
    match = CELL_HEADER.fullmatch(header)
    if match is None:
        raise RegardError(
            f"{path}, line {number}: {header!r} is not a known kind of cell: write '# %%', '# %% [markdown]' or "
            "'# %% starter=\"NAME\"'"
        )
    if match["markdown"]:
        return Cell("markdown", "\n".join(_markdown_lines(lines, number, path)).strip("\n"), line=number)
    text = "\n".join(lines).strip("\n")
    if match["starter"] and text:
        raise RegardError(f"{path}, line {number + 1}: the cell of the starter must be empty: its code is inserted")
    return Cell("code", text, match["starter"] or "", number)


def _markdown_lines(lines: list[str], number: int, path: Path) -> list[str]:
    """The lines of a text cell without their leading `# `."""
    texts = []
    for offset, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            raise RegardError(f"{path}, line {number + offset}: {line!r} must start with '#', as all text cells do")
        texts.append(line.removeprefix("#").removeprefix(" "))
    return texts


def _as_json(cell: Cell) -> dict[str, Any]:
    """A cell as format 4 of notebooks defines it."""
    document = {"cell_type": cell.kind, "metadata": {}, "source": cell.text.splitlines(keepends=True)}
    return document if cell.kind == "markdown" else document | {"execution_count": None, "outputs": []}


def _without_docstring(source: str) -> str:
    """The source without the docstring of the file: in a notebook, the story takes its part."""
    body = ast.parse(source).body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return "\n".join(source.split("\n")[body[0].end_lineno :])
    return source


def _split_at_definitions(source: str) -> list[str]:
    """The source, split before and after each top-level definition.

    A comment stays with the code below it, unless it is indented: then it belongs to the definition above.
    """
    ends, lines = [0], source.split("\n")
    for node, next_node in pairwise(ast.parse(source).body):
        if isinstance(node, Definition) or isinstance(next_node, Definition):
            end = node.end_lineno or node.lineno
            while lines[end].lstrip() != lines[end] and lines[end].lstrip().startswith("#"):
                end += 1
            ends.append(end)
    blocks = ["\n".join(lines[start:end]).strip("\n") for start, end in pairwise([*ends, len(lines)])]
    return [block for block in blocks if block.strip()]


def _defines(block: str, name: str) -> bool:
    tree = parse_source(block)
    return tree is not None and any(isinstance(node, Definition) and node.name == name for node in tree.body)
