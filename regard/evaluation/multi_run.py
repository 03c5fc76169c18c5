"""Systems of several runs beside each other: means over runs, and how far they hold for other sentences and seeds.

Dimensions: R resamples, N sentences, K counts of a sentence that a metric is made of, S runs of a system.

A hierarchical bootstrap. Sentences are drawn R times, the same for every run of every system, so that all are always
scored on one text. For each such draw the runs of a system are drawn too, whatever is drawn of the others. Draws from
few runs spread too little, by √((S-1)/S), which is made up for. How much seeds matter is itself known roughly alone
from few runs, so what draws move is widened as Student's t is wider than a normal distribution, with Welch's and
Satterthwaite's degrees of freedom: hardly where sentences matter most, a lot where a few runs do.

How often two equal systems have p < 0.05, in 4,000 comparisons where sentences and seeds add up, both normally
distributed; in brackets what it would be without the widening:

| runs | seeds spread the difference a third as much as sentences | as much | four times as much |
|---|---|---|---|
| 2 and 2 | 4.9 % (4.7 %) | 4.9 % (7.9 %) | 6.1 % (16.9 %) |
| 3 and 3 | 5.6 % (4.9 %) | 5.4 % (6.5 %) | 5.5 % (12.0 %) |
| 5 and 5 | 5.2 % (4.8 %) | 4.9 % (6.2 %) | 4.9 % (8.5 %) |
| 2 and 3 | 4.9 % (4.5 %) | 4.7 % (6.8 %) | 6.6 % (15.8 %) |
| 1 and 3 | 5.9 % (6.4 %) | 11.7 % (13.0 %) | 21.5 % (36.4 %) |

Of one run nothing is known of other seeds, which the last row shows, and two tell so little that they are no ground to
call a difference significant: that takes `ENOUGH` runs of either, or one run of each, of which no more is claimed.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.evaluation.metrics import (
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

ENOUGH = 3
"""runs from which on other seeds are spoken of"""


@dataclass(frozen=True)
class Runs:
    """A system by one metric: the score of each run, on the whole set and on the same draws of sentences."""

    metric: str
    scores: Float[np.ndarray, " S"]
    resampled: Float[np.ndarray, "S R"]

    def drawn(self, rng: np.random.Generator) -> "Drawn":
        """What draws of sentences and of runs make of the mean."""
        runs, resamples = self.resampled.shape
        means: Float[np.ndarray, " R"] = self.resampled.mean(0)
        if runs == 1:
            return Drawn(means, np.zeros(resamples), ())
        chosen = rng.integers(runs, size=(runs, resamples))
        moved = np.take_along_axis(self.resampled, chosen, axis=0).mean(0) - means
        return Drawn(means, moved * np.sqrt(runs / (runs - 1)), ((float(self.scores.var(ddof=1)) / runs, runs - 1),))


@dataclass(frozen=True)
class Drawn:
    """A mean over runs, or a difference of such means, as draws have it."""

    by_sentences: Float[np.ndarray, " R"]
    """on each draw of sentences"""
    by_runs: Float[np.ndarray, " R"]
    """how far the draw of runs that goes with it moves that; nothing of one run"""
    parts: tuple[tuple[float, int], ...]
    """of each system that has several runs: the variance of its mean over seeds, and by how many runs but one"""

    def __sub__(self, other: "Drawn") -> "Drawn":
        """The difference, on the same draws of sentences."""
        moved = self.by_runs - other.by_runs
        return Drawn(self.by_sentences - other.by_sentences, moved, (*self.parts, *other.parts))

    def moved(self, sentences: int, rng: np.random.Generator) -> Float[np.ndarray, " R"]:
        """How far each draw is from their mean, widened for what so few sentences and runs do not tell."""
        both = self.by_sentences + self.by_runs
        both = both - both.mean()
        freedom = self.freedom(sentences)
        widened: Float[np.ndarray, " R"] = both * np.sqrt(freedom / rng.chisquare(freedom, len(both)))
        return widened

    def freedom(self, sentences: int) -> float:
        """Degrees of freedom of the whole variance, by Welch and Satterthwaite."""
        parts = ((float(self.by_sentences.var()), max(1, sentences - 1)), *self.parts)
        weight = sum(variance**2 / known for variance, known in parts)
        return sum(variance for variance, _ in parts) ** 2 / weight if weight else float(max(1, sentences - 1))


def paired_groups(systems: Mapping[str, Sequence[Sequence[str]]], references: References) -> tuple[Comparison, ...]:
    """Each system against the first by BLEU and chrF2++, cased: a system is the outputs of each of its runs.

    Two systems of one run each are compared by sacreBLEU's approximate randomization, as in `paired`; as soon as one
    has several, by the bootstrap above: p is how often it moves the difference of the means as far as that is from 0.
    Whether that may be called significant, `enough_runs` says.
    """
    lists = check_systems(systems, references)
    alone = {name: runs[0] for name, runs in systems.items() if len(runs) == 1}
    is_alone = next(iter(systems)) in alone
    singles = paired(alone, lists) if is_alone and len(alone) > 1 else (None, None)
    makers = (bleu_metric, chrf_metric)
    return tuple(_compare(make, systems, lists, known) for make, known in zip(makers, singles, strict=True))


def enough_runs(one: Compared, other: Compared) -> bool:
    """Whether two systems have the runs that it takes to call a difference significant: each enough, or each one."""
    counts = {len(one.runs), len(other.runs)}
    return counts == {1} or min(counts) >= ENOUGH


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
    metric, sentences = make(), len(lists[0])
    draws = draw_sentences(sentences)
    compared: list[Compared] = []
    base: Drawn | None = None
    for place, (name, outputs) in enumerate(systems.items()):
        if base is not None and name in known:
            compared.append(known[name])
            continue
        rng, runs = _generator(place), score_runs(metric, outputs, lists, draws)
        drawn = runs.drawn(rng)
        if len(outputs) > 1:
            found = _of_several(name, metric, runs, drawn.moved(sentences, rng))
        else:
            found = _of_one(name, make(), outputs[0], lists)
        if base is None:
            base = drawn
        else:
            found = _against(compared[0], found, (drawn - base).moved(sentences, rng))
        compared.append(found)
    return Comparison(compared[0].score.name, singles.test if singles else "", tuple(compared))


def _of_one(name: str, metric: Any, outputs: Sequence[str], lists: Sequence[Sequence[str]]) -> Compared:
    score = scored(metric, outputs, lists)
    return Compared(name, score, 0.0, None, None, (score.score,))


def _of_several(name: str, metric: Any, runs: Runs, moved: Float[np.ndarray, " R"]) -> Compared:
    """The mean of the runs, and the middle 95 of 100 draws around it."""
    mean, centre = float(runs.scores.mean()), float(runs.resampled.mean())
    low, high = np.clip(centre + np.percentile(moved, (2.5, 97.5)), 0, 100)
    score = Score(runs.metric, mean, centre, float(low), float(high), _signature(metric))
    return Compared(name, score, 0.0, None, None, tuple(map(float, runs.scores)), float(runs.scores.std(ddof=1)))


def _signature(metric: Any) -> str:
    """sacreBLEU's, with the draws that were made in its way, but here."""
    signature = metric.get_signature()
    signature.update("bs", RESAMPLES)
    signature.update("seed", _seed())
    return str(signature)


def _against(first: Compared, other: Compared, moved: Float[np.ndarray, " R"]) -> Compared:
    difference = other.score.score - first.score.score
    return replace(other, difference=difference, p_value=p_value(moved, difference), test="bootstrap")


def p_value(moved: Float[np.ndarray, " R"], found: float) -> float:
    """How often draws move the difference as far as it is from 0, two-sided; never 0, for draws are finite."""
    return 1.0 if found == 0 else float((1 + np.sum(np.abs(moved) >= abs(found))) / (1 + len(moved)))


def _generator(*place: int) -> np.random.Generator:
    """Seeded as sacreBLEU's are, and another for each place."""
    seed = _seed()
    return np.random.default_rng(None if seed == "none" else [int(seed), *place])


def _seed() -> str:
    return os.environ.get("SACREBLEU_SEED", "12345").lower()
