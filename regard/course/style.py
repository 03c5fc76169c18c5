"""Style remarks on a solution: PEP 8 as checked by ruff, and the length of its functions."""

import ast
import json
import subprocess
import sys
import tokenize
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO

from regard.course.solution_file import parse_source
from regard.errors import RegardError

RULES = "E,W,N,F"
"""The groups of ruff's rules that are checked."""
ALLOWED = "N803,N806,N812"
"""Rules that are not checked: Q, K and V are the paper's names, and F is the usual name of torch.nn.functional."""
ALLOWED_IN_NOTEBOOKS = "E402,F401,F811,W291,W293,W391,W292"
"""More rules that notebooks break by nature: late imports, repeated cells, blanks at the ends of cells."""
MAX_LINE_LENGTH = 120
RUFF_SECONDS = 20


@dataclass(frozen=True)
class StyleRemark:
    """A line that breaks one of ruff's rules."""

    line: int
    code: str
    """The code of the rule, such as E501."""
    text: str


def style_note() -> str | None:
    """Why style was not checked; None if it was."""
    return None if find_spec("ruff") else "Style was not checked because ruff is missing: pip install 'regard[course]'"


def style_remarks(source: str, notebook: bool = False) -> list[StyleRemark]:
    """Ruff's remarks on a source, in the order of its lines; none without ruff or if the source is not valid Python."""
    if find_spec("ruff") is None or parse_source(source) is None:
        return []
    ignored = f"{ALLOWED},{ALLOWED_IN_NOTEBOOKS}" if notebook else ALLOWED
    options = ["--isolated", "--no-cache", "--output-format=json", f"--line-length={MAX_LINE_LENGTH}"]
    command = [sys.executable, "-m", "ruff", "check", *options, f"--select={RULES}", f"--ignore={ignored}"]
    finished = subprocess.run(
        [*command, "--ignore-noqa", "--stdin-filename=solution.py", "-"],
        input=source.encode(errors="replace"),
        capture_output=True,
        timeout=RUFF_SECONDS,
        check=False,
    )
    if finished.returncode not in (0, 1):
        raise RegardError(f"ruff could not check the source: {finished.stderr.decode(errors='replace')[:300].strip()}")
    findings = json.loads(finished.stdout or b"[]")
    remarks = [
        StyleRemark(finding["location"]["row"], finding["code"], finding["message"])
        for finding in findings
        if finding["code"]
    ]
    return sorted(remarks, key=lambda remark: (remark.line, remark.code))


def longest_function(source: str) -> int:
    """Lines of code in the body of the longest function, not counting docstrings, comments and blank lines.

    >>> longest_function("def f(x):\\n    '''Twice.'''\\n    # by adding\\n    y = x + x\\n\\n    return y\\n")
    2
    """
    tree = parse_source(source)
    if tree is None:
        return 0
    nodes = list(ast.walk(tree))
    code_lines = _code_lines(source) - {line for node in nodes for line in _docstring_lines(node)}
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    spans = [range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1) for node in functions]
    return max((len(code_lines.intersection(span)) for span in spans), default=0)


def forward_statements(source: str, classes: Collection[str]) -> int:
    """Statements in the longest `forward` of these classes, not counting its docstring; 0 if there is none.

    >>> forward_statements("class A:\\n    def forward(self, x):\\n        y = x; z = y\\n        return z\\n", ["A"])
    3
    """
    tree = parse_source(source)
    if tree is None:
        return 0
    owners = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in classes]
    forwards = [
        function
        for owner in owners
        for function in owner.body
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
    ]
    return max((_count_statements(function) for function in forwards), default=0)


def _count_statements(function: ast.FunctionDef) -> int:
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    return sum(isinstance(node, ast.stmt) for node in nodes) - (ast.get_docstring(function) is not None)


def _code_lines(source: str) -> set[int]:
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    return {line for token in tokens if token.type not in empty for line in range(token.start[0], token.end[0] + 1)}


def _docstring_lines(node: ast.AST) -> range:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and isinstance(node.body[0], ast.Expr):
        first = node.body[0]
        if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)
