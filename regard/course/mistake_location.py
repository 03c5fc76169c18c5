"""Where in a solution a mistake is: the line that held the variant's wrong numbers, or the line with its words."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from torch import Tensor

from regard.course.numeric_equality import close, same, same_numbers
from regard.course.observe import Held

LEAST_ALIKE = 0.5
"""of two lines' words, for one to be pointed at in the other's place"""


@dataclass(frozen=True)
class Text:
    """A file's source, and what its lines held."""

    source: str
    held: Sequence[Held]


def line_of(solution: Text, made: Text, right: Text) -> int | None:
    """The solution's line most likely to hold the mistake that is made in a variant.

    Where the variant's edited lines make tensors, numbers tell more than words do; else they tell what comes of it.
    """
    edited = edited_lines(made.source, right.source)
    wrong = list(_gone_wrong(made.held, right.held))
    here = [each for each in wrong if each[0].line in edited]
    lines = made.source.splitlines(), right.source.splitlines()
    back = edited_lines(right.source, made.source)
    texts = [
        " ".join(all_lines[line - 1] for line in sorted(at))
        for all_lines, at in zip(lines, (edited, back), strict=True)
    ]
    by_words = line_of_words(solution.source, texts)
    by_numbers = line_of_numbers(solution.held, here)
    return by_numbers or (not here and by_words) or line_of_numbers(solution.held, wrong) or by_words or None


def edited_lines(source: str, other: str) -> set[int]:
    """The lines of a file that differ from another's, each with the whole statement that it is in."""
    mine, theirs = source.splitlines(), other.splitlines()
    codes = SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes()
    changed = {line + 1 for kind, first, behind, _, _ in codes if kind != "equal" for line in range(first, behind)}
    simple = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in simple]
    return changed | {line for span in spans if changed & set(span) for line in span}


def line_of_numbers(held: Sequence[Held], wrong: Sequence[tuple[Held, Tensor]]) -> int | None:
    """The solution's line that first held what a variant held where the reference held something else."""
    for one, instead in wrong:
        for alike in _ways_to_be_alike(one, instead):
            found = [each for each in held if alike(each.value)]
            named = [each for each in found if each.name == one.name]
            if is_telling(one.value) and not named:
                named = [each for each in found if each.name] or found
            if named:
                return named[0].line
    return None


def is_telling(value: Tensor) -> bool:
    """Whether finding the same numbers says something: zeros alone, or ones, are found everywhere."""
    return value.numel() == 1 or not bool((value == value.flatten()[:1]).all())


def line_of_words(source: str, texts: Sequence[str]) -> int | None:
    """The solution's line whose words are most like those of one of these texts."""
    wanted = [words for text in texts if (words := _words(text))]
    alike = {
        number: max((_alike(_words(line), words) for words in wanted), default=0.0)
        for number, line in enumerate(source.splitlines(), 1)
    }
    best = max(alike, key=lambda number: alike[number], default=None)
    return best if best is not None and alike[best] >= LEAST_ALIKE else None


def line_of_topic(solution: Text, mistake: str) -> int | None:
    """The first line at work that speaks of what a mistake's id does: a dropout, a mask, positions."""
    topics, lines = mistake.split("-"), solution.source.splitlines()
    at_work = sorted({each.line for each in solution.held if each.line <= len(lines)})
    return next((n for n in at_work if any(topic in _topical(lines[n - 1]) for topic in topics)), None)


def leaves_traces(held: Sequence[Held], made: Sequence[Held], right: Sequence[Held]) -> bool:
    """Whether a solution held what a variant holds where it first differs from the reference."""
    wrong = (one.value for one, _ in _gone_wrong(made, right))
    value = next((each for each in wrong if each.is_floating_point()), None)  # a mask may be made the other way round
    if value is None or not is_telling(value):
        return False
    return any(_alike_in_kind(each.value, value) and close(each.value.flatten(), value.flatten()) for each in held)


@dataclass(frozen=True)
class Stage:
    """How far a solution's numbers are the reference's."""

    name: str
    """the first that differs, behind all those that do not"""
    reached: str = ""
    """the last that does not"""
    line: int | None = None
    """of the solution, that held it"""
    unseen: tuple[str, ...] = ()
    """those before it that no variable held: they may be wrong, or written otherwise"""


def stage_of(held: Sequence[Held], right: Sequence[Held], stages: Sequence[str]) -> Stage | None:
    """The first stage whose numbers no line held, after all those that were; None where that cannot be told.

    What a layer gives wrong makes the next layer's numbers wrong too: so the first turn of each stage tells more than
    all of them, which tell where the first ones are right.
    """
    parts = {name: found for name in stages if (found := _last_held(right, name))}
    return _stage(held, {name: each[:1] for name, each in parts.items()}) or _stage(held, parts)


def _stage(held: Sequence[Held], parts: Mapping[str, Sequence[Tensor]]) -> Stage | None:
    names = list(parts)
    are_held = [all(any(same_numbers(each.value, part) for each in held) for part in parts[name]) for name in names]
    after = max((index + 1 for index, each in enumerate(are_held) if each), default=0)
    if after == len(names):
        return None
    if not after:
        sizes = {each.value.numel() for each in held if each.name != "return"}
        is_of_its_kind = sizes & {part.numel() for part in parts[names[0]]}
        return Stage(names[0]) if is_of_its_kind else None  # else it may be written otherwise
    named = [each for each in held if each.name]
    unseen = tuple(name for name in names[: after - 1] if _line_with(named, parts[name][0]) is None)
    reached = names[after - 1]
    return Stage(names[after], reached, _line_with(held, parts[reached][-1]), unseen)


def _line_with(held: Sequence[Held], numbers: Tensor) -> int | None:
    """The first line that held these numbers; one that gives them to a variable rather than others."""
    found = [each for each in held if same_numbers(each.value, numbers)]
    return min(found, key=lambda each: each.name in ("", "return")).line if found else None


def _gone_wrong(wrong: Sequence[Held], right: Sequence[Held]) -> Iterator[tuple[Held, Tensor]]:
    """What the variant held, and what the reference held instead, in the same variable at the same turn."""
    wrong, right = ([each for each in held if each.name] for held in (wrong, right))
    expected = _by_turn(right)
    for turn, one in _by_turn(wrong).items():
        if turn in expected and not same(one.value, expected[turn].value):
            yield one, expected[turn].value


def _by_turn(held: Sequence[Held]) -> dict[tuple[str, int], Held]:
    turns: Counter[str] = Counter()
    found = {}
    for each in held:
        found[each.name, turns[each.name]] = each
        turns[each.name] += 1
    return found


def _ways_to_be_alike(one: Held, instead: Tensor) -> Iterator[Callable[[Tensor], bool]]:
    """Tests of a tensor, the strictest first: equal, equal when flat, the same numbers in any order."""
    value = one.value
    yield lambda other: same(other, value)
    yield lambda other: _alike_in_kind(other, value) and close(other.flatten(), value.flatten())
    if not same_numbers(value, instead):
        yield lambda other: _alike_in_kind(other, value) and same_numbers(other, value)


def _alike_in_kind(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and one.dtype == other.dtype and not one.is_meta


def _last_held(held: Sequence[Held], name: str) -> list[Tensor]:
    """What the last line that makes this variable made of it, each time."""
    line = max((each.line for each in held if each.name == name), default=0)
    return [each.value for each in held if each.name == name and each.line == line]


def _topical(line: str) -> set[str]:
    """The parts of a line's names, of five letters or more: no "in", no "not"."""
    return {part for word in _words(line) for part in word.lower().split("_") if len(part) > 4}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.partition("#")[0]))


def _alike(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0
