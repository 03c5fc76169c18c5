"""Which mistake a solution makes: what was seen of it is compared with the reference and with every wrong variant.

A mistake is named only on positive evidence: all that was seen equals what the variant shows, and some value of it is
not the reference's. Where two different mistakes show the same, neither is called certain.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations, permutations
from pathlib import Path

from regard.course.assignment import Assignment, Variant
from regard.course.mistake_location import Stage, Text, leaves_traces, line_of, line_of_topic, stage_of
from regard.course.numeric_equality import same, same_probe
from regard.course.observe import EXAMPLE, Failure, Observed, observe
from regard.threads import one_thread

PAIRS_SECONDS, TRACES_SECONDS, CHANGES_SECONDS, TWINS_SECONDS = 1.0, 0.5, 0.8, 0.4
"""of this thread: for mistakes made two at a time, to find which pairs are likely by the numbers that they leave and by
what they change, and for others that show the same"""


Unlikely = tuple[bool, int, bool, int]
"""how far a pair of mistakes is from what was seen: less comes first"""


@dataclass(frozen=True)
class Found:
    """A mistake that a solution makes."""

    id: str
    line: int | None
    """of the solution, most likely to hold it"""


@dataclass(frozen=True)
class Diagnosis:
    """What is known of a solution."""

    passed: bool
    """all that was seen equals the reference's"""
    mistakes: tuple[Found, ...]
    possible: tuple[str, ...]
    """ids of which one is made, where the numbers cannot tell which"""
    progress: Stage | None
    """how far the numbers are right, when no mistake was found"""
    right: tuple[str, ...]
    """the probes that show what the reference shows"""
    points: float
    """of those probes"""
    failures: dict[str, Failure]

    @property
    def stage(self) -> str | None:
        """The first that differs, when no mistake was found."""
        return None if self.progress is None else self.progress.name


@one_thread()
def diagnose(seen: Observed, of: Assignment, source: str = "") -> Diagnosis:
    """Name the mistakes of a solution; with its source, its lines can be pointed at by their words too."""
    bench = bench_of(of)
    right = tuple(name for name in of.probes if same_probe(seen, bench.right, name))
    points = float(sum(of.points.get(name, 0) for name in right))
    failures = {name: each for name, each in seen.failures.items() if name not in right}
    if len(right) == len(of.probes):
        return Diagnosis(True, (), (), None, right, points, failures)
    sets = bench.explanations(seen)
    certain = _in_all([{variant.mistake for variant in each} for each in sets])
    first = {variant.mistake: (variant, each) for each in reversed(sets) for variant in each}
    found = tuple(Found(each, bench.line(seen, *first[each], source)) for each in first if each in certain)
    possible = tuple(sorted(set(first) - certain))
    progress = None if sets else bench.stage(seen)
    return Diagnosis(False, found, possible, progress, right, points, failures)


class Bench:
    """An assignment's reference and its variants, each looked at once, and no further than is asked for."""

    def __init__(self, of: Assignment) -> None:
        self.of = of
        self.glimpses: dict[tuple[str, str], Observed] = {}

    @cached_property
    def right(self) -> Observed:
        """What is seen of the reference."""
        return observe(self.of.reference, self.of)

    def prepare(self, is_enough: Callable[[], bool]) -> None:
        """Look at the reference, and at what most solutions are compared with, until that is enough."""
        _ = self.right
        for each in self.of.variants:
            if is_enough():
                return
            self._glimpse(each.applied_to(self.of.reference), EXAMPLE)

    def explanations(self, seen: Observed) -> list[tuple[Variant, ...]]:
        """Each variant that shows all that was seen; if there is none, each pair of variants."""
        wrong = self._wrong_probes(seen)
        if not any(self._is_evidence(seen, name) for name in wrong):
            return []  # errors alone: they have many causes
        others = [name for name in self.of.probes if name not in wrong]
        order = [*sorted(wrong, key=lambda name: not self._is_evidence(seen, name)), *others]
        singles: list[tuple[Variant, ...]] = [(each,) for each in self.of.variants if self._shows(seen, order, each)]
        return singles or self._pairs(seen, wrong, order)

    def line(self, seen: Observed, made: Variant, among: Sequence[Variant], source: str) -> int | None:
        """The solution's line that most likely holds this mistake, among those that it makes."""
        others = [each for each in among if each is not made]
        without, with_it = (self._text(each) for each in (others, among))
        solution = Text(source, seen.held)
        return line_of(solution, with_it, without) or line_of_topic(solution, made.mistake)

    def _text(self, made: Sequence[Variant]) -> Text:
        """The reference with these mistakes, and what its lines hold."""
        source = _with(made, self.of.reference) if made else self.of.reference
        return Text(source or "", self._glimpse(source or "", EXAMPLE).held)

    def stage(self, seen: Observed) -> Stage | None:
        """The first stage that differs in the example."""
        if same_probe(seen, self.right, EXAMPLE):
            return None
        return stage_of(seen.held, self.right.held, self.of.stages)

    def _wrong_probes(self, seen: Observed) -> list[str]:
        """Those that do not show what they show of the reference; the example last, since watching it takes time."""
        wrong = [name for name in self.of.probes if not same_probe(seen, self.right, name)]
        return sorted(wrong, key=lambda name: name == EXAMPLE)

    def _is_evidence(self, seen: Observed, name: str) -> bool:
        """Whether a probe gave values where the reference does, and some of them are other ones."""
        expected, got = self.right.values.get(name, {}), seen.values.get(name, {})
        return any(key in expected and not same(value, expected[key]) for key, value in got.items())

    def _shows(self, seen: Observed, probes: Sequence[str], *made: Variant) -> bool:
        """Whether the reference with these mistakes shows all that was seen; given up at the first difference."""
        source = _with(made, self.of.reference)
        return source is not None and all(same_probe(seen, self._glimpse(source, name), name) for name in probes)

    def _glimpse(self, source: str, probe: str) -> Observed:
        """What one probe sees of a source."""
        if (source, probe) not in self.glimpses:
            narrow = replace(self.of)
            vars(narrow)["probes"] = {probe: self.of.probes[probe]}  # where cached_property keeps it
            self.glimpses[source, probe] = observe(source, narrow)
        return self.glimpses[source, probe]

    def _pairs(self, seen: Observed, wrong: Sequence[str], order: Sequence[str]) -> list[tuple[Variant, ...]]:
        """Each pair of variants that shows all that was seen, of those that are as likely as the first that does."""
        found: list[tuple[Variant, ...]] = []
        nearest, until = None, math.inf
        for far, pair in self._likely_pairs(seen, wrong):
            if nearest not in (None, far) or time.thread_time() > until:
                break
            if self._shows(seen, order, *pair):
                found.append(pair)
                nearest, until = far, time.thread_time() + TWINS_SECONDS
        return found

    def _likely_pairs(self, seen: Observed, wrong: Sequence[str]) -> Iterator[tuple[Unlikely, tuple[Variant, Variant]]]:
        """Pairs of mistakes by how unlikely they are here, as many as there is time for.

        Two mistakes change what is changed here, but for a probe or so where one hides the other. Where a probe sees
        one of them alone, it sees what that one shows; and the numbers that the first of them makes are still there.
        """
        traced = self._traced(seen)
        shown = self._shown([*wrong, *(name for name in self.of.probes if name not in wrong)])
        changes = {
            name: {each for each in by if not same_probe(by[each], self.right, name)} for name, by in shown.items()
        }
        alone = {name: {each for each in changes[name] if same_probe(seen, shown[name][each], name)} for name in shown}
        pairs = [pair for pair in combinations(self.of.variants, 2) if pair[0].mistake != pair[1].mistake]
        far = {}
        for one, other in pairs:
            count = sum((one in made or other in made) != (name in wrong) for name, made in changes.items())
            unexplained = sum(one not in by and other not in by for name, by in alone.items() if name in wrong)
            far[one, other] = count > 1, unexplained, one not in traced and other not in traced, count
        until = time.thread_time() + PAIRS_SECONDS
        for pair in sorted(pairs, key=lambda each: far[each]):
            if time.thread_time() > until:
                return
            yield far[pair], pair

    def _traced(self, seen: Observed) -> set[Variant]:
        """The variants whose first wrong numbers a solution held too; of as many as there is time for."""
        until = time.thread_time() + TRACES_SECONDS
        found = set()
        for each in self.of.variants:
            if time.thread_time() > until:
                break
            made = self._glimpse(each.applied_to(self.of.reference), EXAMPLE).held
            if leaves_traces(seen.held, made, self.right.held):
                found.add(each)
        return found

    def _shown(self, probes: Sequence[str]) -> dict[str, dict[Variant, Observed]]:
        """What a probe sees of each variant; of as many probes as there is time for."""
        until = time.thread_time() + CHANGES_SECONDS
        found: dict[str, dict[Variant, Observed]] = {}
        for name in probes:
            shown = {}
            for each in self.of.variants:
                if time.thread_time() > until:
                    return found
                shown[each] = self._glimpse(each.applied_to(self.of.reference), name)
            found[name] = shown
        return found


def bench_of(of: Assignment) -> Bench:
    """The assignment's bench, kept until one of its files changes."""
    state = max(path.stat().st_mtime_ns for path in of.folder.iterdir())
    if of.folder not in _BENCHES or _BENCHES[of.folder][0] != state:
        _BENCHES[of.folder] = state, Bench(of)
    return _BENCHES[of.folder][1]


_BENCHES: dict[Path, tuple[int, Bench]] = {}


def _with(made: Sequence[Variant], reference: str) -> str | None:
    """The reference with these mistakes; None where one takes away what another edits."""
    for order in permutations(made):
        try:
            return reduce(lambda source, variant: variant.applied_to(source), order, reference)
        except ValueError:
            if len(made) == 1:
                raise  # the folder's own slip
    return None


def _in_all(sets: Sequence[set[str]]) -> set[str]:
    return set.intersection(*sets) if sets else set()
