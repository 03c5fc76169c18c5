"""One token at a time, taken or drawn: greedy decoding and sampling.

Dimensions: N sentences, R rows that still go on, V outputs, T tokens said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.sampling import choose
from regard.decoding.search import C, Hypothesis, Reason, Rules, Select, Step, Stops, hypothesis, penalty, reason


@dataclass(frozen=True)
class Said:
    """One token of one sentence."""

    sentence: int
    token: int
    log_prob: float
    reason: Reason | None
    """why it is the sentence's last one, if it is"""


def walk(
    logits: Float[Tensor, "N V"],
    cache: C,
    step: Step[C],
    select: Select[C],
    rules: Rules,
    limits: Sequence[int],
    draws: Float[Tensor, "N L"] | None = None,
    stops: Stops | None = None,
) -> Iterator[list[Said]]:
    """Each sentence's next token, until all have ended; those that have leave the batch.

    `limits`: the most tokens for each sentence. `draws`: a random number for each token that may come; without them
    the best is taken. The host waits for the device once per token.
    """
    end = set(rules.end.tolist())
    texts: list[list[int]] = [[] for _ in limits]
    rows = list(range(len(limits)))
    with torch.inference_mode():
        sentence = torch.arange(len(rows), device=logits.device)  # [R]
        said = sentence.new_empty(len(rows), 0)  # [R, T]
    while rows:
        raise_if_cancelled()
        with torch.inference_mode():
            log_probs = rules.log_probs(logits, said, sentence, torch.tensor(said.size(1)))  # [R, V]
            numbers = None if draws is None else draws[sentence, said.size(1)]  # [R]
            token = choose(log_probs, rules.options, numbers)  # [R]
            scores = log_probs.gather(-1, token[:, None])[:, 0]  # [R]
            tokens, chosen = torch.stack([token.double(), scores.double()]).tolist()  # one wait for both
        latest = []
        for row, number, log_prob in zip(rows, tokens, chosen, strict=True):
            if not log_prob > -torch.inf:
                raise rules.impossible(row, log_prob)
            texts[row].append(int(number))
            at_limit: Reason | None = "length" if len(texts[row]) >= limits[row] else None
            latest.append(Said(row, int(number), log_prob, reason(texts[row], end, stops) or at_limit))
        yield latest
        going = [i for i, each in enumerate(latest) if each.reason is None]
        rows = [rows[i] for i in going]
        with torch.inference_mode():
            said = torch.cat([said, token[:, None]], 1)
            if rows and len(going) < len(latest):
                kept = torch.tensor(going, device=token.device)
                cache, said, sentence = select(cache, kept, kept), said[kept], sentence[kept]
            if rows:
                logits = step(said[:, -1], cache)


def collect(walked: Iterator[list[Said]], sentences: int, alpha: float) -> list[Hypothesis]:
    """What `walk` said, sentence by sentence."""
    texts: list[list[Said]] = [[] for _ in range(sentences)]
    for latest in walked:
        for said in latest:
            texts[said.sentence].append(said)
    return [_whole(text, alpha) for text in texts]


def _whole(text: list[Said], alpha: float) -> Hypothesis:
    why, score = text[-1].reason, sum(said.log_prob for said in text)
    assert why is not None
    return hypothesis([said.token for said in text], score, score / penalty(len(text), alpha), why)
