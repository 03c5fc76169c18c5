"""Beam search over any model: it knows two functions, `step` and `select` (see `search.py`), and no more.

In each step the W live hypotheses of a sentence have W · V continuations. An end counts when it is among the best K of
these; the best K that do not end live on. So a beam of 1 is greedy decoding, and one as wide as all there is finds the
best text there is. The search of a sentence ends when no live hypothesis can come to be among its best.

Dimensions: N sentences, K beam, W live hypotheses (K, or all there are), V outputs, T tokens said, F ended
hypotheses kept, M candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.search import C, Hypothesis, Rules, Select, Step, Stops, hypothesis, penalty, reason


@dataclass(frozen=True)
class Beams:
    """The state of a search, for the sentences that still go on."""

    sentence: Int[Tensor, " N"]
    """which of the inputs"""
    limit: Int[Tensor, " N"]
    """the most tokens it may have"""
    said: Int[Tensor, "N W T"]
    """what each live hypothesis has said"""
    score: Float[Tensor, "N W"]
    """sum of its log-probabilities; -inf where there are fewer"""
    ended: Int[Tensor, "N F T"]
    """what each ended hypothesis has said, and -1 behind it"""
    ended_score: Float[Tensor, "N F"]
    """sum of its log-probabilities; -inf where there are fewer"""
    ended_rank: Float[Tensor, "N F"]
    """the same, length-penalised, best first"""

    @classmethod
    def of(cls, limits: Sequence[int], keep: int, like: Float[Tensor, "N V"]) -> "Beams":
        """Nothing said yet: one live hypothesis each, none ended."""
        n = len(limits)
        sentence = torch.arange(n, device=like.device)
        none = like.new_full((n, keep), -torch.inf, dtype=torch.promote_types(like.dtype, torch.float32))
        empty = sentence.new_empty(n, 1, 0)
        score = torch.zeros_like(none[:, :1])
        limit = torch.tensor(limits, device=like.device)
        return cls(sentence, limit, empty, score, empty.expand(n, keep, 0), none, none)

    def at(self, which: Int[Tensor, " n"]) -> "Beams":
        """These of the sentences alone."""
        return Beams(*(getattr(self, field.name)[which] for field in fields(self)))

    def finished(self, alpha: float) -> Bool[Tensor, " N"]:
        """Whether no live hypothesis can come to be among the best.

        Its log-probability can only fall from here, and the penalty that divides it is largest at the greatest length:
        what it has now, divided by that, is the most it can come to.
        """
        hope: Tensor = self.score.amax(1) / penalty(self.limit, alpha)  # [N]
        return ~(hope > self.ended_rank[:, -1])  # so of NaN too, which ends in an error


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
    options = rules.options
    aside: list[Beams] = []
    with torch.inference_mode():
        beams = Beams.of(limits, options.n_best, logits)
        while len(beams.sentence):
            n, width, _ = beams.said.shape
            sentence = beams.sentence.repeat_interleave(width)  # [N·W]
            log_probs = rules.log_probs(logits, beams.said.flatten(0, 1), sentence)  # [N·W, V]
            beams, parent = advance(beams, log_probs, rules, stops)
            finished = beams.finished(options.length_penalty).tolist()  # the one wait
            rows = torch.arange(n, device=parent.device)[:, None] * width + parent  # [N, W]
            if any(finished):
                going, gone = (_places(finished, value, rows) for value in (False, True))
                aside.append(beams.at(gone))
                beams, rows = beams.at(going), rows[going]
            if len(rows):
                same = not any(finished) and parent.size(1) == width
                cache = select(cache, rows.flatten(), same)
                logits = step(beams.said[..., -1].flatten(), cache)  # [N·W, V]
    return _hypotheses(aside, len(limits), rules, stops)


def advance(
    beams: Beams, log_probs: Float[Tensor, "R V"], rules: Rules, stops: Stops | None = None
) -> tuple[Beams, Int[Tensor, "N W"]]:
    """One token further; and which of the live hypotheses each new one goes on from."""
    (n, width, t), outputs, k = beams.said.shape, log_probs.size(-1), rules.options.beam
    totals = beams.score[..., None] + one_end(log_probs, rules.end).view(n, width, outputs)  # [N, W, V]
    score, index = best(totals.flatten(1), 2 * k)  # [N, M]: even if K of them end, K go on
    parent, token = index // outputs, index % outputs
    said = torch.cat([_along(beams.said, parent), token[..., None]], -1)  # [N, M, T + 1]
    over = torch.isin(token, rules.end) | (t + 1 >= beams.limit)[:, None]  # [N, M]
    if stops is not None:
        over |= torch.tensor([[stops(ids) for ids in row] for row in said.tolist()], device=over.device)
    ends_now = score[:, :k].masked_fill(~over[:, :k], -torch.inf)  # [N, K]
    ended = _merged(beams, said[:, :k], ends_now, rules.options.length_penalty)
    live = over.int().argsort(dim=1, stable=True)[:, :k]  # [N, W]: what goes on, best first
    score = score.masked_fill(over, -torch.inf).gather(1, live)
    return Beams(beams.sentence, beams.limit, _along(said, live), score, *ended), parent.gather(1, live)


def _merged(
    beams: Beams, said: Int[Tensor, "N K t"], score: Float[Tensor, "N K"], alpha: float
) -> tuple[Int[Tensor, "N F t"], Float[Tensor, "N F"], Float[Tensor, "N F"]]:
    """The best of the ended hypotheses and those that end now: what each said, its score and its rank."""
    keep = beams.ended.size(1)
    rank = torch.cat([beams.ended_rank, score / penalty(said.size(-1), alpha)], 1)  # [N, F + K]
    rank, order = (each[:, :keep] for each in rank.sort(dim=1, descending=True, stable=True))
    ended = torch.cat([F.pad(beams.ended, (0, 1), value=-1), said], 1)  # [N, F + K, T + 1]
    return _along(ended, order), torch.cat([beams.ended_score, score], 1).gather(1, order), rank


def one_end(log_probs: Float[Tensor, "R V"], end: Int[Tensor, " E"]) -> Float[Tensor, "R V"]:
    """Of several ids that end a text only the likeliest: they say the same."""
    if len(end) < 2:
        return log_probs
    value, which = log_probs[:, end].max(-1, keepdim=True)  # [R, 1]
    return log_probs.index_fill(-1, end, -torch.inf).scatter(-1, end[which], value)


def best(scores: Float[Tensor, "N X"], k: int) -> tuple[Float[Tensor, "N M"], Int[Tensor, "N M"]]:
    """The k highest and where they stand; of equal ones those that stand first, which `topk` alone does not promise."""
    k = min(k, scores.size(1))
    values, index = scores.topk(min(k + 1, scores.size(1)))
    last = values[:, k - 1 : k]  # [N, 1]
    if k < scores.size(1) and (scores.is_cuda or bool((last == values[:, k:]).any())):  # quicker there than to ask
        places = torch.arange(scores.size(1), 0, -1, dtype=torch.int32, device=scores.device)
        first = torch.where(scores == last, places, 0).topk(k).indices  # [N, k]: where the first equals of the last are
        above, equal = values[:, :k], scores.gather(1, first)
        above, equal = above.masked_fill(above == last, -torch.inf), equal.masked_fill(equal != last, -torch.inf)
        values = torch.cat([above, equal], 1)  # [N, 2k]
        index = torch.cat([index[:, :k], first], 1)
    index, order = index.sort(dim=1)  # by place, then stably by value
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :k], index.gather(1, order)[:, :k]


def _places(flags: list[bool], value: bool, like: Int[Tensor, "N W"]) -> Int[Tensor, " n"]:
    """Where the flags have this value."""
    return like.new_tensor([i for i, flag in enumerate(flags) if flag == value])


def _along(x: Int[Tensor, "N A t"], which: Int[Tensor, "N B"]) -> Int[Tensor, "N B t"]:
    """Of each sentence these hypotheses."""
    return x.gather(1, which[..., None].expand(-1, -1, x.size(-1)))


def _hypotheses(aside: list[Beams], sentences: int, rules: Rules, stops: Stops | None) -> list[list[Hypothesis]]:
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
