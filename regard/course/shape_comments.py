"""Shape comments, compared with the shapes that tensors really had on their lines.

`# [batch, heads, seq, head_size]` behind a line speaks of every tensor that the line gives to a variable or returns;
`# q: [batch, seq, hidden]` of that one. A dimension is a word, a number, or a product (`batch*heads`, `batch·heads`),
a quotient or a sum of them; `...` is any number of dimensions, `_` any one. Round brackets do as well.
"""

import ast
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Literal

from regard.course.notebook import parsed
from regard.course.observe import Held

Shape = tuple[int, ...]

WORD = r"[^\W\d]\w*'*(?:[ ][^\W\d]\w*)*"
DIM = rf"\s*(?:(?:{WORD}|\d+)(?:\s*(?:\*|·|×|⋅|//|/|\+|-)\s*(?:{WORD}|\d+))*|\.\.\.|…|\*|\?|:|-1)\s*"
BRACKETS = re.compile(rf"(?:torch\.Size\(\s*)?(?:\[({DIM}(?:,{DIM})*),?\]|\(({DIM}(?:,{DIM})+),?\))")
NAMED = re.compile(r"([\w.]+(?:(?:\s*,\s*|\s+and\s+)[\w.]+)*)\s*(?::|=|is|has shape|shape)?\s*$")
"""what stands before the brackets: `q`, `q, k, v:`, `scores =`, `shape`"""
ARROW = re.compile(r"(?:->|→|=>)\s*$")
BETWEEN = (",", ";", "and", ", and", "),")
GENERAL = ("shape", "shapes", "size", "out", "output", "outputs", "result", "returns")
"""names of whatever the line gives"""
SIGN = r"(//|[*·×⋅/+-])"
NO_NUMBERS = ("shape", "size", "device", "dtype", "dim", "ndim", "numel", "new_zeros", "new_ones", "new_full")
ANY = ("_", "?", ":", "-1")
ELLIPSIS = ("...", "…", "*")


@dataclass(frozen=True)
class Remark:
    """A shape comment that is wrong, or one that is missing."""

    line: int
    kind: Literal["wrong", "missing"]
    said: str
    """the comment's shape; nothing of one that is missing"""
    was: str
    """the shape that the tensor had, in the assignment's words where they fit"""
    of: tuple[str, ...] = ()
    """the variables that it is said of, where the line gives several"""


@dataclass(frozen=True)
class _Said:
    """A shape that a comment tells."""

    text: str
    options: tuple[tuple[str, ...], ...]
    """dimension by dimension; of several shapes in a row, each tensor has one"""
    names: tuple[str, ...] = ()
    """of the tensors that it speaks of; none: of all on the line"""


@dataclass(frozen=True)
class _Statement:
    """A statement of one thing, the function it stands in, and the variables that it uses."""

    first: int
    last: int
    function: int
    uses: frozenset[str]
    documented: bool
    """it returns what the function's docstring tells the shape of"""


def shape_remarks(source: str, held: Sequence[Held], sizes: Mapping[str, int]) -> list[Remark]:
    """Shape comments that are wrong, and lines that change a shape without telling; of lines that ran in the example.

    A comment is right if it holds on at least one of the line's turns: a function may be called with other lengths.
    A word that `sizes` does not know means, within a function, what it meant when first used.
    """
    tree = parsed(source)
    if tree is None:
        return []
    comments, above = _comments(source, sizes)
    remarks: list[Remark] = []
    bound: dict[int, dict[str, int]] = {}
    for statement in _statements(tree):
        lines = range(statement.first, statement.last + 1)
        here = [each for each in held if each.name and each.line in lines]
        words = bound.setdefault(statement.function, {})
        said = [(line, each) for line in lines for each in comments.get(line, ())]
        for line, each in said:
            if wrong := _refuted(each, here, sizes, words):
                remarks.append(_remark(line, "wrong", each.text, wrong, here, sizes))
        changed = {each.name: tuple(each.value.shape) for each in here if _changes(each, statement)}
        if changed and not said and not statement.documented and statement.first - 1 not in above:
            remarks.append(_remark(statement.first, "missing", "", changed, here, sizes))
    return sorted(remarks, key=lambda each: each.line)


def _remark(
    line: int,
    kind: Literal["wrong", "missing"],
    said: str,
    shapes: Mapping[str, Shape],
    held: Sequence[Held],
    sizes: Mapping[str, int],
) -> Remark:
    """A remark on the first of these tensors, and on those of its shape."""
    was = next(iter(shapes.values()))
    several = len({each.name for each in held}) > 1
    return Remark(
        line, kind, said, in_words(was, sizes), tuple(name for name in shapes if shapes[name] == was) if several else ()
    )


def in_words(shape: Shape, sizes: Mapping[str, int]) -> str:
    """A shape in the words of an assignment, numbers where it has none.

    >>> in_words((2, 3, 7), {"batch": 2, "seq": 3, "b": 2})
    '[batch, seq, 7]'
    """
    words = {size: word for word, size in reversed(list(sizes.items()))}
    return f"[{', '.join(words.get(size, str(size)) for size in shape)}]"


def _refuted(said: _Said, held: Sequence[Held], sizes: Mapping[str, int], bound: dict[str, int]) -> dict[str, Shape]:
    """The tensors of this line that never had the shape that is said of them, and the shape they had instead."""
    wrong: dict[str, Shape] = {}
    found: dict[str, list[Shape]] = {}
    for each in held:
        found.setdefault(each.name, []).append(tuple(each.value.shape))
    for name in said.names:  # `q = self.q(x)  # x: [batch, seq, input_size]` speaks of what was there before
        found.setdefault(name, [each.before[name] for each in held if name in each.before])
    for name, shapes in found.items():
        if not shapes or (said.names and name not in said.names):
            continue
        tries = [_fits(dims, shape, sizes, bound) for shape in shapes for dims in said.options]
        fitting = next((words for words in tries if words is not None), None)
        if fitting is None:
            wrong[name] = shapes[0]
        else:
            bound |= fitting
    return wrong


def _fits(
    dims: Sequence[str], shape: Shape, sizes: Mapping[str, int], bound: Mapping[str, int]
) -> dict[str, int] | None:
    """What the unknown words then mean, if a shape is what is said; None if it is not."""
    open_at = next((place for place, dim in enumerate(dims) if dim in ELLIPSIS), None)
    if open_at is not None:
        behind = len(dims) - open_at - 1
        if len(shape) < open_at + behind:
            return None
        dims = (*dims[:open_at], *dims[open_at + 1 :])
        shape = (*shape[:open_at], *shape[len(shape) - behind :])
    if len(dims) != len(shape):
        return None
    words = dict(bound)
    return words if all(_is(dim, size, sizes, words) for dim, size in zip(dims, shape, strict=True)) else None


def _is(dim: str, size: int, sizes: Mapping[str, int], words: dict[str, int]) -> bool:
    """Whether a dimension is of this size; a word that is not known yet is, from now on."""
    if dim in ANY:
        return True
    parts = [each.strip() for each in re.split(SIGN, dim)]
    values = [_value(each, sizes, words) for each in parts[::2]]
    unknown = [word for word, value in zip(parts[::2], values, strict=True) if value is None]
    signs = ["*" if sign in "*·×⋅" else sign for sign in parts[1::2]]
    if unknown:
        rest = 1
        for value in values:
            rest *= 1 if value is None else value
        if len(unknown) > 1 or set(signs) - {"*"}:
            return True  # an equation with too many unknowns refutes nothing
        if rest == 0 or size % rest:
            return False
        words[unknown[0]] = size // rest
        return True
    return _result([each for each in values if each is not None], signs) == size


def _result(values: Sequence[int], signs: Sequence[str]) -> int:
    """Products before sums, from left to right."""
    terms = [values[0]]
    for sign, value in zip(signs, values[1:], strict=True):
        if sign in "+-":
            terms.append(value if sign == "+" else -value)
        elif sign == "*":
            terms[-1] *= value
        else:
            terms[-1] = terms[-1] // value if value and terms[-1] % value == 0 else -1
    return sum(terms)


def _value(word: str, sizes: Mapping[str, int], words: Mapping[str, int]) -> int | None:
    """What a word or a number means, if that is known.

    Capitals make no difference in words, and one in letters: D and d are two things to many.
    """
    if word.isdecimal():
        return int(word)
    joined = word.replace(" ", "_")
    book = {**words, **{each.lower(): size for each, size in sizes.items() if len(each) > 2}, **sizes}
    return next((book[each] for each in (word, joined, joined.lower()) if each in book and _may_be(each, word)), None)


def _may_be(known: str, word: str) -> bool:
    return len(word) > 2 or known == word


def _changes(held: Held, statement: _Statement) -> bool:
    """Whether a tensor has another shape than all that it was made of."""
    sources = [shape for name, shape in held.before.items() if name in statement.uses]
    shape = tuple(held.value.shape)
    return bool(shape) and bool(sources) and shape not in sources


def _comments(source: str, sizes: Mapping[str, int]) -> tuple[dict[int, list[_Said]], set[int]]:
    """The shapes told behind lines of code, by line; and the lines that are nothing but such a comment."""
    behind: dict[int, list[_Said]] = {}
    alone: set[int] = set()
    try:
        for token in tokenize.generate_tokens(StringIO(source).readline):
            if token.type == tokenize.COMMENT and (said := _said(token.string.lstrip("#").strip(), sizes)):
                if token.line[: token.start[1]].strip():
                    behind[token.start[0]] = said
                else:
                    alone.add(token.start[0])
    except (tokenize.TokenError, SyntaxError):
        return {}, set()
    return behind, alone


def _said(comment: str, sizes: Mapping[str, int]) -> list[_Said]:
    """The shapes of a comment; of `[a, b] -> [b, a]` the last. Brackets amid prose are no shapes."""
    told: list[_Said] = []
    end = 0
    for found in BRACKETS.finditer(comment):
        before = comment[end : found.start()].strip()
        dims = tuple(re.sub(r"\s+", " ", each.strip()) for each in (found[1] or found[2]).split(",") if each.strip())
        named = NAMED.fullmatch(before.lstrip(",;) "))
        if not _is_shape(dims, found[0], sizes):
            continue
        end = found.end()
        if before in BETWEEN and told:
            told[-1] = _Said(f"{told[-1].text}, {found[0]}", (*told[-1].options, dims), told[-1].names)
        elif ARROW.search(before) or (not told and (not before or (named and named[1].lower() in GENERAL))):
            told = [_Said(found[0], (dims,))]
        elif named:
            told.append(_Said(found[0], (dims,), tuple(re.split(r"\s*,\s*|\s+and\s+", named[1]))))
    return told


def _is_shape(dims: Sequence[str], text: str, sizes: Mapping[str, int]) -> bool:
    """Whether brackets hold a shape: `[1]` may be a book and `(so, to speak)` an aside."""
    words = [word.strip() for dim in dims for word in re.split(SIGN, dim)]
    if any(_value(word, sizes, {}) is not None for word in words if len(dims) > 1 or not word.isdecimal()):
        return True
    return len(dims) > 1 and (not text.startswith("(") or any(re.search(r"^[A-Z]\w?$|_", dim) for dim in dims))


def _statements(tree: ast.Module) -> list[_Statement]:
    """All statements within functions that hold no others, from the top."""
    found: list[_Statement] = []

    def visit(node: ast.AST, function: int, told: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, told = node.lineno, BRACKETS.search(ast.get_docstring(node) or "") is not None
        elif isinstance(node, ast.stmt) and not hasattr(node, "body") and function:
            last = node.end_lineno or node.lineno
            found.append(_Statement(node.lineno, last, function, _uses(node), told and isinstance(node, ast.Return)))
        for child in ast.iter_child_nodes(node):
            visit(child, function, told)

    visit(tree, 0, False)
    return sorted(found, key=lambda each: each.first)


def _uses(statement: ast.stmt) -> frozenset[str]:
    """The variables whose numbers a statement reads, as `x` and `self.scores`; not `x` for `x.shape` alone."""
    found: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and node.attr in NO_NUMBERS:
            continue
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.AugAssign):
            found.add(ast.unparse(node.target))
        waiting += ast.iter_child_nodes(node)
    return frozenset(found)
