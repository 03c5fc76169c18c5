"""BLEU and chrF2++ computed by sacreBLEU, always with its signature and a confidence interval.

sacreBLEU tokenises both sides itself, so texts are passed detokenised. Its bootstrap resampling temporarily needs about
100 kB of memory per sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from regard.errors import RegardError
from regard.evaluation.comparability import ComparabilityNote, comparability_note
from regard.evaluation.result_json import recorded_as
from regard.evaluation.text_checks import check_texts

BOOTSTRAP_RESAMPLES = 1_000
"""Number of bootstrap resamples for the interval. The seed is sacreBLEU's: 12345 unless SACREBLEU_SEED is set."""
RANDOMIZATION_TRIALS = 10_000
"""Number of trials of the paired test."""

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference for each output, or several such lists."""


@dataclass(frozen=True)
class SacrebleuScore:
    """A score from 0 to 100 with sacreBLEU's 95% confidence interval and signature."""

    name: str
    value: float = field(metadata=recorded_as("score"))
    mean: float
    """Mean over the bootstrap resamples, which is the centre of the interval."""
    low: float
    high: float
    signature: str

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper bound of the 95% confidence interval."""
        return self.low, self.high


@dataclass(frozen=True)
class TranslationScores:
    """Scores of translations against references, and what they may be compared with."""

    sentences: int
    bleu: SacrebleuScore
    bleu_lowercase: SacrebleuScore
    chrf: SacrebleuScore
    note: ComparabilityNote


@dataclass(frozen=True)
class SystemComparison:
    """One system compared with the first."""

    system: str
    score: SacrebleuScore
    """The system's score. With several runs: their mean, with an interval over sentences and seeds."""
    difference: float
    """The system's score minus the score of the first system."""
    p_value: float | None
    """Probability of a difference at least this large by chance; None for the first system itself."""
    test: Literal["randomization", "bootstrap"] | None
    """The test that gave the p-value: see `paired_test`, and `regard.evaluation.multi_run`."""
    runs: tuple[float, ...]
    """The score of each run."""
    deviation: float | None = None
    """Standard deviation over several runs."""


@dataclass(frozen=True)
class MetricComparison:
    """Several systems compared by one metric."""

    metric: str
    test: str
    """sacreBLEU's signature of the approximate randomization test; empty if that test was not used."""
    systems: tuple[SystemComparison, ...]


def bleu(outputs: Sequence[str], references: References, lowercase: bool = False) -> SacrebleuScore:
    """BLEU with sacreBLEU's defaults: n-grams of one to four tokens, tokenised by 13a."""
    return metric_score(bleu_metric(lowercase), outputs, reference_lists(outputs, references))


def chrf(outputs: Sequence[str], references: References, lowercase: bool = False) -> SacrebleuScore:
    """chrF2++: n-grams of one to six characters and one to two words."""
    return metric_score(chrf_metric(lowercase), outputs, reference_lists(outputs, references))


def sentence_chrf(output: str, references: Sequence[str]) -> float:
    """chrF2++ of one sentence. Useful for ranking sentences; too noisy to judge a system."""
    return float(chrf_metric().sentence_score(output, references).score)


def translation_scores(
    outputs: Sequence[str], references: References, test_set: str | None = None
) -> TranslationScores:
    """BLEU (cased and lower-cased), chrF2++ and a note on comparability; `test_set` is the user's name for the set."""
    lists = reference_lists(outputs, references)
    return TranslationScores(
        sentences=len(outputs),
        bleu=bleu(outputs, lists),
        bleu_lowercase=bleu(outputs, lists, lowercase=True),
        chrf=chrf(outputs, lists),
        note=comparability_note(outputs, lists, test_set),
    )


def paired_test(systems: Mapping[str, Sequence[str]], references: References) -> tuple[MetricComparison, ...]:
    """Compare each system with the first by BLEU and chrF2++, with sacreBLEU's approximate randomization test.

    In each of 10,000 trials, sentences of the two systems are swapped at random. The p-value is the fraction of trials
    with a larger difference than the observed one. It is two-sided and not corrected for multiple comparisons.
    """
    lists = check_systems({name: [outputs] for name, outputs in systems.items()}, references)
    return tuple(_compare(metric, systems, lists) for metric in (bleu_metric(), chrf_metric()))


def check_systems(systems: Mapping[str, Sequence[Sequence[str]]], references: References) -> list[Sequence[str]]:
    """The references as lists; raises a `RegardError` unless there are two systems, each with valid outputs."""
    if len(systems) < 2:
        raise RegardError(f"{len(systems)} system to compare: give at least two")
    for name, runs in systems.items():
        if not runs:
            raise RegardError(f"system {name!r} has no outputs")
        for outputs in runs:
            try:
                lists = reference_lists(outputs, references)
            except RegardError as error:
                raise RegardError(f"system {name!r}: {error}") from None
    return lists


def reference_lists(outputs: Sequence[str], references: References) -> list[Sequence[str]]:
    """The references as lists with one text for each output; raises a `RegardError` if they do not match."""
    check_texts(outputs=outputs)
    if references is None or isinstance(references, str):
        actual = "None" if references is None else "a single string"
        raise RegardError(f"references must be a list of strings, or several such lists, not {actual}")
    is_nested = len(references) > 0 and not isinstance(references[0], str | None)
    lists: list[Sequence[str]] = list(references) if is_nested else [references]  # type: ignore[list-item]
    for texts in lists:
        check_texts(outputs=outputs, references=texts)
    return lists


def bleu_metric(lowercase: bool = False) -> Any:
    """sacreBLEU's BLEU with its defaults."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=lowercase, force=True)  # the comparability note warns of tokenised text


def chrf_metric(lowercase: bool = False) -> Any:
    """sacreBLEU's chrF2++."""
    from sacrebleu.metrics.chrf import CHRF

    class UniformCHRF(CHRF):
        """Return NumPy numbers for resamples even if nothing matches: `statistics` refuses to mix number types."""

        def _compute_f_score(self, statistics: Any) -> Any:
            score = super()._compute_f_score(statistics)
            is_mixed = score == 0 and isinstance(statistics, np.ndarray) and statistics.dtype.kind == "f"
            return statistics.dtype.type(score) if is_mixed else score

    return UniformCHRF(lowercase=lowercase, word_order=2)


def metric_score(metric: Any, outputs: Sequence[str], lists: Sequence[Sequence[str]]) -> SacrebleuScore:
    """The score by one of sacreBLEU's metrics, with its bootstrap interval, cut off at 0 and 100."""
    result = metric.corpus_score(outputs, lists, n_bootstrap=BOOTSTRAP_RESAMPLES)
    mean, half_width = float(result._mean), float(result._ci)  # the public attributes are rounded text
    name = f"{result.name}, lower-cased" if metric.lowercase else str(result.name)
    signature = str(metric.get_signature())
    low, high = max(0.0, mean - half_width), min(100.0, mean + half_width)
    return SacrebleuScore(name, float(result.score), mean, low, high, signature)


def _compare(metric: Any, systems: Mapping[str, Sequence[str]], lists: Sequence[Sequence[str]]) -> MetricComparison:
    from sacrebleu.significance import PairedTest

    test = PairedTest(list(systems.items()), {"metric": metric}, lists, test_type="ar", n_samples=RANDOMIZATION_TRIALS)
    signatures, results = test()
    (metric_name, signature), *_ = signatures.items()
    (first_name, first), *others = systems.items()
    first_score = metric_score(metric, first, lists)
    compared = [SystemComparison(first_name, first_score, 0.0, None, None, (first_score.value,))]
    for (name, outputs), result in zip(others, results[metric_name][1:], strict=True):
        score = metric_score(metric, outputs, lists)
        difference = score.value - first_score.value
        p_value = _corrected_p_value(result.p_value, difference, first, outputs)  # type: ignore[union-attr, arg-type]
        compared.append(SystemComparison(name, score, difference, p_value, "randomization", (score.value,)))
    return MetricComparison(metric_name, str(signature), tuple(compared))


def _corrected_p_value(p_value: float, difference: float, first: Sequence[str], other: Sequence[str]) -> float:
    """sacreBLEU's p-value, corrected where few sentences differ.

    sacreBLEU counts trials with a larger difference but not those with an equal one, so a system compared with itself
    gets p = 0.0001. If k sentences differ, two of the 2^k possible swaps give exactly the observed difference.
    """
    if difference == 0:
        return 1.0
    differing = sum(output.split() != other_output.split() for output, other_output in zip(first, other, strict=True))
    return min(1.0, max(p_value, 2.0 ** (1 - differing)))
