"""Translators beside each other on one test set: scores, speed, what they cost, and what each got wrong."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from statistics import fmean
from typing import Any, Literal

from regard.config import require_at_least
from regard.errors import RegardError
from regard.evaluation.comparability import Note, note_on
from regard.evaluation.evaluate import Speed, System, Translated, count_kinds, look_at, on_part
from regard.evaluation.metrics import Comparison, sentence_chrf
from regard.evaluation.multi_run import paired_groups
from regard.evaluation.test_sets import Examples

WORD = re.compile(r"[\w\u0300-\u036f]+(?:[-'’][\w\u0300-\u036f]+)*|[^\w\s]")
"""a word, or a mark that stands by one"""


@dataclass(frozen=True)
class Training:
    """What a training took, as its log tells: the mean of a system's runs where there are several."""

    place: str
    """device, precision and whether it was compiled"""
    seconds: int | float
    """validating and saving left out"""
    tokens: int | float
    """target tokens that were learned from, each as often as it came"""
    flops: float | None
    """floating-point operations, counted; None of a run that has not ended"""
    start: str | None = None
    """the model that was trained further, whose own training is not counted here"""


@dataclass(frozen=True)
class Run:
    """One training of a system, or outputs that were made elsewhere."""

    translated: Translated
    training: Training | None = None
    seed: int | None = None

    @property
    def name(self) -> str:
        """What it is called: the end of its path."""
        return self.translated.system.name


@dataclass(frozen=True)
class Group:
    """A system: runs that differ in their seed alone, or one run."""

    name: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Member:
    """A run of a system, as it is told of."""

    system: System
    training: Training | None
    seed: int | None


@dataclass(frozen=True)
class Summary(System):
    """A system with its runs; speed and training are means over them."""

    training: Training | None = None
    runs: tuple[Member, ...] = ()


@dataclass(frozen=True)
class Piece:
    """Words of an output that are in the reference or not, or words of the reference that the output lacks."""

    text: str
    mark: Literal["same", "wrong", "missing"]


@dataclass(frozen=True)
class Apart:
    """A sentence on which systems differ."""

    line: int
    source: str
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    """of each system; where it has several runs, of its first"""
    chrf: tuple[float, ...]
    mistakes: tuple[tuple[Piece, ...], ...]
    """each output held against the reference that is nearest to it"""


@dataclass(frozen=True)
class ComparisonResult:
    """Translators beside each other on one test set."""

    files: tuple[str, ...]
    sentences: int
    systems: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    """by BLEU and chrF2++"""
    note: Note
    suspects: tuple[dict[str, int], ...]
    """of each system, all its runs together"""
    identical: int
    """sentences for which all wrote the same"""
    apart: tuple[Apart, ...]
    """where sentence chrF2++ differs most"""
    kind: str = "comparison"


def compare(groups: Sequence[Group], examples: Examples, sentences: int = 5) -> ComparisonResult:
    """Systems beside each other, each against the first, and the sentences where they are furthest apart."""
    require_at_least(0, sentences=sentences)
    for names in ([group.name for group in groups], [run.name for group in groups for run in group.runs]):
        if len(set(names)) < len(names):
            raise RegardError(f"{Counter(names).most_common(1)[0][0]} is there twice: compare different systems")
    outputs = {group.name: [run.translated.outputs for run in group.runs] for group in groups}
    rows = list(zip(*(runs[0] for runs in outputs.values()), strict=True))
    return ComparisonResult(
        files=examples.files,
        sentences=len(rows),
        systems=tuple(map(summary, groups)),
        comparisons=paired_groups(outputs, examples.beside),
        note=_joint_note(groups, examples),
        suspects=tuple(
            count_kinds(each for run in runs for each in look_at(run, examples)) for runs in outputs.values()
        ),
        identical=sum(len(set(row)) == 1 for row in rows),
        apart=furthest_apart(rows, examples, sentences),
    )


def in_groups(runs: Sequence[tuple[str | None, Mapping[str, Any] | None, Run]]) -> list[Group]:
    """Runs as systems: those with one label, or without one those of one recipe, each with a seed of its own.

    Each comes with its label and its recipe without the seed, if any. Where all runs would be one system, there is
    nothing else to compare, and each stays by itself. A label that is another system's name is a ValueError.
    """
    homes: list[tuple[str | None, Mapping[str, Any] | None, list[Run]]] = []
    for label, recipe, run in runs:
        fitting = (
            members
            for other, theirs, members in homes
            if other == label
            and (label is not None or (recipe is not None and recipe == theirs and _is_new(run, members)))
        )
        home = next(fitting, None)
        if home is None:
            homes.append((label, recipe, [run]))
        else:
            home.append(run)
    if len(homes) == 1 and homes[0][0] is None:
        return [Group(run.name, (run,)) for _, _, run in runs]
    wanted = [label or _name(recipe, members) for label, recipe, members in homes]
    names = [
        name if wanted.count(name) == 1 else members[0].name
        for name, (_, _, members) in zip(wanted, homes, strict=True)
    ]
    for label, _, _ in homes:
        if label is not None and max(wanted.count(label), names.count(label)) > 1:
            raise RegardError(f"{label}= names a system as another is called already: give it another name")
    return [Group(name, tuple(members)) for name, (_, _, members) in zip(names, homes, strict=True)]


def summary(group: Group) -> Summary:
    """A system in the mean over its runs; what they do not have in common is left out."""
    systems = [run.translated.system for run in group.runs]
    speeds = [system.speed for system in systems if system.speed is not None]
    speed = None
    if len(speeds) == len(systems):
        speed = Speed(fmean(each.seconds for each in speeds), fmean(each.per_second for each in speeds), speeds[0].unit)
    parameters, devices = {system.parameters for system in systems}, {system.device for system in systems}
    trainings = [run.training for run in group.runs if run.training is not None]
    return Summary(
        name=group.name,
        parameters=parameters.pop() if len(parameters) == 1 else None,
        device=devices.pop() if len(devices) == 1 else None,
        decoding=systems[0].decoding,
        speed=speed,
        training=mean_training(trainings) if len(trainings) == len(group.runs) else None,
        runs=tuple(Member(run.translated.system, run.training, run.seed) for run in group.runs),
    )


def mean_training(trainings: Sequence[Training]) -> Training:
    """What a training took in the mean; places that differ are all told."""
    counted = [each.flops for each in trainings if each.flops is not None]
    return Training(
        place="; ".join(dict.fromkeys(each.place for each in trainings)),
        seconds=fmean(each.seconds for each in trainings),
        tokens=fmean(each.tokens for each in trainings),
        flops=fmean(counted) if len(counted) == len(trainings) else None,
        start="; ".join(dict.fromkeys(each.start for each in trainings if each.start)) or None,
    )


def furthest_apart(rows: Sequence[tuple[str, ...]], examples: Examples, count: int) -> tuple[Apart, ...]:
    """The sentences whose outputs differ most in chrF2++, the widest apart first; those with one score are left out."""
    found = []
    for i, outputs in enumerate(rows):
        references = [each[i] for each in examples.beside]
        scores = tuple(sentence_chrf(output, references) for output in outputs) if len(set(outputs)) > 1 else (0.0,)
        found.append((max(scores) - min(scores), i, scores))
    most = [each for each in sorted(found, key=lambda each: (-each[0], each[1])) if each[0] > 0][:count]
    shown = []
    for _, i, scores in most:
        references = [each[i] for each in examples.beside]
        wrong = tuple(mistakes(output, references) for output in rows[i])
        shown.append(Apart(examples.lines[i], examples.sources[i], tuple(references), rows[i], scores, wrong))
    return tuple(shown)


def mistakes(output: str, references: Sequence[str]) -> tuple[Piece, ...]:
    """An output word by word against the reference that is nearest to it by chrF2++.

    Words are compared as they are written. What is said well in other words, or elsewhere, is marked all the same.

    >>> [(piece.text, piece.mark) for piece in mistakes("A dog is asleep.", ["The dog sleeps."])]
    [('A', 'wrong'), ('The', 'missing'), ('dog', 'same'), ('is asleep', 'wrong'), ('sleeps', 'missing'), ('.', 'same')]
    """
    reference = max(references, key=lambda each: sentence_chrf(output, [each]))
    ours, theirs = list(WORD.finditer(output)), list(WORD.finditer(reference))
    matcher = SequenceMatcher(None, [word[0] for word in ours], [word[0] for word in theirs], autojunk=False)
    pieces = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if i < j:
            pieces.append(Piece(output[ours[i].start() : ours[j - 1].end()], "same" if tag == "equal" else "wrong"))
        if k < m and tag != "equal":
            pieces.append(Piece(reference[theirs[k].start() : theirs[m - 1].end()], "missing"))
    return tuple(pieces)


def _joint_note(groups: Sequence[Group], examples: Examples) -> Note:
    """The note on a set that several systems are scored on: what is to be doubted of one is told by its name."""
    notes = [
        (group.name, note_on(run.translated.outputs, examples.beside, examples.name))
        for group in groups
        for run in group.runs
    ]
    warnings = [
        f"{name}: {warning}" if warning.startswith("The outputs") else warning
        for name, note in notes
        for warning in note.warnings
    ]
    return on_part(replace(notes[0][1], warnings=tuple(dict.fromkeys(warnings))), examples)


def _is_new(run: Run, members: Sequence[Run]) -> bool:
    return run.seed is not None and all(run.seed != each.seed for each in members)


def _name(recipe: Mapping[str, Any] | None, members: Sequence[Run]) -> str:
    """Of one run its own name, of several that of their recipe."""
    return members[0].name if recipe is None or len(members) == 1 else str(recipe.get("name") or members[0].name)
