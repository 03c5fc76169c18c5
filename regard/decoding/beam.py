"""Beam search over any model: it knows two functions, `step` and `select` (see `search.py`), and nothing else.

In each step, the W live hypotheses of an input have W · V continuations. An end token counts if it is among the best K
of these; the best K continuations that do not end stay live. A beam of 1 is therefore greedy decoding, and a beam as
wide as the number of possible texts finds the best one. The search of an input stops when no live hypothesis can still
enter its n best.

Dimensions: N inputs, K beam, W live hypotheses per input (at most K), V outputs, T maximum number of generated tokens,
F finished hypotheses kept per input, M candidates, L random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.options import Decoding
from regard.decoding.sampling import choose_tokens, stable_top_k
from regard.decoding.search import (
    Hypothesis,
    Select,
    State,
    Step,
    StopCheck,
    TokenRules,
    finish_reason,
    length_penalty,
    make_hypothesis,
)


@dataclass(frozen=True)
class BeamState:
    """The state of a search, for the inputs that are not finished. All shapes stay constant from step to step."""

    length: Int[Tensor, ""]
    """Number of tokens that each live hypothesis has."""
    inputs: Int[Tensor, " N"]
    """Number of each input, as searches that are finished leave the batch."""
    max_tokens: Int[Tensor, " N"]
    """Maximum number of tokens of each input's hypotheses."""
    live_tokens: Int[Tensor, "N W T"]
    """Tokens of the live hypotheses, aligned to the right; -1 on the left."""
    live_scores: Float[Tensor, "N W"]
    """Sums of log-probabilities; -inf where there are fewer hypotheses."""
    finished_tokens: Int[Tensor, "N F T"]
    """Tokens of the finished hypotheses, aligned to the right; -1 on the left."""
    finished_scores: Float[Tensor, "N F"]
    """Sums of log-probabilities; -inf where there are fewer hypotheses."""
    finished_penalised: Float[Tensor, "N F"]
    """The same divided by the length penalty, best first."""

    @classmethod
    def initial(
        cls, max_tokens: Sequence[int], options: Decoding, like: Tensor, width: int = 1, capacity: int = 0
    ) -> "BeamState":
        """No tokens yet and nothing finished. Of `width` live hypotheses per input, only the first has a chance.

        The state holds the longest of `max_tokens`, or more tokens if `capacity` is larger.
        """
        n, longest = len(max_tokens), max(capacity, *max_tokens)
        inputs = torch.arange(n, device=like.device)
        none = like.new_full((n, options.n_best), -torch.inf, dtype=torch.promote_types(like.dtype, torch.float32))
        live_scores = none.new_full((n, width), -torch.inf)
        live_scores[:, 0] = 0.0
        live, finished = (inputs.new_full((n, count, longest), -1) for count in (width, options.n_best))
        limits = torch.tensor(max_tokens, device=like.device)
        return cls(torch.zeros_like(inputs[0]), inputs, limits, live, live_scores, finished, none, none.clone())

    def select(self, which: Int[Tensor, " n"]) -> "BeamState":
        """The state of these inputs only."""
        per_input = {field.name: getattr(self, field.name)[which] for field in fields(self) if field.name != "length"}
        return replace(self, **per_input)

    def best(self, n_best: int) -> "BeamState":
        """The same with only the best finished hypotheses of each input."""
        finished = (self.finished_tokens, self.finished_scores, self.finished_penalised)
        tokens, scores, penalised = (x[:, :n_best] for x in finished)
        return replace(self, finished_tokens=tokens, finished_scores=scores, finished_penalised=penalised)


def search_has_stopped(state: BeamState, alpha: float, n_best: Int[Tensor, ""] | None = None) -> Bool[Tensor, " N"]:
    """The stopping rule: no live hypothesis can still enter the best `n_best` (by default, all that are kept).

    A log-probability can only fall from here, and the penalty that divides it is largest at the maximum length. The
    present score divided by that penalty is thus the best that a live hypothesis can reach.
    """
    best_possible: Tensor = state.live_scores.amax(1) / length_penalty(state.max_tokens.to(state.live_scores), alpha)
    finished = state.finished_penalised
    worst_kept = finished[:, -1] if n_best is None else finished.index_select(1, n_best[None] - 1)[:, 0]  # [N]
    return (best_possible <= worst_kept) | (state.length >= state.max_tokens)


def beam_search(
    logits: Float[Tensor, "N V"],
    state: State,
    step: Step[State],
    select: Select[State],
    rules: TokenRules,
    max_tokens: Sequence[int],
    stops: StopCheck | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each input, best first; `rules.options` gives beam, n_best and length penalty.

    A hypothesis that reaches its input's `max_tokens` counts as finished. Inputs whose search has stopped leave the
    batch. The host waits for the device once per token.
    """
    done: list[BeamState] = []
    with torch.inference_mode():
        beams = BeamState.initial(max_tokens, rules.options, logits)
        while len(beams.inputs):
            raise_if_cancelled()
            beams, parents = advance(beams, logits, rules, stops)
            finished = search_has_stopped(beams, rules.options.length_penalty).tolist()  # the only wait
            remaining = None
            if any(finished):
                leaving, remaining = (_indices(finished, value, parents) for value in (True, False))
                done.append(beams.select(leaving))
                beams, parents = beams.select(remaining), parents[remaining]
            if len(parents):
                state = select(state, parents.flatten(), remaining)
                logits = step(beams.live_tokens[..., -1].flatten(), state)  # [N·W, V]
    return finished_hypotheses(done, len(max_tokens), rules, stops)


def advance(
    beams: BeamState,
    logits: Float[Tensor, "R V"],
    rules: TokenRules,
    stops: StopCheck | None = None,
    draws: Float[Tensor, "N L"] | None = None,
) -> tuple[BeamState, Int[Tensor, "N W"]]:
    """One step: the new state, and the row that each live hypothesis continues.

    A beam of 1 takes the best token or, given `draws`, samples with these random numbers, one for each token.
    """
    k = rules.options.beam
    scores, parents, tokens = _candidates(beams, logits, rules, draws)  # [N, M] each
    sequences = torch.cat([_gather(beams.live_tokens, parents), tokens[..., None]], -1)[..., 1:]  # [N, M, T]
    length = beams.length + 1
    ends = torch.isin(tokens, rules.end) | (length >= beams.max_tokens)[:, None]  # [N, M]
    if stops is not None:
        texts = [[[id_ for id_ in ids if id_ >= 0] for ids in row] for row in sequences.tolist()]
        ends |= torch.tensor([[stops(ids) for ids in row] for row in texts], device=ends.device)
    newly_finished = scores[:, :k].masked_fill(~ends[:, :k], -torch.inf)  # [N, K]
    penalty = length_penalty(length.to(scores), rules.options.length_penalty)
    finished = _merge_finished(beams, sequences[:, :k], newly_finished, penalty)
    live = ends.int().argsort(dim=1, stable=True)[:, :k]  # [N, W]: candidates that do not end, best first
    live_scores = scores.masked_fill(ends, -torch.inf).gather(1, live)
    n, width = beams.live_scores.shape
    rows = torch.arange(n, device=parents.device)[:, None] * width + parents.gather(1, live)  # [N, W]
    live_tokens = _gather(sequences, live)
    return BeamState(length, beams.inputs, beams.max_tokens, live_tokens, live_scores, *finished), rows


def _candidates(
    beams: BeamState, logits: Float[Tensor, "R V"], rules: TokenRules, draws: Float[Tensor, "N L"] | None
) -> tuple[Float[Tensor, "N M"], Int[Tensor, "N M"], Int[Tensor, "N M"]]:
    """The best continuations of each input: their scores, the hypotheses they continue, and their new tokens."""
    if rules.options.beam > 1:
        return top_continuations(beams, logits, rules)
    log_probs = rules.log_probs(logits, beams.live_tokens.flatten(0, 1), beams.inputs, beams.length)  # [N, V]
    numbers = None if draws is None else draws[beams.inputs].index_select(1, beams.length[None])[:, 0]  # [N]
    tokens = choose_tokens(log_probs, rules.options, numbers)[:, None]  # [N, 1]
    return beams.live_scores + log_probs.gather(1, tokens), torch.zeros_like(tokens), tokens


def top_continuations(
    beams: BeamState, logits: Float[Tensor, "R V"], rules: TokenRules
) -> tuple[Float[Tensor, "N M"], Int[Tensor, "N M"], Int[Tensor, "N M"]]:
    """The 2 K best continuations of each input, so that K stay live even if K of them end; best first."""
    (n, width), outputs = beams.live_scores.shape, logits.size(-1)
    inputs = beams.inputs.repeat_interleave(width)  # [N·W]
    log_probs = rules.log_probs(logits, beams.live_tokens.flatten(0, 1), inputs, beams.length)  # [N·W, V]
    totals = beams.live_scores[..., None] + keep_best_end(log_probs, rules.end).view(n, width, outputs)  # [N, W, V]
    scores, index = stable_top_k(totals.flatten(1), 2 * rules.options.beam)  # [N, M]
    return scores, index // outputs, index % outputs


def keep_best_end(log_probs: Float[Tensor, "R V"], end: Int[Tensor, " E"]) -> Float[Tensor, "R V"]:
    """Of several end tokens, keep only the likeliest: they all give the same text."""
    if len(end) < 2:
        return log_probs
    value, which = log_probs[:, end].max(-1, keepdim=True)  # [R, 1]
    return log_probs.index_fill(-1, end, -torch.inf).scatter(-1, end[which], value)


def _merge_finished(
    beams: BeamState, tokens: Int[Tensor, "N K T"], scores: Float[Tensor, "N K"], penalty: Float[Tensor, ""]
) -> tuple[Int[Tensor, "N F T"], Float[Tensor, "N F"], Float[Tensor, "N F"]]:
    """The best of the finished hypotheses and those that finish in this step: tokens, scores, penalised scores."""
    keep = beams.finished_tokens.size(1)
    penalised = torch.cat([beams.finished_penalised, scores / penalty], 1)  # [N, F + K]
    penalised, order = (x[:, :keep] for x in penalised.sort(dim=1, descending=True, stable=True))
    all_tokens = torch.cat([beams.finished_tokens, tokens], 1)  # [N, F + K, T]
    return _gather(all_tokens, order), torch.cat([beams.finished_scores, scores], 1).gather(1, order), penalised


def _indices(flags: list[bool], value: bool, like: Int[Tensor, "N W"]) -> Int[Tensor, " n"]:
    """The indices at which the flags have this value."""
    return like.new_tensor([i for i, flag in enumerate(flags) if flag == value])


def _gather(x: Int[Tensor, "N A t"], which: Int[Tensor, "N B"]) -> Int[Tensor, "N B t"]:
    """These hypotheses of each input."""
    return x.gather(1, which[..., None].expand(-1, -1, x.size(-1)))


def finished_hypotheses(
    done: Sequence[BeamState], inputs: int, rules: TokenRules, stops: StopCheck | None
) -> list[list[Hypothesis]]:
    """The finished hypotheses of all inputs, in the order of the inputs."""
    results: list[list[Hypothesis]] = [[] for _ in range(inputs)]
    end = set(rules.end.tolist())
    for beams in done:
        columns = (
            beams.inputs,
            beams.live_scores.amax(1),
            beams.finished_tokens,
            beams.finished_scores,
            beams.finished_penalised,
        )
        for number, live, texts, scores, ranks in zip(*(column.tolist() for column in columns), strict=True):
            if not scores[0] > -torch.inf or math.isnan(live):
                raise rules.no_token_error(number, scores[0] + live)
            for padded, score, penalised in zip(texts, scores, ranks, strict=True):
                if score > -torch.inf:
                    ids = [id_ for id_ in padded if id_ >= 0]
                    reason = finish_reason(ids, end, stops) or "length"
                    results[number].append(make_hypothesis(ids, score, penalised, reason))
    return results
