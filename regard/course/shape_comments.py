"""Compare shape comments with the shapes that the tensors on their lines really had.

`# [batch, heads, seq, head_size]` at the end of a line is about every tensor that the line assigns or returns;
`# q: [batch, seq, hidden]` is about q only. A comment on a line of its own is about the statement above or below it.
A dimension is a word, a number, or a product (`batch*heads`, `batch·heads`), quotient, sum or difference of them; `...`
stands for any number of dimensions, `_` for any one. Parentheses work as well as brackets.
"""

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Literal

from regard.course.line_tracing import TracedTensor
from regard.course.solution_file import parse_source

Shape = tuple[int, ...]

WORD = r"[^\W\d]\w*'*(?:[ ][^\W\d]\w*)*"
DIMENSION = rf"\s*(?:(?:{WORD}|\d+)(?:\s*(?:\*|·|×|⋅|//|/|\+|-)\s*(?:{WORD}|\d+))*|\.\.\.|…|\*|\?|:|-1)\s*"
BRACKETS = re.compile(
    rf"(?:torch\.Size\(\s*)?(?:\[({DIMENSION}(?:,{DIMENSION})*),?\]|\(({DIMENSION}(?:,{DIMENSION})+),?\))"
)
NAMES_BEFORE = re.compile(r"([\w.]+(?:(?:\s*,\s*|\s+and\s+)[\w.]+)*)\s*(?::|=|is|has shape|shape)?\s*$")
"""What may precede the brackets: `q`, `q, k, v:`, `scores =`, `shape`."""
ARROW = re.compile(r"(?:->|→|=>|⇒|^(?:=|==|to|becomes|gives|yields))\s*$")
OPERATORS = ("@", "x", "×", "*", "·", "+", "matmul", "times")
"""What may stand between the shapes of the operands. The comment is not about the result, unless an arrow follows."""
SEPARATORS = (",", ";", "and", ", and", "),")
"""What may stand between two shapes of one comment."""
GENERAL_NAMES = ("shape", "shapes", "size", "out", "output", "outputs", "result", "returns")
"""Names in comments that refer to whatever the line produces."""
OPERATOR = r"(//|[*·×⋅/+-])"
METADATA_ATTRIBUTES = (
    "shape", "size", "device", "dtype", "dim", "ndim", "numel", "new_zeros", "new_ones", "new_full",
)  # fmt: skip
"""Attributes that do not read a tensor's values."""
MIN_USES_OF_LETTER = 3
"""How often a letter is used in comments before it may have another meaning than in the assignment."""
ANY_SIZE = ("_", "?", ":", "-1")
ELLIPSIS = ("...", "…", "*")


@dataclass(frozen=True)
class ShapeRemark:
    """A shape comment that is wrong or missing."""

    line: int
    kind: Literal["wrong", "missing"]
    commented: str
    """The shape in the comment; empty if the comment is missing."""
    actual: str
    """The shape that the tensor had, in the assignment's words where they fit."""
    variables: tuple[str, ...] = ()
    """The variables that the remark is about, if the line has several."""


@dataclass(frozen=True)
class _CommentedShape:
    """A shape in a comment."""

    text: str
    options: tuple[tuple[str, ...], ...]
    """The dimensions. If the comment lists several shapes, each tensor must have one of them."""
    names: tuple[str, ...] = ()
    """The tensors that the comment is about; empty for all on the line."""


@dataclass(frozen=True)
class _Statement:
    """A simple statement inside a function."""

    first_line: int
    last_line: int
    function_line: int
    uses: frozenset[str]
    """The variables whose values the statement reads."""
    documented: bool
    """Whether it is a return whose shape is given in the function's docstring."""


def shape_remarks(source: str, traced: Sequence[TracedTensor], sizes: Mapping[str, int]) -> list[ShapeRemark]:
    """Wrong shape comments, and lines that change a shape without a comment, among the lines that ran in the example.

    A comment is right if it fits at least one execution of its line, since a function may be called with different
    lengths. A word that is not in `sizes` keeps the meaning of its first use within a function.
    """
    tree = parse_source(source)
    if tree is None:
        return []
    comments, own_lines = _shape_comments(source, sizes)
    statements = _simple_statements(tree)
    by_function: dict[int, list[_Statement]] = {}
    for statement in statements:
        by_function.setdefault(statement.function_line, []).append(statement)
    remarks: list[ShapeRemark] = []
    for inside in by_function.values():
        wrong = _wrong_comments(inside, comments, own_lines, traced, sizes)
        if wrong and not _wrong_comments(inside, comments, own_lines, traced, _without_letters(sizes, comments)):
            wrong = []  # letters that the student uses consistently, with another meaning than the assignment
        remarks += wrong
        remarks += _missing_comments(inside, comments, own_lines, traced, sizes)
    return sorted(remarks, key=lambda remark: remark.line)


def _wrong_comments(
    statements: Sequence[_Statement],
    comments: Mapping[int, Sequence[_CommentedShape]],
    own_lines: Mapping[int, Sequence[_CommentedShape]],
    traced: Sequence[TracedTensor],
    sizes: Mapping[str, int],
) -> list[ShapeRemark]:
    """Comments in a function that fit no tensor of their statement; on a line of their own, of neither neighbour."""
    remarks: list[ShapeRemark] = []
    words: dict[str, int] = {}
    ends = {statement.last_line: statement for statement in statements}
    starts = {statement.first_line: statement for statement in statements}
    for line in sorted({*comments, *own_lines}):
        around = [statement for statement in statements if statement.first_line <= line <= statement.last_line]
        neighbours = around if line in comments else [ends.get(line - 1), starts.get(line + 1)]
        tensors_by_neighbour = [
            tensors for statement in neighbours if statement and (tensors := _tensors_of(statement, traced))
        ]
        for comment in (*comments.get(line, ()), *own_lines.get(line, ())):
            attempts = [(_contradicted(comment, tensors, sizes, words), tensors) for tensors in tensors_by_neighbour]
            if attempts and all(wrong for wrong, _ in attempts):
                wrong, tensors = attempts[0]
                remarks.append(_remark(line, "wrong", comment.text, wrong, tensors, sizes))
    return remarks


def _missing_comments(
    statements: Sequence[_Statement],
    comments: Mapping[int, Sequence[_CommentedShape]],
    own_lines: Mapping[int, Sequence[_CommentedShape]],
    traced: Sequence[TracedTensor],
    sizes: Mapping[str, int],
) -> list[ShapeRemark]:
    """Statements in a function that change a shape and have no comment at their end, above or below."""
    remarks: list[ShapeRemark] = []
    for statement in statements:
        tensors = _tensors_of(statement, traced)
        changed = {tensor.name: tuple(tensor.value.shape) for tensor in tensors if _changes_shape(tensor, statement)}
        lines = range(statement.first_line, statement.last_line + 1)
        is_commented = any(line in comments for line in lines) or not own_lines.keys().isdisjoint(
            (statement.first_line - 1, statement.last_line + 1)
        )
        if changed and not is_commented and not statement.documented:
            remarks.append(_remark(statement.first_line, "missing", "", changed, tensors, sizes))
    return remarks


def _tensors_of(statement: _Statement, traced: Sequence[TracedTensor]) -> list[TracedTensor]:
    return [tensor for tensor in traced if tensor.name and statement.first_line <= tensor.line <= statement.last_line]


def _without_letters(sizes: Mapping[str, int], comments: Mapping[int, Sequence[_CommentedShape]]) -> dict[str, int]:
    """The sizes without the letters that several comments use: a student may give them another meaning."""
    uses = Counter(
        word.strip()
        for line in comments.values()
        for comment in line
        for dimensions in comment.options
        for dimension in dimensions
        for word in re.split(OPERATOR, dimension)
    )
    return {name: size for name, size in sizes.items() if len(name) > 2 or uses[name] < MIN_USES_OF_LETTER}


def _remark(
    line: int,
    kind: Literal["wrong", "missing"],
    commented: str,
    shapes: Mapping[str, Shape],
    tensors: Sequence[TracedTensor],
    sizes: Mapping[str, int],
) -> ShapeRemark:
    """A remark on the first of these tensors, and on the others with the same shape."""
    actual = next(iter(shapes.values()))
    variables: tuple[str, ...] = ()
    if len({tensor.name for tensor in tensors}) > 1:
        variables = tuple(name for name in shapes if shapes[name] == actual)
    return ShapeRemark(line, kind, commented, shape_in_words(actual, sizes), variables)


def shape_in_words(shape: Shape, sizes: Mapping[str, int]) -> str:
    """A shape in an assignment's words, with numbers for sizes that have no word.

    >>> shape_in_words((2, 3, 7), {"batch": 2, "seq": 3, "b": 2})
    '[batch, seq, 7]'
    """
    words = {size: word for word, size in reversed(list(sizes.items()))}
    return f"[{', '.join(words.get(size, str(size)) for size in shape)}]"


def _contradicted(
    comment: _CommentedShape, tensors: Sequence[TracedTensor], sizes: Mapping[str, int], words: dict[str, int]
) -> dict[str, Shape]:
    """The tensors that never had the shape in the comment, with the shape they had. Learns new words."""
    wrong: dict[str, Shape] = {}
    shapes_by_name: dict[str, list[Shape]] = {}
    for tensor in tensors:
        shapes_by_name.setdefault(tensor.name, []).append(tuple(tensor.value.shape))
    for name in comment.names:  # `q = self.q(x)  # x: [batch, seq, input_size]` is about an earlier tensor
        shapes_by_name.setdefault(name, [tensor.before[name] for tensor in tensors if name in tensor.before])
    for name, shapes in shapes_by_name.items():
        if not shapes or (comment.names and name not in comment.names):
            continue
        attempts = [_match(dimensions, shape, sizes, words) for shape in shapes for dimensions in comment.options]
        fitting = next((meanings for meanings in attempts if meanings is not None), None)
        if fitting is None:
            wrong[name] = shapes[0]
        else:
            words |= fitting
    return wrong


def _match(
    dimensions: Sequence[str], shape: Shape, sizes: Mapping[str, int], words: Mapping[str, int]
) -> dict[str, int] | None:
    """The meanings of unknown words if the dimensions fit the shape; None if they do not."""
    ellipsis = next((index for index, dimension in enumerate(dimensions) if dimension in ELLIPSIS), None)
    if ellipsis is not None:
        after = len(dimensions) - ellipsis - 1
        if len(shape) < ellipsis + after:
            return None
        dimensions = (*dimensions[:ellipsis], *dimensions[ellipsis + 1 :])
        shape = (*shape[:ellipsis], *shape[len(shape) - after :])
    if len(dimensions) != len(shape):
        return None
    meanings = dict(words)
    pairs = zip(dimensions, shape, strict=True)
    return meanings if all(_fits(dimension, size, sizes, meanings) for dimension, size in pairs) else None


def _fits(dimension: str, size: int, sizes: Mapping[str, int], words: dict[str, int]) -> bool:
    """Whether a dimension can have this size. An unknown word gets the meaning that makes it fit."""
    if dimension in ANY_SIZE:
        return True
    parts = [part.strip() for part in re.split(OPERATOR, dimension)]
    values = [_value(part, sizes, words) for part in parts[::2]]
    unknown = [word for word, value in zip(parts[::2], values, strict=True) if value is None]
    operators = ["*" if operator in "*·×⋅" else operator for operator in parts[1::2]]
    if not unknown:
        return _evaluate([value for value in values if value is not None], operators) == size
    if len(unknown) > 1 or set(operators) - {"*"}:
        return True  # an equation with too many unknowns contradicts nothing
    product = 1
    for value in values:
        product *= 1 if value is None else value
    if product == 0 or size % product:
        return False
    words[unknown[0]] = size // product
    return True


def _evaluate(values: Sequence[int], operators: Sequence[str]) -> int:
    """Products and quotients before sums and differences, from left to right."""
    terms = [values[0]]
    for operator, value in zip(operators, values[1:], strict=True):
        if operator in "+-":
            terms.append(value if operator == "+" else -value)
        elif operator == "*":
            terms[-1] *= value
        else:
            terms[-1] = terms[-1] // value if value and terms[-1] % value == 0 else -1
    return sum(terms)


def _value(word: str, sizes: Mapping[str, int], words: Mapping[str, int]) -> int | None:
    """The size that a word or number stands for; None if unknown.

    Case is ignored in words but not in names of one or two letters, since D and d often mean different sizes.
    """
    if word.isdecimal():
        return int(word)
    joined = word.replace(" ", "_")
    lowercase = {name.lower(): size for name, size in sizes.items() if len(name) > 2}
    known = {**words, **lowercase, **sizes}
    for name in (word, joined, joined.lower()):
        if name in known and (len(word) > 2 or name == word):
            return known[name]
    return None


def _changes_shape(tensor: TracedTensor, statement: _Statement) -> bool:
    """Whether a tensor has a different shape than every tensor it was computed from."""
    sources = [shape for name, shape in tensor.before.items() if name in statement.uses]
    shape = tuple(tensor.value.shape)
    return bool(shape) and bool(sources) and shape not in sources


def _shape_comments(
    source: str, sizes: Mapping[str, int]
) -> tuple[dict[int, list[_CommentedShape]], dict[int, list[_CommentedShape]]]:
    """The shapes in comments at the ends of lines, by line; and those in comments on lines of their own."""
    trailing: dict[int, list[_CommentedShape]] = {}
    own_lines: dict[int, list[_CommentedShape]] = {}
    try:
        for token in tokenize.generate_tokens(StringIO(source).readline):
            if token.type != tokenize.COMMENT:
                continue
            if shapes := _shapes_in(token.string.lstrip("#").strip(), sizes):
                if token.line[: token.start[1]].strip():
                    trailing[token.start[0]] = shapes
                else:
                    own_lines[token.start[0]] = shapes
    except (tokenize.TokenError, SyntaxError):
        return {}, {}
    return trailing, own_lines


def _shapes_in(comment: str, sizes: Mapping[str, int]) -> list[_CommentedShape]:
    """The shapes in a comment; only the last of `[a, b] -> [b, a]`. Brackets in prose are ignored."""
    shapes: list[_CommentedShape] = []
    end = 0
    for match in BRACKETS.finditer(comment):
        before = comment[end : match.start()].strip()
        items = (match[1] or match[2]).split(",")
        dimensions = tuple(re.sub(r"\s+", " ", item.strip()) for item in items if item.strip())
        named = NAMES_BEFORE.fullmatch(before.lstrip(",;) "))
        if not _is_shape(dimensions, match[0], sizes):
            continue
        is_first, end = end == 0, match.end()
        if before in OPERATORS:
            shapes = []
        elif before in SEPARATORS and shapes:
            last = shapes[-1]
            shapes[-1] = _CommentedShape(f"{last.text}, {match[0]}", (*last.options, dimensions), last.names)
        elif ARROW.search(before) or (is_first and (not before or (named and named[1].lower() in GENERAL_NAMES))):
            shapes = [_CommentedShape(match[0], (dimensions,))]
        elif named:
            names = tuple(re.split(r"\s*,\s*|\s+and\s+", named[1]))
            shapes.append(_CommentedShape(match[0], (dimensions,), names))
    return shapes


def _is_shape(dimensions: Sequence[str], text: str, sizes: Mapping[str, int]) -> bool:
    """Whether brackets contain a shape: `[1]` may be a citation and `(so, to speak)` an aside."""
    words = [word.strip() for dimension in dimensions for word in re.split(OPERATOR, dimension)]
    if any(_value(word, sizes, {}) is not None for word in words if len(dimensions) > 1 or not word.isdecimal()):
        return True
    looks_like_sizes = any(re.search(r"^[A-Z]\w?$|_", dimension) for dimension in dimensions)
    return len(dimensions) > 1 and (not text.startswith("(") or looks_like_sizes)


def _simple_statements(tree: ast.Module) -> list[_Statement]:
    """All statements inside functions that contain no other statements, in the order of their lines."""
    statements: list[_Statement] = []

    def visit(node: ast.AST, function_line: int, documented: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function_line = node.lineno
            documented = BRACKETS.search(ast.get_docstring(node) or "") is not None
        elif isinstance(node, ast.stmt) and not hasattr(node, "body") and function_line:
            last_line = node.end_lineno or node.lineno
            is_documented = documented and isinstance(node, ast.Return)
            statements.append(_Statement(node.lineno, last_line, function_line, _variables_read(node), is_documented))
        for child in ast.iter_child_nodes(node):
            visit(child, function_line, documented)

    visit(tree, 0, False)
    return sorted(statements, key=lambda statement: statement.first_line)


def _variables_read(statement: ast.stmt) -> frozenset[str]:
    """The variables whose values a statement reads, such as `x` and `self.scores`; `x.shape` does not read `x`."""
    names: set[str] = set()
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Attribute) and node.attr in METADATA_ATTRIBUTES:
            continue
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.add(ast.unparse(node))
        elif isinstance(node, ast.AugAssign):
            names.add(ast.unparse(node.target))
        nodes += ast.iter_child_nodes(node)
    return frozenset(names)
