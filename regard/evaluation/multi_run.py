"""Compare systems of several runs: means over the runs, and how well they hold for other sentences and seeds.

Dimensions: R resamples, N sentences, K statistics of a sentence that a metric is computed from, S runs of a system.

This is a hierarchical bootstrap. Sentences are resampled R times, identically for every run of every system, so that
all are always scored on the same text. For each resample the runs of each system are resampled too, independently of
the other systems. Resampling few runs underestimates the spread by √((S-1)/S), which is corrected. The spread over
seeds is itself poorly known from few runs, so deviations are widened from a normal to a Student's t distribution, with
the degrees of freedom of Welch and Satterthwaite: hardly where sentences dominate, a lot where a few runs do.

How often two equal systems get p < 0.05, in 4,000 comparisons where the effects of sentences and seeds add up and both
are normally distributed; in brackets the rate without the widening:

| runs | seeds spread the difference a third as much as sentences | as much | four times as much |
|---|---|---|---|
| 2 and 2 | 4.9% (4.7%) | 4.9% (7.9%) | 6.1% (16.9%) |
| 3 and 3 | 5.6% (4.9%) | 5.4% (6.5%) | 5.5% (12.0%) |
| 5 and 5 | 5.2% (4.8%) | 4.9% (6.2%) | 4.9% (8.5%) |
| 2 and 3 | 4.9% (4.5%) | 4.7% (6.8%) | 6.6% (15.8%) |
| 1 and 3 | 5.9% (6.4%) | 11.7% (13.0%) | 21.5% (36.4%) |

A single run says nothing about other seeds, as the last row shows, and two runs say too little to call a difference
significant. That takes `MIN_RUNS` runs of both systems, or one run of each, which claims nothing about other seeds.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.evaluation.metrics import (
    BOOTSTRAP_RESAMPLES,
    MetricComparison,
    References,
    SacrebleuScore,
    SystemComparison,
    bleu_metric,
    check_systems,
    chrf_metric,
    metric_score,
    paired_test,
)

MIN_RUNS = 3
"""Number of runs of each system that it takes to make a claim about other seeds."""


@dataclass(frozen=True)
class RunScores:
    """The scores of a system's runs by one metric, on the full test set and on the same resamples of sentences."""

    metric: str
    scores: Float[np.ndarray, " S"]
    resampled: Float[np.ndarray, "S R"]

    def bootstrap(self, rng: np.random.Generator) -> "BootstrapMean":
        """The mean over the runs, on resamples of sentences and of runs."""
        runs, resamples = self.resampled.shape
        means: Float[np.ndarray, " R"] = self.resampled.mean(0)
        if runs == 1:
            return BootstrapMean(means, np.zeros(resamples), ())
        chosen = rng.integers(runs, size=(runs, resamples))
        shifts = np.take_along_axis(self.resampled, chosen, axis=0).mean(0) - means
        seed_variance = (float(self.scores.var(ddof=1)) / runs, runs - 1)
        return BootstrapMean(means, shifts * np.sqrt(runs / (runs - 1)), (seed_variance,))


@dataclass(frozen=True)
class BootstrapMean:
    """A mean over runs, or a difference of two such means, on each bootstrap resample."""

    by_sentences: Float[np.ndarray, " R"]
    """The value on each resample of sentences."""
    by_runs: Float[np.ndarray, " R"]
    """The shift of that value by the resample of runs; 0 with one run."""
    seed_variances: tuple[tuple[float, int], ...]
    """For each system with several runs, the variance of its mean over seeds and the degrees of freedom (S - 1)."""

    def __sub__(self, other: "BootstrapMean") -> "BootstrapMean":
        """The difference, on the same resamples of sentences."""
        shifts = self.by_runs - other.by_runs
        variances = (*self.seed_variances, *other.seed_variances)
        return BootstrapMean(self.by_sentences - other.by_sentences, shifts, variances)

    def deviations(self, sentences: int, rng: np.random.Generator) -> Float[np.ndarray, " R"]:
        """Deviation of each resample from the mean, widened as Student's t for few sentences and runs."""
        values = self.by_sentences + self.by_runs
        values = values - values.mean()
        freedom = self.degrees_of_freedom(sentences)
        widened: Float[np.ndarray, " R"] = values * np.sqrt(freedom / rng.chisquare(freedom, len(values)))
        return widened

    def degrees_of_freedom(self, sentences: int) -> float:
        """Degrees of freedom of the total variance, by Welch and Satterthwaite."""
        variances = ((float(self.by_sentences.var()), max(1, sentences - 1)), *self.seed_variances)
        weight = sum(variance**2 / freedom for variance, freedom in variances)
        return sum(variance for variance, _ in variances) ** 2 / weight if weight else float(max(1, sentences - 1))


def compare_systems(
    systems: Mapping[str, Sequence[Sequence[str]]], references: References
) -> tuple[MetricComparison, ...]:
    """Compare each system with the first by BLEU and chrF2++, cased. A system is given as the outputs of its runs.

    Two systems of one run each are compared by sacreBLEU's approximate randomization, as in `paired_test`. If one of
    them has several runs, the bootstrap above is used: p is the fraction of resamples that deviate from the difference
    of the means by at least that difference. `has_enough_runs` says whether it may be called significant.
    """
    lists = check_systems(systems, references)
    single = {name: runs[0] for name, runs in systems.items() if len(runs) == 1}
    first_is_single = next(iter(systems)) in single
    singles = paired_test(single, lists) if first_is_single and len(single) > 1 else (None, None)
    metrics = (bleu_metric, chrf_metric)
    return tuple(_compare(make, systems, lists, paired) for make, paired in zip(metrics, singles, strict=True))


def has_enough_runs(first: SystemComparison, second: SystemComparison) -> bool:
    """Whether a difference between two systems may be called significant: both have `MIN_RUNS` runs, or both one."""
    counts = {len(first.runs), len(second.runs)}
    return counts == {1} or min(counts) >= MIN_RUNS


def resample_sentences(count: int) -> Float[np.ndarray, "R N"]:
    """The number of times that each of `count` sentences occurs in each resample."""
    probabilities = np.full(count, 1 / count)
    return _generator().multinomial(count, probabilities, size=BOOTSTRAP_RESAMPLES).astype(np.float64)


def score_runs(
    metric: Any, runs: Sequence[Sequence[str]], lists: Sequence[Sequence[str]], resamples: Float[np.ndarray, "R N"]
) -> RunScores:
    """Score each run on the full test set and on the resamples, from statistics collected once for each sentence."""
    metric._ref_cache = metric._ref_cache or metric._cache_references(lists)  # once for all systems
    scores, resampled = [], []
    for outputs in runs:
        statistics = np.array(metric._extract_corpus_statistics(outputs, None), dtype=np.float64)  # [N, K]
        full = metric._compute_score_from_stats(statistics.sum(0).tolist())
        scores.append(float(full.score))
        sums = (resamples @ statistics).tolist()  # [R, K]
        resampled.append([float(metric._compute_score_from_stats(total).score) for total in sums])
    return RunScores(str(full.name), np.array(scores), np.array(resampled))


def _compare(
    make_metric: Callable[[], Any],
    systems: Mapping[str, Sequence[Sequence[str]]],
    lists: Sequence[Sequence[str]],
    singles: MetricComparison | None,
) -> MetricComparison:
    """Compare by one metric; `singles` holds the comparisons of systems of one run that were already made."""
    paired = {system.system: system for system in singles.systems} if singles else {}
    if singles and len(paired) == len(systems):
        return singles
    metric, sentences = make_metric(), len(lists[0])
    resamples = resample_sentences(sentences)
    compared: list[SystemComparison] = []
    first: BootstrapMean | None = None
    for index, (name, outputs) in enumerate(systems.items()):
        if first is not None and name in paired:
            compared.append(paired[name])
            continue
        rng, runs = _generator(index), score_runs(metric, outputs, lists, resamples)
        bootstrap = runs.bootstrap(rng)
        if len(outputs) > 1:
            system = _score_several_runs(name, metric, runs, bootstrap.deviations(sentences, rng))
        else:
            system = _score_one_run(name, make_metric(), outputs[0], lists)
        if first is None:
            first = bootstrap
        else:
            system = _with_p_value(compared[0], system, (bootstrap - first).deviations(sentences, rng))
        compared.append(system)
    return MetricComparison(compared[0].score.name, singles.test if singles else "", tuple(compared))


def _score_one_run(name: str, metric: Any, outputs: Sequence[str], lists: Sequence[Sequence[str]]) -> SystemComparison:
    score = metric_score(metric, outputs, lists)
    return SystemComparison(name, score, 0.0, None, None, (score.value,))


def _score_several_runs(
    name: str, metric: Any, runs: RunScores, deviations: Float[np.ndarray, " R"]
) -> SystemComparison:
    """The mean of the runs, with the central 95% of the resamples as its interval."""
    mean, centre = float(runs.scores.mean()), float(runs.resampled.mean())
    low, high = np.clip(centre + np.percentile(deviations, (2.5, 97.5)), 0, 100)
    score = SacrebleuScore(runs.metric, mean, centre, float(low), float(high), _signature(metric))
    standard_deviation = float(runs.scores.std(ddof=1))
    return SystemComparison(name, score, 0.0, None, None, tuple(map(float, runs.scores)), standard_deviation)


def _signature(metric: Any) -> str:
    """sacreBLEU's signature, with the number and seed of the resamples, which are made here in its way."""
    signature = metric.get_signature()
    signature.update("bs", BOOTSTRAP_RESAMPLES)
    signature.update("seed", _seed())
    return str(signature)


def _with_p_value(
    first: SystemComparison, system: SystemComparison, deviations: Float[np.ndarray, " R"]
) -> SystemComparison:
    difference = system.score.value - first.score.value
    return replace(system, difference=difference, p_value=p_value(deviations, difference), test="bootstrap")


def p_value(deviations: Float[np.ndarray, " R"], difference: float) -> float:
    """The fraction of resamples that deviate at least as much as the difference, two-sided; never 0."""
    if difference == 0:
        return 1.0
    return float((1 + np.sum(np.abs(deviations) >= abs(difference))) / (1 + len(deviations)))


def _generator(*index: int) -> np.random.Generator:
    """A random generator seeded as sacreBLEU's, with a different stream for each index."""
    seed = _seed()
    return np.random.default_rng(None if seed == "none" else [int(seed), *index])


def _seed() -> str:
    return os.environ.get("SACREBLEU_SEED", "12345").lower()
