"""Which line of a solution contains a mistake, and up to which stage its values are correct."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from torch import Tensor

from regard.course.line_tracing import TracedTensor
from regard.course.numeric_equality import close, same, same_numbers, same_precision

MIN_WORD_OVERLAP = 0.5
"""Minimum share of common words for a line to be considered similar to another."""


@dataclass(frozen=True)
class TracedSource:
    """A file's source, and the tensors that its lines produced."""

    source: str
    traced: Sequence[TracedTensor]


@dataclass(frozen=True)
class StageProgress:
    """How far a solution's values agree with the reference's."""

    first_wrong: str
    """The first stage that differs, after all stages that agree."""
    last_right: str = ""
    """The last stage that agrees."""
    line: int | None = None
    """The line of the solution that computed the last stage that agrees."""
    unseen: tuple[str, ...] = ()
    """Earlier stages that are in none of the solution's variables. They may be wrong or written differently."""


def find_mistake_line(solution: TracedSource, variant: TracedSource, reference: TracedSource) -> int | None:
    """The line of the solution that most likely contains the mistake that a variant makes.

    If the variant's edited lines produce tensors, those values are the best evidence. Otherwise the words of the
    edited lines are tried, and then the values that follow from the mistake.
    """
    edited = edited_lines(variant.source, reference.source)
    originals = edited_lines(reference.source, variant.source)
    at_edits = list(_differences(variant.traced, reference.traced, edited))
    by_values = line_with_values(solution.traced, at_edits)
    if by_values is not None:
        return by_values
    texts = [_join_lines(variant.source, edited), _join_lines(reference.source, originals)]
    by_words = line_with_words(solution.source, texts)
    if by_words is not None and not at_edits:
        return by_words
    return line_with_values(solution.traced, list(_differences(variant.traced, reference.traced))) or by_words


def edited_lines(source: str, other: str) -> set[int]:
    """The lines of a file that differ from another file's, extended to complete statements."""
    lines, other_lines = source.splitlines(), other.splitlines()
    opcodes = SequenceMatcher(None, lines, other_lines, autojunk=False).get_opcodes()
    changed = {line + 1 for kind, start, end, _, _ in opcodes if kind != "equal" for line in range(start, end)}
    return changed | {line for span in _statement_spans(source) if not changed.isdisjoint(span) for line in span}


@lru_cache(maxsize=64)
def _statement_spans(source: str) -> list[range]:
    """The lines of each simple statement."""
    simple = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    return [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in simple]


def line_with_values(traced: Sequence[TracedTensor], differences: Sequence[tuple[TracedTensor, Tensor]]) -> int | None:
    """The first line of the solution that produced the values of a variant where the reference has others."""
    for wrong, expected in differences:
        for matches in _matchers(wrong, expected):
            candidates = [tensor for tensor in traced if matches(tensor.value)]
            named = [tensor for tensor in candidates if tensor.name == wrong.name]
            if is_distinctive(wrong.value) and not named:
                named = [tensor for tensor in candidates if tensor.name] or candidates
            if named:
                return named[0].line
    return None


def is_distinctive(value: Tensor) -> bool:
    """Whether finding the same values means something: constant tensors occur everywhere."""
    return value.numel() == 1 or not bool((value == value.flatten()[:1]).all())


def line_with_words(source: str, texts: Sequence[str]) -> int | None:
    """The line of the source whose words are most similar to those of one of the texts."""
    targets = [words for text in texts if (words := _words(text))]
    overlaps = {
        number: max((_overlap(_words(line), words) for words in targets), default=0.0)
        for number, line in enumerate(source.splitlines(), 1)
    }
    best = max(overlaps, key=lambda number: overlaps[number], default=None)
    return best if best is not None and overlaps[best] >= MIN_WORD_OVERLAP else None


def line_about(solution: TracedSource, mistake: str) -> int | None:
    """The first executed line that uses a word of a mistake's id, such as dropout, mask or positions."""
    topics, lines = mistake.split("-"), solution.source.splitlines()
    executed = sorted({tensor.line for tensor in solution.traced if tensor.line <= len(lines)})
    return next((line for line in executed if any(topic in _long_words(lines[line - 1]) for topic in topics)), None)


def shows_variant_values(
    traced: Sequence[TracedTensor], variant: Sequence[TracedTensor], reference: Sequence[TracedTensor]
) -> bool:
    """Whether a solution produced the values with which a variant first differs from the reference."""
    wrong = (tensor.value for tensor, _ in _differences(variant, reference))
    value = next((tensor for tensor in wrong if tensor.is_floating_point()), None)  # masks are often written inverted
    if value is None or not is_distinctive(value):
        return False
    return any(_comparable(tensor.value, value) and close(tensor.value.flatten(), value.flatten()) for tensor in traced)


def stage_progress(
    traced: Sequence[TracedTensor], reference: Sequence[TracedTensor], stages: Sequence[str]
) -> StageProgress | None:
    """The first stage whose values no line produced, after all stages that were; None if that cannot be determined.

    A wrong value in one layer makes those of the next layers wrong too. The first occurrence of each stage is
    therefore compared first, and all occurrences only if the first ones are right.
    """
    values = {stage: tensors for stage in stages if (tensors := _values_of(reference, stage))}
    first_values = {stage: tensors[:1] for stage, tensors in values.items()}
    return _progress(traced, first_values) or _progress(traced, values)


def _progress(traced: Sequence[TracedTensor], values: Mapping[str, Sequence[Tensor]]) -> StageProgress | None:
    stages = list(values)
    is_right = [
        all(any(same_numbers(tensor.value, value) for tensor in traced) for value in values[stage]) for stage in stages
    ]
    count = max((index + 1 for index, right in enumerate(is_right) if right), default=0)
    if count == len(stages):
        return None
    if not count:
        sizes = {tensor.value.numel() for tensor in traced if tensor.name != "return"}
        is_comparable = sizes & {value.numel() for value in values[stages[0]]}
        return StageProgress(stages[0]) if is_comparable else None  # else the solution may be written differently
    named = [tensor for tensor in traced if tensor.name]
    unseen = tuple(stage for stage in stages[: count - 1] if _line_with(named, values[stage][0]) is None)
    last_right = stages[count - 1]
    return StageProgress(stages[count], last_right, _line_with(traced, values[last_right][-1]), unseen)


def _line_with(traced: Sequence[TracedTensor], value: Tensor) -> int | None:
    """The first line that produced these values, preferring lines that assign them to a variable."""
    matches = [tensor for tensor in traced if same_numbers(tensor.value, value)]
    return min(matches, key=lambda tensor: tensor.name in ("", "return")).line if matches else None


def _differences(
    variant: Sequence[TracedTensor], reference: Sequence[TracedTensor], lines: set[int] | None = None
) -> Iterator[tuple[TracedTensor, Tensor]]:
    """Tensors of the variant that differ from the reference's, and the reference's values of the same assignment.

    With `lines`, only the tensors of these lines of the variant.
    """
    expected = _by_occurrence(reference)
    for key, tensor in _by_occurrence(variant).items():
        if lines is not None and tensor.line not in lines:
            continue
        if key in expected and not same(tensor.value, expected[key].value):
            yield tensor, expected[key].value


def _by_occurrence(traced: Sequence[TracedTensor]) -> dict[tuple[str, int], TracedTensor]:
    """Named tensors by their name and the number of earlier tensors with this name."""
    counts: Counter[str] = Counter()
    occurrences = {}
    for tensor in traced:
        if tensor.name:
            occurrences[tensor.name, counts[tensor.name]] = tensor
            counts[tensor.name] += 1
    return occurrences


def _matchers(wrong: TracedTensor, expected: Tensor) -> Iterator[Callable[[Tensor], bool]]:
    """Tests of a tensor, the strictest first: equal, equal when flattened, the same numbers in any order."""
    value = wrong.value
    yield lambda other: same(other, value)
    yield lambda other: _comparable(other, value) and close(other.flatten(), value.flatten())
    if not same_numbers(value, expected):
        yield lambda other: _comparable(other, value) and same_numbers(other, value)


def _comparable(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and same_precision(one, other) and not one.is_meta


def _values_of(traced: Sequence[TracedTensor], name: str) -> list[Tensor]:
    """The values of a variable each time its last assignment ran."""
    line = max((tensor.line for tensor in traced if tensor.name == name), default=0)
    return [tensor.value for tensor in traced if tensor.name == name and tensor.line == line]


def _join_lines(source: str, numbers: set[int]) -> str:
    lines = source.splitlines()
    return " ".join(lines[number - 1] for number in sorted(numbers))


def _long_words(line: str) -> set[str]:
    """The words in a line's names that have at least five letters, which leaves out "in", "not" and the like."""
    return {part for word in _words(line) for part in word.lower().split("_") if len(part) > 4}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.partition("#")[0]))


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0
