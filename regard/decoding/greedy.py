"""Greedy decoding and sampling over any model: one token per step for each input, until all have finished.

Dimensions: N inputs, R rows (inputs that are not finished), V outputs, T generated tokens, L random numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.sampling import choose_tokens
from regard.decoding.search import (
    FinishReason,
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
class ChosenToken:
    """The next token of one input's text."""

    input_index: int
    token: int
    log_prob: float
    reason: FinishReason | None
    """Why it is the last token of the text; None if it is not."""


def generate_tokens(
    logits: Float[Tensor, "N V"],
    state: State,
    step: Step[State],
    select: Select[State],
    rules: TokenRules,
    max_tokens: Sequence[int],
    draws: Float[Tensor, "N L"] | None = None,
    stops: StopCheck | None = None,
) -> Iterator[list[ChosenToken]]:
    """The next token of each input, step by step, until all have finished; finished inputs leave the batch.

    `max_tokens` is the maximum for each input. `draws` are random numbers, one for each token that may be sampled;
    without them the best token is chosen. The host waits for the device once per token.
    """
    end = set(rules.end.tolist())
    texts: list[list[int]] = [[] for _ in max_tokens]
    live = list(range(len(max_tokens)))
    with torch.inference_mode():
        inputs = torch.arange(len(live), device=logits.device)  # [R]
        generated = inputs.new_empty(len(live), 0)  # [R, T]
    while live:
        raise_if_cancelled()
        with torch.inference_mode():
            length = generated.size(1)
            log_probs = rules.log_probs(logits, generated, inputs, torch.tensor(length))  # [R, V]
            tokens = choose_tokens(log_probs, rules.options, None if draws is None else draws[inputs, length])  # [R]
            scores = log_probs.gather(-1, tokens[:, None])[:, 0]  # [R]
            ids, chosen = torch.stack([tokens.double(), scores.double()]).tolist()  # one wait for both
        latest = []
        for number, id_, log_prob in zip(live, ids, chosen, strict=True):
            if not log_prob > -torch.inf:
                raise rules.no_token_error(number, log_prob)
            text = texts[number]
            text.append(int(id_))
            at_limit: FinishReason | None = "length" if len(text) >= max_tokens[number] else None
            latest.append(ChosenToken(number, int(id_), log_prob, finish_reason(text, end, stops) or at_limit))
        yield latest
        unfinished = [row for row, token in enumerate(latest) if token.reason is None]
        live = [live[row] for row in unfinished]
        with torch.inference_mode():
            generated = torch.cat([generated, tokens[:, None]], 1)
            if live and len(unfinished) < len(latest):
                rows = torch.tensor(unfinished, device=tokens.device)
                state, generated, inputs = select(state, rows, rows), generated[rows], inputs[rows]
            if live:
                logits = step(generated[:, -1], state)


def collect_hypotheses(steps: Iterator[list[ChosenToken]], inputs: int, alpha: float) -> list[Hypothesis]:
    """The texts that `generate_tokens` generates, one hypothesis for each input."""
    texts: list[list[ChosenToken]] = [[] for _ in range(inputs)]
    for latest in steps:
        for token in latest:
            texts[token.input_index].append(token)
    return [_hypothesis(text, alpha) for text in texts]


def _hypothesis(tokens: list[ChosenToken], alpha: float) -> Hypothesis:
    reason, score = tokens[-1].reason, sum(token.log_prob for token in tokens)
    assert reason is not None
    ids = [token.token for token in tokens]
    return make_hypothesis(ids, score, score / length_penalty(len(tokens), alpha), reason)
