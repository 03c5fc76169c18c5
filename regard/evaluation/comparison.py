"""Compare translators on one test set: scores, speed, training cost, and the sentences on which they differ."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from statistics import fmean
from typing import Any, Literal

from regard.config import require_at_least
from regard.errors import RegardError
from regard.evaluation.comparability import ComparabilityNote, comparability_note
from regard.evaluation.evaluate import count_kinds, suspicious_outputs, warn_of_subset
from regard.evaluation.metrics import MetricComparison, sentence_chrf
from regard.evaluation.multi_run import compare_systems
from regard.evaluation.result_json import recorded_as
from regard.evaluation.results import Speed, System, SystemOutputs
from regard.evaluation.test_sets import Examples

WORD_OR_MARK = re.compile(r"[\w\u0300-\u036f]+(?:[-'’][\w\u0300-\u036f]+)*|[^\w\s]")
"""A word or a punctuation mark."""


@dataclass(frozen=True)
class TrainingCost:
    """What a training took, from its log; the mean over a system's runs if there are several."""

    device: str = field(metadata=recorded_as("place"))
    """Device, precision, and whether the model was compiled."""
    seconds: int | float
    """Duration without validation and checkpoints."""
    tokens: int | float
    """Number of target tokens trained on, counting repetitions."""
    flops: float | None
    """Number of floating-point operations; None for a run that has not ended."""
    start: str | None = None
    """The model that was fine-tuned, whose own training is not counted."""


@dataclass(frozen=True)
class SystemRun:
    """One trained model of a system, or outputs from a file."""

    translated: SystemOutputs
    training: TrainingCost | None = None
    seed: int | None = None

    @property
    def name(self) -> str:
        """The end of the run's path."""
        return self.translated.system.name


@dataclass(frozen=True)
class ComparedSystem:
    """A system with its runs, which differ only in their seed."""

    name: str
    runs: tuple[SystemRun, ...]


@dataclass(frozen=True)
class RunSummary:
    """One run of a system, for the report."""

    system: System
    training: TrainingCost | None
    seed: int | None


@dataclass(frozen=True)
class SystemSummary(System):
    """A system with its runs, for the report; speed and training are means over the runs."""

    training: TrainingCost | None = None
    runs: tuple[RunSummary, ...] = ()


@dataclass(frozen=True)
class DiffSegment:
    """Words of an output that are in the reference or not, or words of the reference that the output lacks."""

    text: str
    mark: Literal["same", "wrong", "missing"]


@dataclass(frozen=True)
class DifferingSentence:
    """A sentence that systems translate differently."""

    line: int
    source: str
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    """The output of each system; of its first run if it has several."""
    chrf: tuple[float, ...]
    diffs: tuple[tuple[DiffSegment, ...], ...] = field(metadata=recorded_as("mistakes"))
    """Each output compared with the reference closest to it."""


@dataclass(frozen=True)
class ComparisonResult:
    """Translators compared on one test set."""

    files: tuple[str, ...]
    sentences: int
    systems: tuple[SystemSummary, ...]
    comparisons: tuple[MetricComparison, ...]
    """The comparison by BLEU and the one by chrF2++."""
    note: ComparabilityNote
    suspicious_counts: tuple[dict[str, int], ...] = field(metadata=recorded_as("suspects"))
    """For each system, the number of suspicious outputs of each kind, over all its runs."""
    identical: int
    """Number of sentences for which all systems have the same output."""
    differing: tuple[DifferingSentence, ...] = field(metadata=recorded_as("apart"))
    """The sentences whose chrF2++ differs most."""
    kind: str = "comparison"


def compare(systems: Sequence[ComparedSystem], examples: Examples, sentences: int = 5) -> ComparisonResult:
    """Compare each system with the first, and find the sentences on which they differ most."""
    require_at_least(0, sentences=sentences)
    for names in ([system.name for system in systems], [run.name for system in systems for run in system.runs]):
        if len(set(names)) < len(names):
            raise RegardError(f"{Counter(names).most_common(1)[0][0]} was given twice: compare different systems")
    outputs = {system.name: [run.translated.outputs for run in system.runs] for system in systems}
    rows = list(zip(*(runs[0] for runs in outputs.values()), strict=True))
    return ComparisonResult(
        files=examples.files,
        sentences=len(rows),
        systems=tuple(map(summarise, systems)),
        comparisons=compare_systems(outputs, examples.references),
        note=_joint_note(systems, examples),
        suspicious_counts=tuple(
            count_kinds(output for run in runs for output in suspicious_outputs(run, examples))
            for runs in outputs.values()
        ),
        identical=sum(len(set(row)) == 1 for row in rows),
        differing=most_differing(rows, examples, sentences),
    )


def group_runs(runs: Sequence[tuple[str | None, Mapping[str, Any] | None, SystemRun]]) -> list[ComparedSystem]:
    """Group runs into systems: by label or, without one, by recipe if each run has a seed of its own.

    Each run comes with its label and its recipe without the seed, if any. If all runs would form one system, there is
    nothing to compare it with, and each run becomes a system. A label that is also another system's name is an error.
    """
    groups: list[tuple[str | None, Mapping[str, Any] | None, list[SystemRun]]] = []
    for label, recipe, run in runs:
        matching = (
            members
            for other_label, other_recipe, members in groups
            if other_label == label
            and (label is not None or (recipe is not None and recipe == other_recipe and _has_new_seed(run, members)))
        )
        members = next(matching, None)
        if members is None:
            groups.append((label, recipe, [run]))
        else:
            members.append(run)
    if len(groups) == 1 and groups[0][0] is None:
        return [ComparedSystem(run.name, (run,)) for _, _, run in runs]
    wanted = [label or _system_name(recipe, members) for label, recipe, members in groups]
    names = [
        name if wanted.count(name) == 1 else members[0].name
        for name, (_, _, members) in zip(wanted, groups, strict=True)
    ]
    for label, _, _ in groups:
        if label is not None and max(wanted.count(label), names.count(label)) > 1:
            raise RegardError(f"the name {label} is already taken by another system: choose another")
    return [ComparedSystem(name, tuple(members)) for name, (_, _, members) in zip(names, groups, strict=True)]


def summarise(system: ComparedSystem) -> SystemSummary:
    """A system's summary over its runs; properties in which the runs differ are left out."""
    systems = [run.translated.system for run in system.runs]
    speeds = [run.speed for run in systems if run.speed is not None]
    speed = None
    if len(speeds) == len(systems):
        speed = Speed(fmean(run.seconds for run in speeds), fmean(run.per_second for run in speeds), speeds[0].unit)
    parameters, devices = {run.parameters for run in systems}, {run.device for run in systems}
    trainings = [run.training for run in system.runs if run.training is not None]
    return SystemSummary(
        name=system.name,
        parameters=parameters.pop() if len(parameters) == 1 else None,
        device=devices.pop() if len(devices) == 1 else None,
        decoding=systems[0].decoding,
        speed=speed,
        training=mean_training_cost(trainings) if len(trainings) == len(system.runs) else None,
        runs=tuple(RunSummary(run.translated.system, run.training, run.seed) for run in system.runs),
    )


def mean_training_cost(costs: Sequence[TrainingCost]) -> TrainingCost:
    """The mean cost of several trainings; all their devices are listed."""
    flops = [cost.flops for cost in costs if cost.flops is not None]
    return TrainingCost(
        device="; ".join(dict.fromkeys(cost.device for cost in costs)),
        seconds=fmean(cost.seconds for cost in costs),
        tokens=fmean(cost.tokens for cost in costs),
        flops=fmean(flops) if len(flops) == len(costs) else None,
        start="; ".join(dict.fromkeys(cost.start for cost in costs if cost.start)) or None,
    )


def most_differing(rows: Sequence[tuple[str, ...]], examples: Examples, count: int) -> tuple[DifferingSentence, ...]:
    """The sentences whose outputs differ most in chrF2++, largest difference first; equal scores are left out."""
    ranked = []
    for i, outputs in enumerate(rows):
        references = [side[i] for side in examples.references]
        scores = tuple(sentence_chrf(output, references) for output in outputs) if len(set(outputs)) > 1 else (0.0,)
        ranked.append((max(scores) - min(scores), i, scores))
    ranked.sort(key=lambda entry: (-entry[0], entry[1]))
    differing = []
    for difference, i, scores in ranked[:count]:
        if difference > 0:
            references = [side[i] for side in examples.references]
            diffs = tuple(diff(output, references) for output in rows[i])
            line, source = examples.lines[i], examples.sources[i]
            differing.append(DifferingSentence(line, source, tuple(references), rows[i], scores, diffs))
    return tuple(differing)


def diff(output: str, references: Sequence[str]) -> tuple[DiffSegment, ...]:
    """A word-by-word comparison of an output with the reference closest to it by chrF2++.

    Words are compared literally: a good paraphrase, or a word at another position, is marked too.

    >>> [(segment.text, segment.mark) for segment in diff("A dog is asleep.", ["The dog sleeps."])]
    [('A', 'wrong'), ('The', 'missing'), ('dog', 'same'), ('is asleep', 'wrong'), ('sleeps', 'missing'), ('.', 'same')]
    """
    reference = max(references, key=lambda candidate: sentence_chrf(output, [candidate]))
    words, reference_words = list(WORD_OR_MARK.finditer(output)), list(WORD_OR_MARK.finditer(reference))
    matcher = SequenceMatcher(None, [word[0] for word in words], [word[0] for word in reference_words], autojunk=False)
    segments = []
    for tag, begin, end, reference_begin, reference_end in matcher.get_opcodes():
        if begin < end:
            text = output[words[begin].start() : words[end - 1].end()]
            segments.append(DiffSegment(text, "same" if tag == "equal" else "wrong"))
        if reference_begin < reference_end and tag != "equal":
            text = reference[reference_words[reference_begin].start() : reference_words[reference_end - 1].end()]
            segments.append(DiffSegment(text, "missing"))
    return tuple(segments)


def _joint_note(systems: Sequence[ComparedSystem], examples: Examples) -> ComparabilityNote:
    """The note on a test set for several systems; a warning about one system's outputs names the system."""
    notes = [
        (system.name, comparability_note(run.translated.outputs, examples.references, examples.name))
        for system in systems
        for run in system.runs
    ]
    warnings = [
        f"{name}: {warning}" if warning.startswith("The outputs") else warning
        for name, note in notes
        for warning in note.warnings
    ]
    return warn_of_subset(replace(notes[0][1], warnings=tuple(dict.fromkeys(warnings))), examples)


def _has_new_seed(run: SystemRun, members: Sequence[SystemRun]) -> bool:
    return run.seed is not None and all(run.seed != member.seed for member in members)


def _system_name(recipe: Mapping[str, Any] | None, members: Sequence[SystemRun]) -> str:
    """The name of a single run, or the name of the recipe of several."""
    return members[0].name if recipe is None or len(members) == 1 else str(recipe.get("name") or members[0].name)
