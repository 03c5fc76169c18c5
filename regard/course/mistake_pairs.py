"""Which two mistakes may explain a run together, judged by what each of them changes when it is made alone.

A value that only one of two mistakes changes should be that mistake's value, and a value that neither changes should be
right. A value that both change can be anything, so that the pair has to be run. Most mistakes change few values, since
each function has probes of its own: then hardly any pair is left.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations

from torch import Tensor

from regard.course.assignment import Variant
from regard.course.numeric_equality import same
from regard.course.observe import SolutionRun

Outcome = Tensor | str | None
"""A value; FAILED if the probe raised an error; None if the probe does not have this value."""
FAILED = "failed"
Item = tuple[str, str]
"""A probe and the name of one of its values."""


@dataclass(frozen=True, order=True)
class Contradictions:
    """How much speaks against a pair of mistakes. Lower is better."""

    probes: int
    """The number of probes with a value that the pair does not explain."""
    values: int
    """The number of those values."""


class PairTable:
    """What each variant changes. Built once for an assignment, and used for each solution."""

    def __init__(self, reference: SolutionRun, runs: Mapping[Variant, Mapping[str, SolutionRun]]) -> None:
        """`runs` holds the run of each variant by probe."""
        self.variants = list(runs)
        probes = list(next(iter(runs.values()), {}))
        self.items: list[Item] = [(probe, key) for probe in probes for key in reference.values.get(probe, {})]
        self.groups: list[list[tuple[Outcome, list[Variant]]]] = []  # for each item, the variants by outcome
        self.changed = dict.fromkeys(self.variants, 0)  # sets of items, as the bits of a number
        for number, item in enumerate(self.items):
            groups: list[tuple[Outcome, list[Variant]]] = [(_outcome(reference, item), [])]
            for variant in self.variants:
                outcome = _outcome(runs[variant][item[0]], item)
                group = next((members for other, members in groups if _equal(outcome, other)), None)
                if group is None:
                    groups.append((outcome, [variant]))
                else:
                    group.append(variant)
                if group is not groups[0][1]:
                    self.changed[variant] |= 1 << number
            self.groups.append(groups)

    def rank(
        self, run: SolutionRun, ignored: Set[str]
    ) -> Iterator[tuple[Contradictions, list[tuple[Variant, Variant]]]]:
        """All pairs of variants, by how much speaks against them. `ignored` probes say nothing about this run."""
        wrong, other = 0, dict.fromkeys(self.variants, 0)  # where the run is not right, and not as the variant
        counted = 0
        for number, (item, groups) in enumerate(zip(self.items, self.groups, strict=True)):
            if item[0] in ignored:
                continue
            counted |= 1 << number
            outcome = _outcome(run, item)
            equal = [members for value, members in groups if _equal(outcome, value)]
            if not equal or equal[0] is not groups[0][1]:
                wrong |= 1 << number
            explained = set(equal[0]) if equal else set()
            for variant in self.variants:
                if variant not in explained:
                    other[variant] |= 1 << number
        masks = self._masks()
        by_rank: dict[Contradictions, list[tuple[Variant, Variant]]] = {}
        changed = {variant: bits & counted for variant, bits in self.changed.items()}
        for one, two in combinations(self.variants, 2):
            against = changed[one] & ~changed[two] & other[one] | changed[two] & ~changed[one] & other[two]
            against |= wrong & ~(changed[one] | changed[two])
            probes = sum(bool(against & mask) for mask in masks) if against else 0
            by_rank.setdefault(Contradictions(probes, against.bit_count()), []).append((one, two))
        for contradictions in sorted(by_rank):
            yield contradictions, by_rank[contradictions]

    def _masks(self) -> Sequence[int]:
        """The items of each probe."""
        masks: dict[str, int] = {}
        for number, (probe, _) in enumerate(self.items):
            masks[probe] = masks.get(probe, 0) | 1 << number
        return list(masks.values())


def _outcome(run: SolutionRun, item: Item) -> Outcome:
    probe, key = item
    return FAILED if probe in run.failures else run.values.get(probe, {}).get(key)


def _equal(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same(one, other)
    return one is other
