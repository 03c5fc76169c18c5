"""Runs of an assignment's variants, as if students had handed them in."""

from collections.abc import Mapping
from contextlib import nullcontext

import pytest

from regard.course import observe as observe_module
from regard.course.assignment import Assignment, Variant
from regard.course.diagnose import matcher_for
from regard.course.numeric_equality import same_probe
from regard.course.observe import EXAMPLE, SolutionRun, observe


def observe_variant(variant: Variant, assignment: Assignment) -> SolutionRun:
    """Run a variant as a solution, once for the solution and for the matcher that compares it with all variants.

    Only the example is run twice, since the matcher traces its lines: random values are noticed there.
    """
    source = variant.applied_to(assignment.reference)
    run, matcher = observe_untraced(source, assignment), matcher_for(assignment)
    for probe in assignment.probes:
        if probe != EXAMPLE:
            values = {probe: run.values[probe]} if probe in run.values else {}
            failures = {name: failure for name, failure in run.failures.items() if name in ("", probe)}
            matcher.runs[source, probe] = SolutionRun(values, failures)
    run.traced.extend(matcher._run_probe(source, EXAMPLE).traced)
    return run


def observe_untraced(source: str, assignment: Assignment) -> SolutionRun:
    """Run a source without tracing its lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observe_module, "trace_tensors", lambda *_: nullcontext())
        return observe(source, assignment)


def groups_that_look_alike(runs: Mapping[Variant, SolutionRun], probes: Mapping[str, object]) -> list[list[Variant]]:
    """The variants that give the same values in all probes, with more than one variant in each group."""
    groups = [list(runs)]
    for probe in probes:
        groups = [part for group in groups if len(group) > 1 for part in _split(group, runs, probe)]
    return [group for group in groups if len(group) > 1]


def _split(group: list[Variant], runs: Mapping[Variant, SolutionRun], probe: str) -> list[list[Variant]]:
    """A group's variants by the values that they give in a probe."""
    parts: list[list[Variant]] = []
    for variant in group:
        part = next((part for part in parts if same_probe(runs[part[0]], runs[variant], probe)), None)
        if part is None:
            parts.append([variant])
        else:
            part.append(variant)
    return parts
