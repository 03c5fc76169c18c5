"""Which line of a solution contains a mistake, given a version of the reference that makes the same mistake.

The reference and the version with the mistake are called right and wrong here. The function of the solution that has
the same name as the function in which they differ is searched, together with functions of the student's own: first for
the values that the changed lines computed, then for their words. It is better to name no line than a wrong one.
"""

import ast
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch

from regard.course.line_tracing import TracedTensor
from regard.course.line_words import (
    DISTINCTIVE_OPERATIONS,
    changed_names,
    similarity,
    statements,
    words_of,
)
from regard.course.mistake_location import edited_lines
from regard.course.numeric_equality import same
from regard.course.solution_file import parse_source
from regard.course.unfinished import top_functions
from regard.course.value_index import Layout, ValueIndex, canonical, is_mask, loop_views

MIN_WORD_OVERLAP = 0.4
"""Minimum share of common words for a line to be considered similar to another."""
MIN_OVERLAP_OF_OMISSION = 0.6
"""The same if the mistake is that something is missing, so that the words of the mistake are not there."""
MIN_WORD_MARGIN = 0.05
"""By how much the most similar line must be more similar than the second."""
COMMON_NAMES = frozenset(
    {"for", "lambda", "not", "and", "else", "shape", "size", "len", "range", "sum", "mean", "list", "tuple", "expand"}
)
"""Names that lines use for many purposes, so that they do not tell where a mistake is."""
CHANGED_WORD_WEIGHT = 3
"""How much more a word counts if the right and the wrong line differ in it."""


@dataclass(frozen=True)
class FoundLine:
    """A line that probably contains a mistake."""

    line: int
    by_values: bool
    """Whether it computed the wrong values; otherwise its words are similar."""


class TracedFile:
    """A source, its functions, and the tensors that its lines produced."""

    def __init__(self, source: str, traced: Sequence[TracedTensor]) -> None:
        self.source, self.traced = source, traced
        self.functions = dict(_functions(source))

    @cached_property
    def index(self) -> ValueIndex:
        """The tensors by their values."""
        return ValueIndex(self.traced)

    def function_at(self, line: int) -> str:
        """The name of the top-level function or method that contains a line; empty outside of functions."""
        return next((name for name, (span, _) in self.functions.items() if line in span), "")

    def functions_at(self, lines: Set[int]) -> set[str]:
        """The names of the functions that contain these lines."""
        return {name for line in lines if (name := self.function_at(line))}

    def lines_of(self, names: set[str]) -> set[int]:
        """All lines of these functions."""
        return {line for name in names if name in self.functions for line in self.functions[name][0]}


def find_line(solution: TracedFile, wrong: TracedFile, right: TracedFile, is_visible: bool = True) -> FoundLine | None:
    """The line of the solution that most likely contains the mistake that the wrong version makes.

    `is_visible` says whether the mistake changes the results of the traced example.
    """
    return _Search(solution, wrong, right, is_visible).run()


def edited_functions(wrong: TracedFile, right: TracedFile) -> set[str]:
    """The names of the functions in which the wrong version differs from the right one."""
    edited, originals = edited_lines(wrong.source, right.source), edited_lines(right.source, wrong.source)
    return wrong.functions_at(edited) | right.functions_at(originals)


class _Search:
    def __init__(self, solution: TracedFile, wrong: TracedFile, right: TracedFile, is_visible: bool) -> None:
        self.solution, self.wrong, self.right, self.is_visible = solution, wrong, right, is_visible
        self.edited = edited_lines(wrong.source, right.source)
        self.originals = edited_lines(right.source, wrong.source)
        self.places = edited_functions(wrong, right)

    def run(self) -> FoundLine | None:
        """Search the narrowest scope that contains evidence."""
        for names in self._scopes():
            lines = self.solution.lines_of(names)
            searches = () if self._is_control_flow else (self, *self._in_loops) if self.is_visible else (self,)
            found = (search._by_values(lines, names) for search in searches)
            if (tensor := next((tensor for tensor in found if tensor is not None), None)) is not None:
                helper = self._in_helper(tensor)
                return FoundLine(self._call_site(tensor) if helper is tensor else helper.line, True)
            if self.places & names and (line := self._by_words(lines)) is not None:
                return FoundLine(line, False)
        line = self._only_statement() or self._by_new_name()
        return None if line is None else FoundLine(line, False)

    @cached_property
    def _is_control_flow(self) -> bool:
        """Whether the changed lines compute no tensors."""
        computed = [tensor for tensor in self.wrong.traced if tensor.line in self.edited]
        return not computed and not any(tensor.line in self.originals for tensor in self.right.traced)

    def _scopes(self) -> Iterator[set[str]]:
        """Sets of functions to search: of the same name and the student's own, of the same class, and their callers."""
        functions, given = self.solution.functions, self.right.functions
        unchanged = {name for name, (_, code) in functions.items() if name in given and given[name][1] == code}
        classes = {name.partition(".")[0] for name in self.places if "." in name}
        in_classes = {name for name in functions if name.partition(".")[0] in classes}
        given_classes = {name.partition(".")[0] for name in given if "." in name}
        elsewhere = {name for name in functions if name.partition(".")[0] in given_classes} - in_classes
        own = functions.keys() - given.keys() - elsewhere
        same = {name for name in self.places if name in functions} - unchanged
        if same:
            yield same | own
        if in_classes - unchanged - same:
            yield (in_classes | own) - unchanged
        seen, callers = set(self.places), self.places
        while callers := self._callers_of(callers) - seen:
            seen |= callers  # functions may call each other in a circle
            if there := {name for name in callers if name in functions} - unchanged - same:
                yield there | own
                return

    def _callers_of(self, names: set[str]) -> set[str]:
        """The functions of the reference that call one of these functions."""
        called = [re.compile(rf"\b{name.rpartition('.')[2]}\(") for name in names]
        return {
            caller
            for caller, (_, code) in self.right.functions.items()
            if any(pattern.search(code.partition(":")[2]) for pattern in called)
        }

    @cached_property
    def _wrong_at_edits(self) -> list[TracedTensor]:
        """What the wrong version's changed lines computed the first time, and the right version's did not."""
        expected = [tensor for tensor in self.right.traced if tensor.line in self.originals]
        names = {tensor.name for tensor in expected}
        by_name = {name: ValueIndex([tensor for tensor in expected if tensor.name == name]) for name in names}
        anywhere = ValueIndex(expected)
        differing: dict[tuple[int, str, int], TracedTensor] = {}
        for number, tensor in enumerate(self.wrong.traced):
            if tensor.line not in self.edited or canonical(tensor.value) is None:
                continue
            if by_name.get(tensor.name, anywhere).contains(tensor.value, Layout.SAME):
                continue
            key = (tensor.line, tensor.name, 0 if tensor.name else number)
            if key in differing:
                break  # the line ran again, with inputs that may be wrong already
            differing[key] = tensor
        return list(differing.values())

    def _by_values(self, lines: set[int], names: set[str]) -> TracedTensor | None:
        """The solution's tensor that is most likely the first wrong one."""
        if (number := self._wrong_value(lines)) is not None:
            return self._source_of(number)
        if self._wrong_constants:
            return self._constant(self._wrong_constants, lines)
        first_new = self._first_new(lines)
        if not self._wrong_at_edits:
            is_near = self._is_distinctive and self.places & names
            return self._source_of(first_new) if first_new is not None and is_near else None
        if not self.is_visible:
            return None
        # A right value in a wrong place: something is missing after the line, or the line takes the wrong value.
        limit = len(self.solution.traced) if first_new is None else first_new
        for tensor in self._wrong_at_edits:
            if self._is_unused(tensor, limit, lines):
                return None if first_new is None else self.solution.traced[first_new]
            for layout in Layout:
                if before := [number for number in self._find(tensor, layout, lines) if number <= limit]:
                    return self._last_that_matters(before, tensor.name == "return")
        return None

    @cached_property
    def _in_loops(self) -> list["_Search"]:
        """The same search for solutions that compute one sequence or one head at a time."""
        views = zip(loop_views(self.wrong.traced), loop_views(self.right.traced), strict=True)
        files = [(TracedFile(self.wrong.source, one), TracedFile(self.right.source, other)) for one, other in views]
        return [_Search(self.solution, wrong, right, self.is_visible) for wrong, right in files]

    def _wrong_value(self, lines: set[int]) -> int | None:
        """The first tensor of the solution that only the wrong version's changed lines computed."""
        numbers = (self._new_value(tensor, lines) for tensor in self._wrong_at_edits)
        return next((number for number in numbers if number is not None), None)

    def _in_helper(self, tensor: TracedTensor) -> TracedTensor:
        """A tensor; or what a function of the student's own returned to its line, if that is more likely wrong.

        That is so if neither version has the function's result, and the line has none of the names that the mistake
        changes.
        """
        if not self.is_visible or self._changed_names_at(tensor.line):
            return tensor
        read = _variables_read(self.solution.source, tensor.line)
        assigned = {other.line for other in self.solution.traced if other.name in read}
        number = next(number for number, other in enumerate(self.solution.traced) if other is tensor)
        for other in reversed(self.solution.traced[:number]):
            is_helper = self.solution.function_at(other.line) not in self.right.functions
            if other.name == "return" and is_helper and other.callers[-1:] and other.callers[:-1] == tensor.callers:
                is_read = other.callers[-1] == tensor.line or other.callers[-1] in assigned
                if is_read and self._is_unknown(other.value):
                    return self._in_helper(other)
        return tensor

    @cached_property
    def _right_results(self) -> ValueIndex:
        """What the right version computes, except for intermediate results of the changed lines."""
        return ValueIndex([tensor for tensor in self.right.traced if tensor.name or tensor.line not in self.originals])

    def _is_unknown(self, value: torch.Tensor) -> bool:
        """Whether neither version computes these values."""
        files = [file for search in (self, *self._in_loops) for file in (search.right, search.wrong)]
        return canonical(value) is not None and not any(file.index.contains(value, Layout.PERMUTED) for file in files)

    def _is_unused(self, wrong: TracedTensor, limit: int, lines: set[int]) -> bool:
        """Whether the line that computes a variable's wrong value computes the right one too: it is used wrongly."""
        named = [tensor for tensor in self.right.traced if tensor.line in self.originals and tensor.name == wrong.name]
        if not named or not wrong.name.isidentifier():
            return False
        rows = [self._find(tensor, Layout.PERMUTED, lines) for tensor in (wrong, named[0])]
        wrong_lines, right_lines = ({self.solution.traced[n].line for n in row if n < limit} for row in rows)
        return bool(wrong_lines & right_lines)

    def _source_of(self, number: int) -> TracedTensor:
        """A tensor; or one that its line reads, if that may be wrong too and its line uses the changed operation."""
        tensor = self.solution.traced[number]
        if self._uses_changed_operation(tensor.line):
            return tensor
        read = _variables_read(self.solution.source, tensor.line)
        is_inverted = bool(words_of(self.solution.source, {tensor.line}) & {"~", "==", "!="})
        latest = {other.name: other for other in self.solution.traced[:number] if other.name in read}
        unknown = [
            other
            for other in latest.values()
            if self._uses_changed_operation(other.line)
            and (self._is_unknown(other.value) or (is_mask(other.value) and not is_inverted))
        ]
        return unknown[0] if len(unknown) == 1 else tensor

    def _uses_changed_operation(self, line: int) -> bool:
        changed = words_of(self.wrong.source, self.edited) | words_of(self.right.source, self.originals)
        return bool(words_of(self.solution.source, {line}) & changed & DISTINCTIVE_OPERATIONS)

    @cached_property
    def _changed_names(self) -> frozenset[str]:
        """The names that the mistake adds, removes or replaces."""
        return changed_names(self.wrong.source, self.edited, self.right.source, self.originals)

    def _changed_names_at(self, line: int) -> int:
        """How many of these names a line of the solution has."""
        return len(self._changed_names & words_of(self.solution.source, {line}))

    def _new_value(self, tensor: TracedTensor, lines: set[int]) -> int | None:
        """The first tensor of the solution with this value of the wrong version, if the right version never has it."""
        if not self.right.index.contains(tensor.value, Layout.PERMUTED):
            # An intermediate result may be right in another style, unless it has the same shape.
            if tensor.name or self._find(tensor, Layout.SAME, lines):
                return next(iter(self._find(tensor, Layout.PERMUTED, lines)), None)
            return None
        for layout in (Layout.RESHAPED, Layout.SAME) if self.is_visible else ():
            numbers = self._find(tensor, layout, lines) if tensor.name or layout == Layout.SAME else []
            if numbers and not self.right.index.contains(tensor.value, layout):
                return numbers[0]
        return None

    @property
    def _is_distinctive(self) -> bool:
        """Whether the changed lines compute more than constants."""
        computed = [tensor for tensor in self.wrong.traced if tensor.line in self.edited]
        return any(canonical(tensor.value) is not None for tensor in computed)

    @cached_property
    def _wrong_constants(self) -> list[TracedTensor]:
        """Constants that the wrong version's changed lines computed, and the right version's did not."""
        expected = [tensor for tensor in self.right.traced if tensor.line in self.originals]
        computed = [tensor for tensor in self.wrong.traced if tensor.line in self.edited]
        constants = [tensor for tensor in computed if canonical(tensor.value) is None]
        return [one for one in constants if not any(torch.equal(one.value, other.value) for other in expected)]

    def _constant(self, constants: Sequence[TracedTensor], lines: set[int]) -> TracedTensor | None:
        """The solution's first tensor that equals one of these and has its name: constants occur everywhere."""
        named = [tensor for tensor in self.solution.traced if tensor.name and tensor.line in lines]
        for tensor in named:
            is_there = self.solution.function_at(tensor.line) in self.places
            if is_there and any(one.name == tensor.name and torch.equal(one.value, tensor.value) for one in constants):
                return tensor
        return None

    def _find(self, tensor: TracedTensor, layout: Layout, lines: set[int]) -> list[int]:
        """The positions of the solution's tensors on these lines that have the same values."""
        found = self.solution.index.find(tensor.value, layout)
        return [number for number in found if self.solution.traced[number].line in lines]

    def _last_that_matters(self, numbers: Sequence[int], is_result: bool) -> TracedTensor:
        """The last of these tensors; but `y = x` instead of the line that returns y, and no line without effect.

        A line that returns a variable matters if the mistake is in a result, or if the variable was set in a loop.
        """
        tensors: list[TracedTensor] = []
        idle: set[int] = set()
        for tensor in (self.solution.traced[number] for number in numbers):
            if tensor.name not in ("", "return") and any(other.name == tensor.name for other in tensors):
                idle.add(tensor.line)  # such as dropout in eval mode: the variable keeps its value
            tensors.append(tensor)
        tensors = [tensor for tensor in tensors if tensor.line not in idle] or tensors
        assigned = [tensor for tensor in tensors if not tensor.name.startswith("return")]
        if assigned and not is_result and assigned[-1].line not in _loop_lines(self.solution.source):
            tensors = assigned
        source = self.solution.source.split("\n")
        aliases = [tensor for tensor in tensors if re.fullmatch(r"\s*\w+ = \w+\s*(#.*)?", source[tensor.line - 1])]
        return (aliases or tensors)[-1]

    def _first_new(self, lines: set[int]) -> int | None:
        """The first tensor of the solution whose values only the wrong version has."""
        for number, tensor in enumerate(self.solution.traced):
            if tensor.line not in lines or self.right.index.contains(tensor.value, Layout.PERMUTED):
                continue
            if self.wrong.index.contains(tensor.value, Layout.PERMUTED):
                return number
        return None

    def _call_site(self, tensor: TracedTensor) -> int:
        """The tensor's line; or the line that called the student's own function, if other calls of it are right."""
        function = self.solution.function_at(tensor.line)
        outside = [line for line in tensor.callers if self.solution.function_at(line) in self.places]
        if function in self.right.functions or not outside:
            return tensor.line
        calls = re.findall(rf"\b{function.rpartition('.')[2]}\(", self.solution.source.split("\n")[outside[-1] - 1])
        others = [
            other.value
            for other in self.solution.traced
            if (other.line, other.name) == (tensor.line, tensor.name)
            and (other.callers[-1:] != tensor.callers[-1:] or len(calls) > 1)
            and not same(other.value, tensor.value)
        ]
        if any(self._right_results.contains(value, Layout.PERMUTED) for value in others):
            return max((outside[-1], tensor.line), key=self._changed_names_at)
        if others or self._uses_changed_operation(tensor.line):
            return tensor.line
        return max((tensor.line, outside[-1]), key=self._changed_names_at)

    def _by_words(self, lines: set[int]) -> int | None:
        """The line in this scope whose words are most similar to those of the changed lines, if it stands out."""
        wrong, right = words_of(self.wrong.source, self.edited), words_of(self.right.source, self.originals)
        if not wrong and not right:
            return None
        is_omission = wrong < right
        changed = wrong if is_omission else wrong ^ right
        weights = {word: CHANGED_WORD_WEIGHT if word in wrong ^ right else 1 for word in wrong | right}
        kinds = {kind for kind, span in statements(self.wrong.source) if not self.edited.isdisjoint(span)}
        kinds |= {kind for kind, span in statements(self.right.source) if not self.originals.isdisjoint(span)}
        candidates = {
            span[0]: words_of(self.solution.source, set(span))
            for kind, span in statements(self.solution.source)
            if span[0] in lines and kind in kinds
        }
        similar = sorted(
            (
                (
                    max(similarity(found, words, weights) for words in ((wrong,) if is_omission else (wrong, right))),
                    -line,
                )
                for line, found in candidates.items()
                if found & changed and similarity(found, wrong, weights) >= similarity(found, right, weights)
            ),
            reverse=True,
        )
        if not similar or similar[0][0] < (MIN_OVERLAP_OF_OMISSION if is_omission else MIN_WORD_OVERLAP):
            return None
        if len(similar) > 1 and similar[0][0] - similar[1][0] < MIN_WORD_MARGIN:
            return None
        return -similar[0][1]

    def _only_statement(self) -> int | None:
        """The line of a function's only statement, if the mistake must be in this function."""
        names = [name for name in self.places if name in self.solution.functions]
        if len(names) != 1 or len(self.places) != 1:
            return None
        span, code = self.solution.functions[names[0]]
        if any(tensor.line in span for tensor in self.solution.traced):
            return None  # its values say more
        body = ast.parse(code).body[0]
        own = {name.rpartition(".")[2] for name in self.solution.functions if name not in self.right.functions}
        if not isinstance(body, ast.FunctionDef) or len(body.body) != 1 or hasattr(body.body[0], "body"):
            return None
        line = max(lines[0] for _, lines in statements(self.solution.source) if lines[0] in span)
        return None if words_of(self.solution.source, set(span)) & own else line

    def _by_new_name(self) -> int | None:
        """The only line that uses a name that the mistake brings in, such as `ord` or `detach`."""
        known = words_of(self.right.source, set(range(1, self.right.source.count("\n") + 2)))
        new = {
            word for word in words_of(self.wrong.source, self.edited) - known if len(word) > 2 and word.isidentifier()
        }
        names = {name for name in self.solution.functions if name in self.places or name not in self.right.functions}
        lines = self.solution.lines_of(names)
        using = {
            span[0]
            for _, span in statements(self.solution.source)
            if span[0] in lines and words_of(self.solution.source, set(span)) & new
        }
        return using.pop() if len(using) == 1 else None


@lru_cache(maxsize=1024)
def _functions(source: str) -> list[tuple[str, tuple[range, str]]]:
    """The top-level functions and methods of a source: the lines of each, and its code without comments."""
    tree = parse_source(source)
    functions = [] if tree is None else top_functions(tree)
    return [
        (name, (range(node.lineno, (node.end_lineno or node.lineno) + 1), ast.unparse(_without_docstring(node))))
        for name, node in functions
    ]


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
    if ast.get_docstring(node) is None or len(node.body) == 1:
        return node
    fields = dict(ast.iter_fields(node)) | {"body": node.body[1:]}
    return ast.copy_location(type(node)(**fields), node)


@lru_cache(maxsize=1024)
def _loop_lines(source: str) -> frozenset[int]:
    """The lines inside loops."""
    tree = parse_source(source)
    loops = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    return frozenset(line for node in loops for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


@lru_cache(maxsize=256)
def _variables_read(source: str, line: int) -> frozenset[str]:
    """The variables and attributes, such as `x` and `self.mask`, that the statement on a line reads."""
    tree = parse_source(source)
    nodes = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    there = [node for node in nodes if not hasattr(node, "body") and node.lineno <= line <= (node.end_lineno or 0)]
    found = [node for statement in there for node in ast.walk(statement)]
    loaded = [node for node in found if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)]
    return frozenset(map(ast.unparse, loaded))
