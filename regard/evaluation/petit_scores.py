"""Petit's gold at work: how often a translation is exactly right, altogether and for each phenomenon."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import did_you_mean
from regard.errors import RegardError
from regard.evaluation.proportions import Share, share
from regard.evaluation.text_checks import check_lengths, check_texts
from regard.petit import PHENOMENA


@dataclass(frozen=True)
class PetitScore:
    """Exact matches: no French of Petit has two Englishes, so that anything else is wrong."""

    overall: Share
    phenomena: dict[str, Share]
    """of the sentences that show each phenomenon, the hardest first; one sentence may show several"""


def petit_score(outputs: Sequence[str], references: Sequence[str], tags: Sequence[Sequence[str]]) -> PetitScore:
    """Compare, capitals and stops included, spaces at the ends not; `tags` are each sentence's phenomena."""
    check_texts(outputs=outputs, references=references)
    check_lengths(outputs=outputs, tags=tags)
    right = [output.strip() == reference.strip() for output, reference in zip(outputs, references, strict=True)]
    found: dict[str, list[bool]] = {}
    for correct, names in zip(right, tags, strict=True):
        for name in names:
            found.setdefault(name, []).append(correct)
    shares = {name: share(sum(each), len(each)) for name, each in found.items()}
    hardest = sorted(shares, key=lambda name: (shares[name].value, name))
    return PetitScore(share(sum(right), len(right)), {name: shares[name] for name in hardest})


def read_tags(path: Path) -> list[list[str]]:
    """The phenomena of each sentence, from a file as `regard data petit` writes it."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    for number, names in enumerate(lines, 1):
        for name in names:
            if name not in PHENOMENA:
                raise RegardError(f"{path}:{number}: no phenomenon {name!r}: {did_you_mean(name, PHENOMENA)}")
    return lines
