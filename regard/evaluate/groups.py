"""Systems of several runs beside each other: means over runs, and how far they hold for other sentences and seeds.

Dimensions: R resamples, N sentences, K counts of a sentence that a metric is made of, S runs of a system.

A hierarchical bootstrap. Sentences are drawn R times, the same for every run of every system, so that all are always
scored on one text. For each such draw the runs of a system are drawn too, whatever is drawn of the others. Draws from
few runs spread too little, by √((S-1)/S), which is made up for. That three runs tell a spread only roughly is not:
where seeds matter as much as sentences do, two equal systems of three runs have p < 0.05 in some 7 of 100 comparisons.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.evaluate.scores import (
    RESAMPLES,
    Compared,
    Comparison,
    References,
    Score,
    bleu_metric,
    check_systems,
    chrf_metric,
    paired,
    scored,
)


@dataclass(frozen=True)
class Runs:
    """A system by one metric: the score of each run, on the whole set and on the same draws of sentences."""

    metric: str
    scores: Float[np.ndarray, " S"]
    resampled: Float[np.ndarray, "S R"]

    def drawn(self, rng: np.random.Generator) -> Float[np.ndarray, " R"]:
        """The mean score on each draw of sentences, of runs that are drawn too; of one run, its own."""
        runs, resamples = self.resampled.shape
        means: Float[np.ndarray, " R"] = self.resampled.mean(0)
        if runs == 1:
            return means
        chosen = rng.integers(runs, size=(runs, resamples))
        moved = np.take_along_axis(self.resampled, chosen, axis=0).mean(0) - means
        widened: Float[np.ndarray, " R"] = means + moved * np.sqrt(runs / (runs - 1))
        return widened


def paired_groups(systems: Mapping[str, Sequence[Sequence[str]]], references: References) -> tuple[Comparison, ...]:
    """Each system against the first by BLEU and chrF2++, cased: a system is the outputs of each of its runs.

    Two systems of one run each are compared by sacreBLEU's approximate randomization, as in `paired`; as soon as one
    has several, by the bootstrap above: p is how often it moves the difference of the means as far as that is from 0.
    """
    lists = check_systems(systems, references)
    alone = {name: runs[0] for name, runs in systems.items() if len(runs) == 1}
    is_alone = next(iter(systems)) in alone
    singles = paired(alone, lists) if is_alone and len(alone) > 1 else (None, None)
    makers = (bleu_metric, chrf_metric)
    return tuple(_compare(make, systems, lists, known) for make, known in zip(makers, singles, strict=True))


def draw_sentences(count: int) -> Float[np.ndarray, "R N"]:
    """How often each of `count` sentences is in each of the draws."""
    chances = np.full(count, 1 / count)
    return _generator().multinomial(count, chances, size=RESAMPLES).astype(np.float64)


def score_runs(
    metric: Any, runs: Sequence[Sequence[str]], lists: Sequence[Sequence[str]], draws: Float[np.ndarray, "R N"]
) -> Runs:
    """Score each run on the whole set and on draws of its sentences: what matches is counted once for each sentence."""
    metric._ref_cache = metric._ref_cache or metric._cache_references(lists)  # once for all systems
    scores, resampled = [], []
    for outputs in runs:
        counts = np.array(metric._extract_corpus_statistics(outputs, None), dtype=np.float64)  # [N, K]
        whole = metric._compute_score_from_stats(counts.sum(0).tolist())
        scores.append(float(whole.score))
        sums = (draws @ counts).tolist()  # [R, K]
        resampled.append([float(metric._compute_score_from_stats(each).score) for each in sums])
    return Runs(str(whole.name), np.array(scores), np.array(resampled))


def _compare(
    make: Callable[[], Any],
    systems: Mapping[str, Sequence[Sequence[str]]],
    lists: Sequence[Sequence[str]],
    singles: Comparison | None,
) -> Comparison:
    """By one metric; `singles` are the comparisons of systems of one run that were made already."""
    known = {each.system: each for each in singles.systems} if singles else {}
    if singles and len(known) == len(systems):
        return singles
    metric, draws = make(), draw_sentences(len(lists[0]))
    compared: list[Compared] = []
    base: Float[np.ndarray, " R"] | None = None
    for place, (name, outputs) in enumerate(systems.items()):
        if base is not None and name in known:
            compared.append(known[name])
            continue
        runs = score_runs(metric, outputs, lists, draws)
        drawn = runs.drawn(_generator(place))
        found = _of_several(name, metric, runs, drawn) if len(outputs) > 1 else _of_one(name, make(), outputs[0], lists)
        if base is None:
            base = drawn
        else:
            difference = found.score.score - compared[0].score.score
            p_value = _p_value(drawn - base, difference)
            found = replace(found, difference=difference, p_value=p_value, test="bootstrap")
        compared.append(found)
    return Comparison(compared[0].score.name, singles.test if singles else "", tuple(compared))


def _of_one(name: str, metric: Any, outputs: Sequence[str], lists: Sequence[Sequence[str]]) -> Compared:
    score = scored(metric, outputs, lists)
    return Compared(name, score, 0.0, None, None, (score.score,))


def _of_several(name: str, metric: Any, runs: Runs, drawn: Float[np.ndarray, " R"]) -> Compared:
    """The mean of the runs, and the middle 95 of 100 draws."""
    low, high = np.clip(np.percentile(drawn, (2.5, 97.5)), 0, 100)
    mean, signature = float(runs.scores.mean()), str(metric.get_signature())
    score = Score(runs.metric, mean, float(drawn.mean()), float(low), float(high), signature)
    each = tuple(map(float, runs.scores))
    return Compared(name, score, 0.0, None, None, each, float(runs.scores.std(ddof=1)))


def _p_value(differences: Float[np.ndarray, " R"], found: float) -> float:
    """How often draws move the difference as far as it is from 0, two-sided; never 0, for draws are finite."""
    if found == 0:
        return 1.0
    moved = np.abs(differences - differences.mean())
    return float((1 + np.sum(moved >= abs(found))) / (1 + len(moved)))


def _generator(*place: int) -> np.random.Generator:
    """Seeded as sacreBLEU's are, and another for each place."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    return np.random.default_rng(None if seed.lower() == "none" else [int(seed), *place])
