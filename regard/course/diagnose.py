"""Which mistakes a solution makes, found by comparing its run with the reference's and with every variant's.

A mistake is named only on positive evidence: all of the solution's values equal the variant's, and at least one differs
from the reference's. If two different mistakes give the same values, neither is called certain. Parts that are not
written yet are left out, so that the parts that are written can be diagnosed.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import permutations
from pathlib import Path

from regard.course.assignment import Assignment, Variant
from regard.course.line_search import FoundLine, TracedFile, edited_functions, find_line
from regard.course.mistake_location import (
    StageProgress,
    shows_variant_values,
    stage_progress,
)
from regard.course.mistake_pairs import PairTable
from regard.course.numeric_equality import Mismatch, mismatch, same, same_probe
from regard.course.observe import EXAMPLE, Failure, SolutionRun, observe
from regard.course.unfinished import unfinished_probes
from regard.errors import RegardError
from regard.threads import one_thread

SLACK = 30.0
"""How much further than by rounding the values of a mistake may differ, if no known mistake gives exactly the values.

Constants such as the eps of a norm have little effect on correct values, but more on some wrong ones.
"""
MAX_PAIRS = 400
"""Maximum number of pairs of mistakes that are tried."""


@dataclass(frozen=True)
class MistakeMatch:
    """A mistake that a solution makes."""

    id: str
    line: int | None
    """The line of the solution that most likely contains it."""
    functions: tuple[str, ...] = ()
    """The functions of the solution in which it should be, by their names."""


@dataclass(frozen=True)
class Diagnosis:
    """What the checker found out about a solution."""

    passed: bool
    """Whether all probes give the reference's values."""
    mistakes: tuple[MistakeMatch, ...]
    possible: tuple[str, ...]
    """Ids of mistakes of which one is made, if the values cannot tell which."""
    progress: StageProgress | None
    """How far the values are right, if no mistake was found."""
    right: tuple[str, ...]
    """The probes that give the reference's values."""
    points: float
    """The points for those probes."""
    failures: dict[str, Failure]

    @property
    def stage(self) -> str | None:
        """The first stage that differs, if no mistake was found."""
        return None if self.progress is None else self.progress.first_wrong


@one_thread()
def diagnose(run: SolutionRun, assignment: Assignment, source: str = "") -> Diagnosis:
    """Name the mistakes of a solution. With its source, lines can also be found by their words."""
    matcher = matcher_for(assignment)
    right = tuple(probe for probe in assignment.probes if same_probe(run, matcher.reference, probe))
    points = float(sum(assignment.points.get(probe, 0) for probe in right))
    failures = {probe: failure for probe, failure in run.failures.items() if probe not in right}
    if len(right) == len(assignment.probes):
        return Diagnosis(True, (), (), None, right, points, failures)
    unfinished = unfinished_probes(run.failures, assignment.defines, source)
    explanations = matcher.explanations(run, unfinished)
    certain = _common_mistakes(explanations)
    first = list(dict.fromkeys(variant.mistake for variants in explanations for variant in variants))
    mistakes = tuple(
        MistakeMatch(
            mistake,
            matcher.mistake_line(run, mistake, explanations, source),
            matcher.mistake_functions(mistake, explanations, source),
        )
        for mistake in first
        if mistake in certain
    )
    possible = tuple(sorted(set(first) - certain))
    progress = None if explanations or EXAMPLE in unfinished else matcher.progress(run)
    return Diagnosis(False, mistakes, possible, progress, right, points, failures)


class MistakeMatcher:
    """Runs an assignment's reference and variants, each probe at most once and only when needed, and matches them."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.runs: dict[tuple[str, str], SolutionRun] = {}
        self.files: dict[str, TracedFile] = {}

    @cached_property
    def reference(self) -> SolutionRun:
        """The run of the reference."""
        return observe(self.assignment.reference, self.assignment)

    def prepare(self, is_cancelled: Callable[[], bool]) -> None:
        """Run the reference, and the example on each variant, until cancelled."""
        _ = self.reference
        for variant in self.assignment.variants:
            if is_cancelled():
                return
            self._run_variant(variant, EXAMPLE)

    def explanations(self, run: SolutionRun, unfinished: Set[str] = frozenset()) -> list[tuple[Variant, ...]]:
        """Each variant that gives the run's values; if there is none, each pair of variants that does.

        Probes of parts that are not written yet are left out.
        """
        wrong = [probe for probe in self._wrong_probes(run) if probe not in unfinished]
        if not any(self._is_evidence(run, probe) for probe in wrong):
            return []  # there are only errors, which have many possible causes
        others = [probe for probe in self.assignment.probes if probe not in wrong and probe not in unfinished]
        order = [*sorted(wrong, key=lambda probe: not self._is_evidence(run, probe)), *others]
        return (
            self._matching_variants(run, order, bool(unfinished))
            or self._matching_variants(run, order, bool(unfinished), SLACK)
            or self._matching_pairs(run, wrong, order, bool(unfinished))
        )

    def _matching_variants(
        self, run: SolutionRun, probes: Sequence[str], is_unfinished: bool, slack: float = 1.0
    ) -> list[tuple[Variant, ...]]:
        """The variants that explain the run best. One with other errors must give wrong numbers of the run too."""
        mismatches = {
            variant: found
            for variant in self.assignment.variants
            if (found := self._mismatch(run, probes, is_unfinished, variant, slack=slack)) is not None
            and ((not found.values and slack == 1) or self._shares_wrong_numbers(run, variant, probes, slack))
        }
        best = min(mismatches.values(), default=None)
        return [(variant,) for variant, found in mismatches.items() if found == best]

    def mistake_line(
        self, run: SolutionRun, mistake: str, explanations: Sequence[Sequence[Variant]], source: str
    ) -> int | None:
        """The line of the solution that most likely contains a mistake, given all explanations of the run."""
        solution = TracedFile(source, run.traced)
        is_visible = not same_probe(run, self.reference, EXAMPLE)
        by_words: FoundLine | None = None
        for variants in explanations:
            others = [variant for variant in variants if variant.mistake != mistake]
            if len(others) == len(variants):
                continue
            found = find_line(solution, self._traced_file(variants), self._traced_file(others), is_visible)
            if found is not None and found.by_values:
                return found.line
            by_words = by_words or found
        return None if by_words is None else by_words.line

    def mistake_functions(
        self, mistake: str, explanations: Sequence[Sequence[Variant]], source: str
    ) -> tuple[str, ...]:
        """The functions of the solution that have the names of those in which the first explanation makes a mistake."""
        for variants in explanations:
            others = [variant for variant in variants if variant.mistake != mistake]
            if len(others) < len(variants):
                names = edited_functions(self._traced_file(variants), self._traced_file(others))
                return tuple(name for name in TracedFile(source, []).functions if name in names)
        return ()

    def progress(self, run: SolutionRun) -> StageProgress | None:
        """How far the values of the example are right."""
        if same_probe(run, self.reference, EXAMPLE):
            return None
        is_complete = EXAMPLE not in run.failures
        return stage_progress(run.traced, self.reference.traced, self.assignment.stages, is_complete)

    def _traced_file(self, variants: Sequence[Variant]) -> TracedFile:
        """The reference with these mistakes, and the tensors of its lines."""
        source = _apply_all(variants, self.assignment.reference) or self.assignment.reference
        if source not in self.files:
            self.files[source] = TracedFile(source, self._run_probe(source, EXAMPLE).traced)
        return self.files[source]

    def _wrong_probes(self, run: SolutionRun) -> list[str]:
        """Probes that do not give the reference's values; the example last, since tracing it is slow."""
        wrong = [probe for probe in self.assignment.probes if not same_probe(run, self.reference, probe)]
        return sorted(wrong, key=lambda probe: probe == EXAMPLE)

    def _is_evidence(self, run: SolutionRun, probe: str) -> bool:
        """Whether a probe gave values and at least one differs from the reference's."""
        expected, values = self.reference.values.get(probe, {}), run.values.get(probe, {})
        return any(key in expected and not same(value, expected[key]) for key, value in values.items())

    def _mismatch(
        self, run: SolutionRun, probes: Sequence[str], is_unfinished: bool, *variants: Variant, slack: float = 1.0
    ) -> Mismatch | None:
        """How far the reference with these mistakes does not explain a run; None at the first contradiction."""
        source = _apply_all(variants, self.assignment.reference)
        if source is None:
            return None
        values = errors = 0
        for probe in probes:
            if probe in self.assignment.edge_cases and same_probe(run, self.reference, probe):
                continue
            found = mismatch(run, self._run_probe(source, probe), self.reference, probe, is_unfinished, slack)
            if found is None:
                return None
            values, errors = values + found.values, errors + found.errors
        return Mismatch(values, errors)

    def _shares_wrong_numbers(self, run: SolutionRun, variant: Variant, probes: Sequence[str], slack: float) -> bool:
        """Whether a variant gives one of the run's wrong tensors, which is stronger evidence than a wrong yes or no."""
        for probe in probes:
            expected, explained = self.reference.values.get(probe, {}), self._run_variant(variant, probe).values
            for key, value in run.values.get(probe, {}).items():
                is_shared = key in expected and key in explained.get(probe, {})
                is_tensor = value.is_floating_point() and value.numel() > 1
                if is_shared and is_tensor and not same(value, expected[key], slack):
                    return True  # all values that both have are equal
        return False

    def _run_probe(self, source: str, probe: str) -> SolutionRun:
        """The run of one probe on a source."""
        if (source, probe) not in self.runs:
            narrow = replace(self.assignment)
            vars(narrow)["probes"] = {probe: self.assignment.probes[probe]}  # sets the cached_property
            self.runs[source, probe] = observe(source, narrow)
        return self.runs[source, probe]

    def _run_variant(self, variant: Variant, probe: str) -> SolutionRun:
        return self._run_probe(variant.applied_to(self.assignment.reference), probe)

    def _matching_pairs(
        self, run: SolutionRun, wrong: Sequence[str], order: Sequence[str], is_unfinished: bool
    ) -> list[tuple[Variant, ...]]:
        """The pairs of variants that give the run's values, among those with the least evidence against them."""
        ignored = {probe for probe in self.assignment.probes if probe not in order}
        ignored |= {probe for probe in self.assignment.edge_cases if probe not in wrong}
        remaining = MAX_PAIRS
        for _, pairs in self._pair_table.rank(run, ignored):
            if len(pairs) > remaining:
                pairs = self._traced_pairs(run, pairs)[:remaining]
            mismatches = {
                pair: found
                for pair in pairs
                if (found := self._mismatch(run, order, is_unfinished, *pair)) is not None and not found.values
            }
            if best := min(mismatches.values(), default=None):
                return [pair for pair, found in mismatches.items() if found == best]
            remaining -= len(pairs)
            if not remaining:
                break
        return []

    @cached_property
    def _pair_table(self) -> PairTable:
        """What each variant changes in each probe but the example, which takes longer than all others together."""
        probes = [probe for probe in self.assignment.probes if probe != EXAMPLE]
        variants = self.assignment.variants
        return PairTable(
            self.reference,
            {variant: {probe: self._run_variant(variant, probe) for probe in probes} for variant in variants},
        )

    def _traced_pairs(
        self, run: SolutionRun, pairs: Sequence[tuple[Variant, Variant]]
    ) -> list[tuple[Variant, Variant]]:
        """The pairs, first those with a variant whose first wrong values are in the solution's lines."""
        variants = dict.fromkeys(variant for pair in pairs for variant in pair)
        traced = {variant for variant in variants if self._is_traced(run, variant)}
        return sorted(pairs, key=lambda pair: traced.isdisjoint(pair))

    def _is_traced(self, run: SolutionRun, variant: Variant) -> bool:
        return shows_variant_values(run.traced, self._run_variant(variant, EXAMPLE).traced, self.reference.traced)


def matcher_for(assignment: Assignment) -> MistakeMatcher:
    """The assignment's matcher, which is kept until a file of the assignment changes."""
    modified = max(path.stat().st_mtime_ns for path in (*assignment.folder.iterdir(), *assignment.hidden))
    key = assignment.folder, assignment.hidden
    if key not in _MATCHERS or _MATCHERS[key][0] != modified:
        _MATCHERS[key] = modified, MistakeMatcher(assignment)
    return _MATCHERS[key][1]


_MATCHERS: dict[tuple[Path, tuple[Path, ...]], tuple[int, MistakeMatcher]] = {}


def _apply_all(variants: Sequence[Variant], reference: str) -> str | None:
    """The reference with these mistakes; None if one removes the text that another edits."""
    for order in permutations(variants):
        try:
            return reduce(lambda source, variant: variant.applied_to(source), order, reference)
        except RegardError:
            if len(variants) == 1:
                raise  # the variant itself is broken
    return None


def _common_mistakes(explanations: Sequence[Sequence[Variant]]) -> set[str]:
    """The mistakes that all explanations have in common."""
    mistakes = [{variant.mistake for variant in variants} for variants in explanations]
    return set.intersection(*mistakes) if mistakes else set()
