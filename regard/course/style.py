"""Remarks on a solution's style: PEP 8 as ruff sees it, and how long its functions are."""

import ast
import json
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO

from regard.course.notebook import parsed
from regard.errors import RegardError

RULES = "E,W,N,F"
TOLERATED = "N803,N806,N812"
"""Q, K and V are the paper's names, and F is everyone's for torch.nn.functional"""
IN_NOTEBOOKS = "E402,F401,F811,W291,W293,W391,W292"
"""imports where they are needed, cells written twice, blanks at the ends of cells"""
LINE_LENGTH = 120
"""as in Regard's own files; PEP 8 leaves longer lines to those who agree on them"""
SECONDS = 20


@dataclass(frozen=True)
class StyleRemark:
    """A line that PEP 8 would have otherwise."""

    line: int
    code: str
    """of the rule, as E501"""
    text: str


def style_note() -> str | None:
    """Why there are no remarks at all; None when there may be some."""
    return None if find_spec("ruff") else "style was not looked at: `pip install ruff` makes it so"


def style_remarks(source: str, notebook: bool = False) -> list[StyleRemark]:
    """What ruff remarks on a source, from the top; nothing without ruff, or where the source is no Python."""
    if find_spec("ruff") is None or parsed(source) is None:
        return []
    ignored = f"{TOLERATED},{IN_NOTEBOOKS}" if notebook else TOLERATED
    options = ["--isolated", "--no-cache", "--output-format=json", f"--line-length={LINE_LENGTH}"]
    command = [sys.executable, "-m", "ruff", "check", *options, f"--select={RULES}", f"--ignore={ignored}"]
    ran = subprocess.run(
        [*command, "--ignore-noqa", "--stdin-filename=solution.py", "-"],
        input=source.encode(errors="replace"),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    if ran.returncode not in (0, 1):
        raise RegardError(f"ruff could not look at the source: {ran.stderr.decode(errors='replace')[:300].strip()}")
    told = json.loads(ran.stdout or b"[]")
    remarks = [StyleRemark(each["location"]["row"], each["code"], each["message"]) for each in told if each["code"]]
    return sorted(remarks, key=lambda each: (each.line, each.code))


def longest_function(source: str) -> int:
    """Lines of code in the body of the longest function: without its docstring, comments and blank lines.

    >>> longest_function("def f(x):\\n    '''Twice.'''\\n    # by adding\\n    y = x + x\\n\\n    return y\\n")
    2
    """
    tree = parsed(source)
    if tree is None:
        return 0
    nodes = list(ast.walk(tree))
    code = _lines_of_code(source) - {line for node in nodes for line in _docstring(node)}
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    spans = [range(each.body[0].lineno, (each.end_lineno or each.lineno) + 1) for each in functions]
    return max((len(code.intersection(span)) for span in spans), default=0)


def _lines_of_code(source: str) -> set[int]:
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    return {line for each in tokens if each.type not in empty for line in range(each.start[0], each.end[0] + 1)}


def _docstring(node: ast.AST) -> range:
    """The lines of a function's or class's docstring."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and isinstance(node.body[0], ast.Expr):
        first = node.body[0]
        if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)
