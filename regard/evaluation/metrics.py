"""BLEU and chrF2++ by sacreBLEU, always with the signature that says how, and an interval that says how surely.

sacreBLEU tokenises both sides itself, so texts go in as people write them. Its resampling holds some 100 kB for each
sentence in memory while it lasts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from regard.errors import RegardError
from regard.evaluation.comparability import Note, note_on
from regard.evaluation.text_checks import check_texts

RESAMPLES = 1_000
"""for the interval; the seed is sacreBLEU's 12345 unless SACREBLEU_SEED says otherwise, and the signature tells it"""
TRIALS = 10_000
"""of the paired test"""

References = Sequence[str] | Sequence[Sequence[str]]
"""one text for each output, or several such lists"""


@dataclass(frozen=True)
class Score:
    """A score between 0 and 100 with its 95 % interval, sacreBLEU's: half the spread on either side of the mean."""

    name: str
    score: float
    mean: float
    """of the resamples"""
    low: float
    high: float
    signature: str


@dataclass(frozen=True)
class TranslationScores:
    """What is said of a system on a test set, and what that may be compared with."""

    sentences: int
    bleu: Score
    bleu_lowercase: Score
    chrf: Score
    note: Note


@dataclass(frozen=True)
class Compared:
    """One system beside the first."""

    system: str
    score: Score
    """of several runs: their mean, and an interval for other sentences and seeds"""
    difference: float
    """its score less that of the first"""
    p_value: float | None
    """how often chance alone would part the two at least so far; None for the first itself"""
    test: Literal["randomization", "bootstrap"] | None
    """what p was found by: see `paired`, and `regard.evaluation.multi_run`"""
    runs: tuple[float, ...]
    """the score of each of its runs"""
    deviation: float | None = None
    """the standard deviation of several runs"""


@dataclass(frozen=True)
class Comparison:
    """Systems beside each other by one metric."""

    metric: str
    test: str
    """the signature of approximate randomization; empty where no two systems were compared so"""
    systems: tuple[Compared, ...]


def bleu(outputs: Sequence[str], references: References, lowercase: bool = False) -> Score:
    """BLEU: matching runs of one to four tokens (13a), by sacreBLEU."""
    return scored(bleu_metric(lowercase), outputs, reference_lists(outputs, references))


def chrf(outputs: Sequence[str], references: References, lowercase: bool = False) -> Score:
    """chrF2++: matching runs of one to six characters and one to two words, by sacreBLEU."""
    return scored(chrf_metric(lowercase), outputs, reference_lists(outputs, references))


def sentence_chrf(output: str, references: Sequence[str]) -> float:
    """chrF2++ of one sentence, to find those that are worth a look: on so little text it is no verdict."""
    return float(chrf_metric().sentence_score(output, references).score)


def translation_scores(
    outputs: Sequence[str], references: References, test_set: str | None = None
) -> TranslationScores:
    """BLEU cased and lower-cased, chrF2++, and the honesty note; `test_set` is what you call the set."""
    lists = reference_lists(outputs, references)
    return TranslationScores(
        sentences=len(outputs),
        bleu=bleu(outputs, lists),
        bleu_lowercase=bleu(outputs, lists, lowercase=True),
        chrf=chrf(outputs, lists),
        note=note_on(outputs, lists, test_set),
    )


def paired(systems: Mapping[str, Sequence[str]], references: References) -> tuple[Comparison, ...]:
    """Each system against the first by BLEU and chrF2++, cased, by sacreBLEU's approximate randomization.

    Sentences of the two systems are swapped at random 10,000 times; p is the share of times that parts the systems
    further than they are. It is two-sided and for one comparison: with many systems, ask more of each.
    """
    lists = check_systems({name: [outputs] for name, outputs in systems.items()}, references)
    return tuple(_compare(metric, systems, lists) for metric in (bleu_metric(), chrf_metric()))


def check_systems(systems: Mapping[str, Sequence[Sequence[str]]], references: References) -> list[Sequence[str]]:
    """The references as lists; a ValueError unless there are two systems, each with runs that have what it takes."""
    if len(systems) < 2:
        raise RegardError(f"{len(systems)} system to compare: give at least two, by name")
    for name, runs in systems.items():
        if not runs:
            raise RegardError(f"system {name!r} has no outputs")
        for outputs in runs:
            try:
                lists = reference_lists(outputs, references)
            except ValueError as error:
                raise RegardError(f"system {name!r}: {error}") from None
    return lists


def reference_lists(outputs: Sequence[str], references: References) -> list[Sequence[str]]:
    """The references as lists, each with one text for each output; a ValueError when they are not that."""
    check_texts(outputs=outputs)
    if references is None or isinstance(references, str):
        what = "none" if references is None else "one text"
        raise RegardError(f"references must be a list of texts, or several such lists, and this is {what}")
    several = len(references) > 0 and not isinstance(references[0], str | None)
    lists: list[Sequence[str]] = list(references) if several else [references]  # type: ignore[list-item]
    for each in lists:
        check_texts(outputs=outputs, references=each)
    return lists


def bleu_metric(lowercase: bool = False) -> Any:
    """sacreBLEU's BLEU with its defaults."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=lowercase, force=True)  # tokenised text is the note's to warn of


def chrf_metric(lowercase: bool = False) -> Any:
    """sacreBLEU's chrF2++."""
    from sacrebleu.metrics.chrf import CHRF

    class EvenCHRF(CHRF):
        """Of resamples it gives NumPy's numbers, also where nothing matches: `statistics` does not mix kinds."""

        def _compute_f_score(self, statistics: Any) -> Any:
            score = super()._compute_f_score(statistics)
            mixes = score == 0 and isinstance(statistics, np.ndarray) and statistics.dtype.kind == "f"
            return statistics.dtype.type(score) if mixes else score

    return EvenCHRF(lowercase=lowercase, word_order=2)


def scored(metric: Any, outputs: Sequence[str], lists: Sequence[Sequence[str]]) -> Score:
    """A metric's score, and sacreBLEU's interval for it."""
    found = metric.corpus_score(outputs, lists, n_bootstrap=RESAMPLES)
    mean, reach = float(found._mean), float(found._ci)  # otherwise told in rounded text alone
    name = f"{found.name}, lower-cased" if metric.lowercase else str(found.name)
    return Score(name, float(found.score), mean, mean - reach, mean + reach, str(metric.get_signature()))


def _compare(metric: Any, systems: Mapping[str, Sequence[str]], lists: Sequence[Sequence[str]]) -> Comparison:
    from sacrebleu.significance import PairedTest

    test = PairedTest(list(systems.items()), {"metric": metric}, lists, test_type="ar", n_samples=TRIALS)
    signatures, results = test()
    (metric_name, signature), *_ = signatures.items()
    (first_name, first), *others = systems.items()
    base = scored(metric, first, lists)
    compared = [Compared(first_name, base, 0.0, None, None, (base.score,))]
    for (name, outputs), result in zip(others, results[metric_name][1:], strict=True):
        score = scored(metric, outputs, lists)
        difference = score.score - base.score
        p_value = _honest_p(result.p_value, difference, first, outputs)  # type: ignore[union-attr, arg-type]
        compared.append(Compared(name, score, difference, p_value, "randomization", (score.score,)))
    return Comparison(metric_name, str(signature), tuple(compared))


def _honest_p(p_value: float, difference: float, first: Sequence[str], other: Sequence[str]) -> float:
    """sacreBLEU's p, mended where few sentences differ.

    It counts swaps that part the systems further, not those that part them just as far, so that a system against
    itself has p = 0.0001. Where k sentences differ, two of the 2^k swaps part the systems as far as they are.
    """
    if difference == 0:
        return 1.0
    differing = sum(mine.split() != theirs.split() for mine, theirs in zip(first, other, strict=True))
    return min(1.0, max(p_value, 2.0 ** (1 - differing)))
