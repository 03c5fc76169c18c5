"""Beam search over any model: it knows two functions, `step` and `select` (see `search.py`), and no more.

In each step the W live hypotheses of a sentence have W · V continuations. An end counts when it is among the best K of
these; the best K that do not end live on. So a beam of 1 is greedy decoding, and one as wide as all there is finds the
best text there is. The search of a sentence ends when no live hypothesis can come to be among its best.

Dimensions: N sentences, K beam, W live hypotheses (K, or all there are), V outputs, T places for tokens said, F ended
hypotheses kept, M candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.options import Decoding
from regard.decoding.sampling import best, choose
from regard.decoding.search import C, Hypothesis, Rules, Select, Step, Stops, hypothesis, penalty, reason


@dataclass(frozen=True)
class Beams:
    """The state of a search, for the sentences that still go on. Its shapes stay the same from step to step."""

    tokens: Int[Tensor, ""]
    """how many each live hypothesis has said"""
    sentence: Int[Tensor, " N"]
    """which of the inputs"""
    limit: Int[Tensor, " N"]
    """the most tokens it may have"""
    said: Int[Tensor, "N W T"]
    """what each live hypothesis has said, at the right; -1 before it"""
    score: Float[Tensor, "N W"]
    """sum of its log-probabilities; -inf where there are fewer"""
    ended: Int[Tensor, "N F T"]
    """what each ended hypothesis has said"""
    ended_score: Float[Tensor, "N F"]
    """sum of its log-probabilities; -inf where there are fewer"""
    ended_rank: Float[Tensor, "N F"]
    """the same, length-penalised, best first"""

    @classmethod
    def of(cls, limits: Sequence[int], options: Decoding, like: Tensor, width: int = 1, places: int = 0) -> "Beams":
        """Nothing said yet, none ended: one live hypothesis each, or so many of which one counts; with places for the
        longest, or more."""
        n, keep, longest = len(limits), options.n_best, max(places, *limits)
        sentence = torch.arange(n, device=like.device)
        none = like.new_full((n, keep), -torch.inf, dtype=torch.promote_types(like.dtype, torch.float32))
        score = none.new_full((n, width), -torch.inf)
        score[:, 0] = 0.0
        said, ended = (sentence.new_full((n, many, longest), -1) for many in (width, keep))
        limit = torch.tensor(limits, device=like.device)
        return cls(torch.zeros_like(sentence[0]), sentence, limit, said, score, ended, none, none.clone())

    def at(self, which: Int[Tensor, " n"]) -> "Beams":
        """These of the sentences alone."""
        of_each = {field.name: getattr(self, field.name)[which] for field in fields(self) if field.name != "tokens"}
        return replace(self, **of_each)

    def finished(self, alpha: float, n_best: Int[Tensor, ""] | None = None) -> Bool[Tensor, " N"]:
        """Whether no live hypothesis can come to be among the best: the best `n_best`, or all that are kept.

        Its log-probability can only fall from here, and the penalty that divides it is largest at the greatest length:
        what it has now, divided by that, is the most it can come to.
        """
        hope: Tensor = self.score.amax(1) / penalty(self.limit.to(self.score), alpha)  # [N]
        last = self.ended_rank[:, -1] if n_best is None else self.ended_rank.index_select(1, n_best[None] - 1)[:, 0]
        return (hope <= last) | (self.tokens >= self.limit)


def beam_search(
    logits: Float[Tensor, "N V"],
    cache: C,
    step: Step[C],
    select: Select[C],
    rules: Rules,
    limits: Sequence[int],
    stops: Stops | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each sentence, best first; `rules.options` says how wide, how many, how penalised.

    `limits`: the most tokens for each sentence; a hypothesis that has so many counts as it is. Sentences whose search
    has ended leave the batch. The host waits for the device once per token.
    """
    aside: list[Beams] = []
    with torch.inference_mode():
        beams = Beams.of(limits, rules.options, logits)
        while len(beams.sentence):
            raise_if_cancelled()
            beams, rows = advance(beams, logits, rules, stops)
            finished = beams.finished(rules.options.length_penalty).tolist()  # the one wait
            going = None
            if any(finished):
                going, gone = (_places(finished, value, rows) for value in (False, True))
                aside.append(beams.at(gone))
                beams, rows = beams.at(going), rows[going]
            if len(rows):
                cache = select(cache, rows.flatten(), going)
                logits = step(beams.said[..., -1].flatten(), cache)  # [N·W, V]
    return hypotheses(aside, len(limits), rules, stops)


def advance(
    beams: Beams,
    logits: Float[Tensor, "R V"],
    rules: Rules,
    stops: Stops | None = None,
    draws: Float[Tensor, "N L"] | None = None,
) -> tuple[Beams, Int[Tensor, "N W"]]:
    """One token further; and which of the rows each live hypothesis goes on from.

    A beam of 1 takes the best token or, given `draws`, random numbers for each sentence's tokens, the one they draw.
    """
    (n, width), outputs, k = beams.score.shape, logits.size(-1), rules.options.beam
    sentence = beams.sentence.repeat_interleave(width)  # [N·W]
    log_probs = rules.log_probs(logits, beams.said.flatten(0, 1), sentence, beams.tokens)  # [N·W, V]
    if k == 1:
        numbers = None if draws is None else draws[beams.sentence].index_select(1, beams.tokens[None])[:, 0]  # [N]
        token = choose(log_probs, rules.options, numbers)[:, None]  # [N, 1]
        score, parent = beams.score + log_probs.gather(1, token), torch.zeros_like(token)
    else:
        totals = beams.score[..., None] + one_end(log_probs, rules.end).view(n, width, outputs)  # [N, W, V]
        score, index = best(totals.flatten(1), 2 * k)  # [N, M]: even if K of them end, K go on
        parent, token = index // outputs, index % outputs
    said = torch.cat([_along(beams.said, parent), token[..., None]], -1)[..., 1:]  # [N, M, T]
    tokens = beams.tokens + 1
    over = torch.isin(token, rules.end) | (tokens >= beams.limit)[:, None]  # [N, M]
    if stops is not None:
        texts = [[[id_ for id_ in ids if id_ >= 0] for ids in row] for row in said.tolist()]
        over |= torch.tensor([[stops(ids) for ids in row] for row in texts], device=over.device)
    ends_now = score[:, :k].masked_fill(~over[:, :k], -torch.inf)  # [N, K]
    ended = _merged(beams, said[:, :k], ends_now, penalty(tokens.to(score), rules.options.length_penalty))
    live = over.int().argsort(dim=1, stable=True)[:, :k]  # [N, W]: what goes on, best first
    score = score.masked_fill(over, -torch.inf).gather(1, live)
    rows = torch.arange(n, device=parent.device)[:, None] * width + parent.gather(1, live)  # [N, W]
    return Beams(tokens, beams.sentence, beams.limit, _along(said, live), score, *ended), rows


def _merged(
    beams: Beams, said: Int[Tensor, "N K T"], score: Float[Tensor, "N K"], penalised: Float[Tensor, ""]
) -> tuple[Int[Tensor, "N F T"], Float[Tensor, "N F"], Float[Tensor, "N F"]]:
    """The best of the ended hypotheses and those that end now: what each said, its score and its rank."""
    keep = beams.ended.size(1)
    rank = torch.cat([beams.ended_rank, score / penalised], 1)  # [N, F + K]
    rank, order = (each[:, :keep] for each in rank.sort(dim=1, descending=True, stable=True))
    ended = torch.cat([beams.ended, said], 1)  # [N, F + K, T]
    return _along(ended, order), torch.cat([beams.ended_score, score], 1).gather(1, order), rank


def one_end(log_probs: Float[Tensor, "R V"], end: Int[Tensor, " E"]) -> Float[Tensor, "R V"]:
    """Of several ids that end a text only the likeliest: they say the same."""
    if len(end) < 2:
        return log_probs
    value, which = log_probs[:, end].max(-1, keepdim=True)  # [R, 1]
    return log_probs.index_fill(-1, end, -torch.inf).scatter(-1, end[which], value)


def _places(flags: list[bool], value: bool, like: Int[Tensor, "N W"]) -> Int[Tensor, " n"]:
    """Where the flags have this value."""
    return like.new_tensor([i for i, flag in enumerate(flags) if flag == value])


def _along(x: Int[Tensor, "N A t"], which: Int[Tensor, "N B"]) -> Int[Tensor, "N B t"]:
    """Of each sentence these hypotheses."""
    return x.gather(1, which[..., None].expand(-1, -1, x.size(-1)))


def hypotheses(aside: list[Beams], sentences: int, rules: Rules, stops: Stops | None) -> list[list[Hypothesis]]:
    """The ended hypotheses of all sentences, in the order of the inputs."""
    found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    end = set(rules.end.tolist())
    for beams in aside:
        parts = (beams.sentence, beams.score.amax(1), beams.ended, beams.ended_score, beams.ended_rank)
        for sentence, live, texts, scores, ranks in zip(*(part.tolist() for part in parts), strict=True):
            if not scores[0] > -torch.inf or math.isnan(live):
                raise rules.impossible(sentence, scores[0] + live)
            for padded, score, rank in zip(texts, scores, ranks, strict=True):
                if score > -torch.inf:
                    ids = [id_ for id_ in padded if id_ >= 0]
                    found[sentence].append(hypothesis(ids, score, rank, reason(ids, end, stops) or "length"))
    return found
