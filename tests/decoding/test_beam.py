"""Beam search against all there is, and against a slow reference; it knows no model, so none is used here."""

import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.config import SpecialIds
from regard.decoding.beam import BeamState, advance, beam_search
from regard.decoding.greedy import collect_hypotheses, generate_tokens
from regard.decoding.options import Decoding
from regard.decoding.sampling import stable_top_k
from regard.decoding.search import Hypothesis, TokenRules

Text = tuple[int, ...]


@dataclass
class Tables:
    """A model of no kind: the logits behind each history are drawn once, from the sentence's number and the history."""

    vocabulary: int
    seed: int = 0
    coarse: bool = False
    """logits from a few values alone, so that many scores are equal"""
    steps: list[int] = field(default_factory=list)
    """rows of each step"""

    def logits(self, sentence: int, text: Text) -> list[float]:
        generator = random.Random(f"{self.seed} {sentence} {text}")
        if self.coarse:
            return [float(generator.randrange(2)) for _ in range(self.vocabulary)]
        return [generator.gauss(0, 1.5) for _ in range(self.vocabulary)]

    def log_probs(self, sentence: int, text: Text) -> list[float]:
        return torch.tensor(self.logits(sentence, text), dtype=torch.float64).log_softmax(-1).tolist()

    def start(self, sentences: int) -> tuple[Tensor, list[tuple[int, Text]]]:
        cache: list[tuple[int, Text]] = [(sentence, ()) for sentence in range(sentences)]
        return self._rows(cache), cache

    def step(self, tokens: Tensor, cache: list[tuple[int, Text]]) -> Tensor:
        self.steps.append(len(cache))
        cache[:] = [(sentence, (*text, token)) for (sentence, text), token in zip(cache, tokens.tolist(), strict=True)]
        return self._rows(cache)

    def select(self, cache: list[tuple[int, Text]], rows: Tensor, sentences: Tensor | None) -> list[tuple[int, Text]]:
        """As a real cache has it: the rows of a sentence stand together, as many for each, in the sentences' order."""
        picked = [cache[row] for row in rows.tolist()]
        there = list(dict.fromkeys(sentence for sentence, _ in cache))
        left = there if sentences is None else [there[place] for place in sentences.tolist()]
        width = len(picked) // len(left)
        assert [sentence for sentence, _ in picked] == [sentence for sentence in left for _ in range(width)]
        return picked

    def _rows(self, cache: list[tuple[int, Text]]) -> Tensor:
        return torch.tensor([self.logits(*row) for row in cache], dtype=torch.float64)

    def search(self, options: Decoding, limits: list[int], **more: object) -> list[list[Hypothesis]]:
        stops = more.pop("stops", None)
        rules = TokenRules.of(SpecialIds(**more), options, self.vocabulary, [[]] * len(limits))  # type: ignore[arg-type]
        return beam_search(*self.start(len(limits)), self.step, self.select, rules, limits, stops)  # type: ignore[arg-type]


def lp(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def exhaustive(
    tables: Tables, sentence: int, end: Text, limit: int, alpha: float, least: int = 0
) -> list[tuple[float, float, Text]]:
    """Every text there is: rank, score and what is said; best first."""
    words = [id_ for id_ in range(tables.vocabulary) if id_ not in end]
    found = []
    for length in range(limit + 1):
        for text in itertools.product(words, repeat=length):
            score = sum(tables.log_probs(sentence, text[:i])[word] for i, word in enumerate(text))
            if length == limit:
                found.append((score / lp(length, alpha), score, text))
            elif length >= least and end:
                score += max(tables.log_probs(sentence, text)[id_] for id_ in end)
                found.append((score / lp(length + 1, alpha), score, text))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.5])
@pytest.mark.parametrize(("vocabulary", "limit", "end"), [(3, 5, (0,)), (5, 3, (2,)), (4, 4, (1, 3)), (3, 3, ())])
def test_an_exhaustive_beam_finds_what_enumeration_finds(vocabulary: int, limit: int, end: Text, alpha: float) -> None:
    tables = Tables(vocabulary)
    options = Decoding(beam=vocabulary**limit, n_best=5, length_penalty=alpha)
    limits = [limit, limit - 1, limit]
    found = tables.search(options, limits, end=end)
    for sentence, hypotheses in enumerate(found):
        wanted = exhaustive(tables, sentence, end, limits[sentence], alpha)[:5]
        assert [tuple(each.ids) for each in hypotheses] == [text for _, _, text in wanted]
        for each, (rank, score, text) in zip(hypotheses, wanted, strict=True):
            assert math.isclose(each.score, score, rel_tol=1e-12)
            assert math.isclose(each.penalised, rank, rel_tol=1e-12)
            assert each.reason == ("length" if len(text) == limits[sentence] else "end")


@given(seed=st.integers(0, 10_000), least=st.integers(1, 4), alpha=st.sampled_from([0.0, 0.6, 1.5]))
def test_min_tokens_is_respected(seed: int, least: int, alpha: float) -> None:
    tables = Tables(3, seed)
    found = tables.search(Decoding(beam=81, length_penalty=alpha, min_tokens=least), [4], end=(0,))[0][0]
    assert tuple(found.ids) == exhaustive(tables, 0, (0,), 4, alpha, least)[0][2]
    assert len(found.ids) >= least


def slow(tables: Tables, sentence: int, options: Decoding, limit: int, end: int, never: Text = ()) -> list[Hypothesis]:
    """The same search in plain lists, without any early end: every step is made, up to the limit."""
    live: list[tuple[float, Text]] = [(0.0, ())]
    ended: list[tuple[float, float, Text]] = []
    for length in range(1, limit + 1):
        candidates = []
        for place, (score, text) in enumerate(live):
            for word, log_prob in enumerate(tables.log_probs(sentence, text)):
                if word not in never:
                    candidates.append((-(score + log_prob), place, word, (*text, word)))
        candidates.sort()
        for negative, _, word, text in candidates[: options.beam]:
            if word == end or length == limit:
                ended.append((-negative / lp(length, options.length_penalty), -negative, text))
        live = [(-negative, text) for negative, _, word, text in candidates if word != end][: options.beam]
    ended.sort(key=lambda each: -each[0])
    return [
        Hypothesis(list(text[:-1] if text[-1] == end else text), score, rank, "end" if text[-1] == end else "length")
        for rank, score, text in ended[: options.n_best]
    ]


@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(3, 9),
    beam=st.integers(2, 6),  # a beam of 1 is greedy: see below
    n_best=st.integers(1, 6),
    alpha=st.sampled_from([0.0, 0.3, 0.6, 1.0, 3.0]),
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    coarse=st.booleans(),
)
def test_beam_search_equals_a_slow_reference(
    seed: int, vocabulary: int, beam: int, n_best: int, alpha: float, limits: list[int], coarse: bool
) -> None:
    """All at once and with early ends; also where most scores are equal, and the order decides."""
    tables = Tables(vocabulary, seed, coarse)
    options = Decoding(beam=beam, n_best=min(n_best, beam), length_penalty=alpha)
    found = tables.search(options, limits, end=(1,), suppressed=(2,))
    for sentence, hypotheses in enumerate(found):
        wanted = slow(tables, sentence, options, limits[sentence], end=1, never=(2,))
        for ours, theirs in zip(hypotheses, wanted, strict=True):
            assert math.isclose(ours.score, theirs.score, rel_tol=1e-12)
            assert math.isclose(ours.penalised, theirs.penalised, rel_tol=1e-12)
        if not coarse:  # sums of equal numbers in another order may differ in the last bit
            assert [(each.ids, each.reason) for each in hypotheses] == [(each.ids, each.reason) for each in wanted]
        ranks = [each.penalised for each in hypotheses]
        assert ranks == sorted(ranks, reverse=True)
        assert len({tuple(each.ids) for each in hypotheses}) == len(hypotheses)
        assert not any(2 in each.ids for each in hypotheses)


@given(seed=st.integers(0, 10_000), limits=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_beam_of_one_is_greedy(seed: int, limits: list[int]) -> None:
    tables, options = Tables(6, seed), Decoding()
    rules = TokenRules.of(SpecialIds(end=(0,)), options, 6, [[]] * len(limits))
    walked = collect_hypotheses(
        generate_tokens(*tables.start(len(limits)), tables.step, tables.select, rules, limits), len(limits), 0.6
    )
    for (beam,), greedy in zip(tables.search(options, limits, end=(0,)), walked, strict=True):
        assert beam.ids == greedy.ids
        assert beam.reason == greedy.reason
        assert math.isclose(beam.score, greedy.score)
        assert math.isclose(beam.penalised, greedy.penalised)


def test_finished_inputs_leave_the_batch() -> None:
    tables = Tables(6)
    tables.search(Decoding(beam=3), [2, 4, 9, 9], end=())
    assert tables.steps == [12, 9, 9, 6, 6, 6, 6, 6]


def test_the_search_stops_when_no_live_hypothesis_can_win() -> None:
    """Once an end with nearly all probability is found, no live hypothesis can come up to it."""
    tables = Sure(4)
    found = tables.search(Decoding(beam=2), [50], end=(0,))
    assert found[0][0].ids == [1, 2]
    assert len(tables.steps) == 2


def test_a_long_text_may_still_win_under_a_large_penalty() -> None:
    """A bound at the present length, and not at the greatest, would have stopped the search too early."""
    tables, options = LateBloomer(3), Decoding(beam=2, length_penalty=3.0)
    found = tables.search(options, [8], end=(0,))[0][0]
    assert found.ids == [1] * 8
    short = math.log(0.5)
    assert found.score < short, "it is less likely than the short one"
    assert found.penalised > short


class Sure(Tables):
    """Says 1, 2 and the end, and is nearly certain of it."""

    def logits(self, sentence: int, text: Text) -> list[float]:  # noqa: ARG002
        wanted = [1, 2, 0][len(text)] if len(text) < 3 else 3
        return [9.0 if id_ == wanted else 0.0 for id_ in range(self.vocabulary)]


class LateBloomer(Tables):
    """Half a chance to end at once; whoever does not, is slow to begin and then certain to say 1."""

    def logits(self, sentence: int, text: Text) -> list[float]:  # noqa: ARG002
        chances = [0.5, 0.3, 0.2] if not text else [1e-9, 1 - 2e-9, 1e-9]
        return [math.log(chance) for chance in chances]


@pytest.mark.parametrize("k", [1, 2, 5, 8, 9, 20])
@pytest.mark.parametrize("values", [1, 2, 4, 100])
def test_top_k_prefers_the_first_of_equal_scores(k: int, values: int) -> None:
    scores = torch.randint(0, values, (50, 9)).double()
    scores[scores == 0] = -torch.inf
    ours, places = stable_top_k(scores, k)
    theirs, order = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(ours, theirs[:, :k])
    alive = ours > -torch.inf
    assert torch.equal(places[alive], order[:, :k][alive])


def test_a_stop_ends_a_hypothesis() -> None:
    tables = Tables(5)
    found = tables.search(Decoding(beam=4, n_best=4), [6], end=(0,), stops=lambda ids: ids[-1] == 3)
    assert {each.reason for each in found[0]} >= {"stop"}
    for each in found[0]:
        assert (each.reason == "stop") == (3 in each.ids)
        assert 3 not in each.ids[:-1]


def test_the_state_has_the_documented_shapes() -> None:
    """W grows from 1 to what the vocabulary gives, and then to the beam."""
    options = Decoding(beam=5, n_best=2)
    rules = TokenRules.of(SpecialIds(end=(0,)), options, 3, [[], []])
    beams, widths = BeamState.initial([9, 9], options, torch.zeros(2, 3)), []
    for _ in range(3):
        beams, rows = advance(beams, torch.randn(beams.live_scores.numel(), 3), rules)
        widths.append(beams.live_tokens.shape)
        assert rows.shape == beams.live_scores.shape
    assert widths == [(2, 3, 9), (2, 5, 9), (2, 5, 9)]
    assert beams.finished_tokens.shape == (2, 2, 9)
    assert (beams.live_tokens[..., :-3] == -1).all()
    assert (beams.live_tokens[..., -3:] >= 0).all()


def test_no_allowed_token_is_an_error() -> None:
    with pytest.raises(ValueError, match="input 0: no token is allowed, with 3 ids suppressed"):
        Tables(3).search(Decoding(beam=2), [4], suppressed=(0, 1, 2))
    with pytest.raises(ValueError, match=r"non-finite values \(NaN\) for input 0"):
        Broken(3).search(Decoding(beam=2), [4], end=(0,))


class Broken(Tables):
    """As a network is whose training went astray."""

    def logits(self, sentence: int, text: Text) -> list[float]:  # noqa: ARG002
        return [math.nan] * self.vocabulary
