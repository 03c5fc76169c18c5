"""Up to which stage a solution's values are correct, and which lines of a version with a mistake differ."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from torch import Tensor

from regard.course.line_tracing import TracedTensor
from regard.course.numeric_equality import close, same, same_precision
from regard.course.value_index import Layout, ValueIndex, canonical, loop_views


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
    goes_on: bool = False
    """Whether the line computes something else from the last stage that agrees, so that its result may be wrong."""


@lru_cache(maxsize=1024)
def edited_lines(source: str, other: str) -> frozenset[int]:
    """The lines of a file that differ from another file's, extended to complete statements."""
    lines, other_lines = source.splitlines(), other.splitlines()
    first = _common_start(lines, other_lines)
    last = _common_start(lines[first:][::-1], other_lines[first:][::-1])  # comparing only what is between is fast
    differing, other_differing = (part[first : len(part) - last] for part in (lines, other_lines))
    opcodes = SequenceMatcher(None, differing, other_differing, autojunk=False).get_opcodes()
    changed = {first + line + 1 for kind, start, end, _, _ in opcodes if kind != "equal" for line in range(start, end)}
    extended = {line for span in _statement_spans(source) if not changed.isdisjoint(span) for line in span}
    return frozenset(changed | extended)


def _common_start(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the first items are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (left, right) in pairs if left != right), min(len(one), len(other)))


@lru_cache(maxsize=1024)
def _statement_spans(source: str) -> list[range]:
    """The lines of each simple statement."""
    simple = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    return [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in simple]


def is_distinctive(value: Tensor) -> bool:
    """Whether finding the same values means something: constant tensors occur everywhere."""
    return value.numel() == 1 or not bool((value == value.flatten()[:1]).all())


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
    traced: Sequence[TracedTensor],
    reference: Sequence[TracedTensor],
    stages: Sequence[str],
    is_complete: bool = True,
) -> StageProgress | None:
    """The first stage whose values no line produced, after all stages that were; None if that cannot be determined.

    A wrong value in one layer makes those of the next layers wrong too. The first occurrence of each stage is
    therefore compared first, and all occurrences only if the first ones are right and the run was complete. A solution
    may loop over sequences, heads or tokens; then the first of them is compared.
    """
    found = _compared_progress(traced, reference, stages, is_complete)
    if found is None or found.last_right:
        return found
    views = [_compared_progress(traced, view, stages, is_complete) for view in loop_views(reference)]
    if None in views:
        return None  # everything is right in the first sequence, head or token
    reached = [view for view in views if view is not None and view.last_right]
    return max(reached, key=lambda view: stages.index(view.last_right), default=found)


def _compared_progress(
    traced: Sequence[TracedTensor], reference: Sequence[TracedTensor], stages: Sequence[str], is_complete: bool
) -> StageProgress | None:
    """The first stage that differs in the solution as it is written."""
    computed = {stage: _values_of(reference, stage) for stage in stages}
    # Constants occur everywhere and prove nothing.
    values = {stage: found for stage, found in computed.items() if found and canonical(found[0]) is not None}
    if not values:
        return None
    first_values = {stage: tensors[:1] for stage, tensors in values.items()}
    return _progress(traced, first_values) or (_progress(traced, values) if is_complete else None)


def _progress(traced: Sequence[TracedTensor], values: Mapping[str, Sequence[Tensor]]) -> StageProgress | None:
    stages, index = list(values), ValueIndex(traced)
    is_right = [all(index.contains(value, Layout.PERMUTED) for value in values[stage]) for stage in stages]
    count = max((index + 1 for index, right in enumerate(is_right) if right), default=0)
    if count == len(stages):
        return None
    if not count:
        sizes = {tensor.value.numel() for tensor in traced if tensor.name != "return"}
        is_comparable = sizes & {value.numel() for value in values[stages[0]]}
        return StageProgress(stages[0]) if is_comparable else None  # else the solution may be written differently
    named = ValueIndex([tensor for tensor in traced if tensor.name])
    unseen = tuple(stage for stage in stages[: count - 1] if not named.contains(values[stage][0], Layout.PERMUTED))
    last_right = stages[count - 1]
    tensors = [traced[number] for number in index.find(values[last_right][-1], Layout.PERMUTED)]
    tensor = min(tensors, key=lambda tensor: tensor.name in ("", "return"))
    return StageProgress(stages[count], last_right, tensor.line, unseen, goes_on=not tensor.name)


def _differences(
    variant: Sequence[TracedTensor], reference: Sequence[TracedTensor]
) -> Iterator[tuple[TracedTensor, Tensor]]:
    """Tensors of the variant that differ from the reference's, and the reference's values of the same assignment."""
    expected = _by_occurrence(reference)
    for key, tensor in _by_occurrence(variant).items():
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


def _comparable(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and same_precision(one, other) and not one.is_meta


def _values_of(traced: Sequence[TracedTensor], name: str) -> list[Tensor]:
    """The values of a variable each time its last assignment ran."""
    line = max((tensor.line for tensor in traced if tensor.name == name), default=0)
    return [tensor.value for tensor in traced if tensor.name == name and tensor.line == line]
