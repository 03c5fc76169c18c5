"""Exact-match accuracy of translations, overall and for each tag of the sentences."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.config import did_you_mean
from regard.errors import RegardError
from regard.evaluation.proportions import Proportion, proportion
from regard.evaluation.result_json import recorded_as
from regard.evaluation.text_checks import check_lengths, check_texts
from regard.evaluation.text_files import read_text_lines


@dataclass(frozen=True)
class TagAccuracy:
    """Exact-match accuracy, which is meaningful if each source has only one correct translation."""

    overall: Proportion
    by_tag: dict[str, Proportion] = field(metadata=recorded_as("phenomena"))
    """For each tag, the accuracy on the sentences that have it, lowest first. A sentence may have several tags."""


def tag_accuracy(outputs: Sequence[str], references: Sequence[str], tags: Sequence[Sequence[str]]) -> TagAccuracy:
    """Compare outputs with references, ignoring white space at the ends; `tags` holds the tags of each sentence."""
    check_texts(outputs=outputs, references=references)
    check_lengths(outputs=outputs, tags=tags)
    matches = [output.strip() == reference.strip() for output, reference in zip(outputs, references, strict=True)]
    matches_by_tag: dict[str, list[bool]] = {}
    for match, sentence_tags in zip(matches, tags, strict=True):
        for tag in sentence_tags:
            matches_by_tag.setdefault(tag, []).append(match)
    accuracies = {tag: proportion(sum(group), len(group)) for tag, group in matches_by_tag.items()}
    lowest_first = sorted(accuracies, key=lambda tag: (accuracies[tag].value, tag))
    return TagAccuracy(proportion(sum(matches), len(matches)), {tag: accuracies[tag] for tag in lowest_first})


def read_tags(path: Path, known: Collection[str] | None = None) -> list[list[str]]:
    """The tags of each sentence, from a file with one line per sentence; with `known`, other tags are an error."""
    lines = [line.split() for line in read_text_lines(path)]
    if known is None:
        return lines
    for number, tags in enumerate(lines, 1):
        for tag in tags:
            if tag not in known:
                raise RegardError(f"{path}:{number}: unknown tag {tag!r}: {did_you_mean(tag, list(known))}")
    return lines
