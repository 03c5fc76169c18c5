"""What greedy decoding, sampling and beam search share. None of them knows a model: they are given two functions.

    step(tokens [R], cache) → logits [R, V]      feed each row its next token, and take in what it makes of it
    select(cache, rows [Q], sentences) → cache   go on with these rows, in this order; a row may come twice, or not at
                                                 all. sentences [n]: those that are left; None when all of them are

Rows of one sentence stand together, as many for each. A search starts from the logits that follow the prompts, with a
cache that has taken the prompts in.

What has been said stands at the right of its tensor, -1 on its left, so that shapes stay the same from step to step.

Dimensions: N sentences, R rows, V outputs, P ids of a prompt, T places for tokens said.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import SpecialIds
from regard.decoding.options import Decoding
from regard.decoding.sampling import forbid_repeated_ngrams, penalise_repetition
from regard.errors import ModelError, RegardError

C = TypeVar("C")
Step = Callable[[Tensor, C], Tensor]
Select = Callable[[C, Tensor, Tensor | None], C]
Stops = Callable[[list[int]], bool]
"""whether a text's ids hold a stop string"""
Reason = Literal["end", "stop", "length"]


@dataclass(frozen=True)
class Hypothesis:
    """What a model says, and how likely it finds that."""

    ids: list[int]
    """what it said, without the id that ended it"""
    score: float
    """sum of the log-probabilities of all it said, the end included, by the model's own softmax over all its outputs;
    ids that are never said only lose their place, and temperature and the like decide what is said, not its score"""
    penalised: float
    """the score, length-penalised: what a beam ranks by"""
    reason: Reason
    """whether it ended of itself, by a stop string, or as long as it may become"""


def hypothesis(ids: list[int], score: float, penalised: float, why: Reason) -> Hypothesis:
    """The hypothesis that said these ids, the one that ended it included."""
    return Hypothesis(ids[:-1] if why == "end" else ids, score, penalised, why)


def reason(ids: list[int], end: set[int], stops: Stops | None) -> Reason | None:
    """Why the text of these ids ends here, unless it is only for its length."""
    if ids[-1] in end:
        return "end"
    return "stop" if stops is not None and stops(ids) else None


def penalty(tokens: Any, alpha: float) -> Any:
    """The length penalty of Wu et al. 2016, which the paper uses with alpha = 0.6; for one length or a tensor of them.

    >>> penalty(1, 0.6), penalty(7, 1.0)
    (1.0, 2.0)
    """
    return ((5 + tokens) / 6) ** alpha


@dataclass(frozen=True)
class Rules:
    """What may be said next, and with what log-probability."""

    end: Int[Tensor, " E"]
    """ids that end a text"""
    suppressed: Int[Tensor, " X"]
    """ids that are never said"""
    prompts: Int[Tensor, "N P"]
    """what counts as said already when repetitions are sought; -1 on the left of shorter ones"""
    options: Decoding

    @classmethod
    def of(
        cls,
        special: SpecialIds,
        options: Decoding,
        outputs: int,
        prompts: Sequence[Sequence[int]],
        device: torch.device | None = None,
    ) -> "Rules":
        """The rules for a model with so many outputs."""
        end = [id_ for id_ in special.end if id_ < outputs and id_ not in special.suppressed]
        suppressed = [id_ for id_ in special.suppressed if id_ < outputs]
        longest = max((len(prompt) for prompt in prompts), default=0)
        before = [[-1] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        tensors = [torch.tensor(ids, dtype=torch.long, device=device) for ids in (end, suppressed, before)]
        return cls(tensors[0], tensors[1], tensors[2].view(len(prompts), longest), options)

    def log_probs(
        self, logits: Float[Tensor, "R V"], said: Int[Tensor, "R T"], sentence: Int[Tensor, " R"], tokens: Tensor
    ) -> Float[Tensor, "R V"]:
        """Log-probabilities of the next token, -inf where it may not be said; `tokens` [] have been said before it.

        A repetition penalty changes the logits, and so is part of the model that scores. What is forbidden is so
        behind the softmax: the others' probabilities stay what the model gives them.
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        repeats, n = self.options.repetition_penalty, self.options.no_repeat_ngram
        history = self.history(said, sentence) if repeats != 1 or n else said  # [R, P + T]
        if repeats != 1:
            logits = penalise_repetition(logits, history, repeats)
        log_probs = logits.log_softmax(-1).index_fill_(-1, self.suppressed, -torch.inf)
        if self.options.min_tokens:
            early = tokens < self.options.min_tokens  # []
            log_probs[:, self.end] = log_probs[:, self.end].masked_fill(early, -torch.inf)
        return forbid_repeated_ngrams(log_probs, history, n) if n else log_probs

    def history(self, said: Int[Tensor, "R T"], sentence: Int[Tensor, " R"]) -> Int[Tensor, "R L"]:
        """Each row's prompt and what it has said, without a gap between them; -1 on the left."""
        whole = torch.cat([self.prompts[sentence], said], 1)  # [R, P + T]
        return whole.gather(1, (whole >= 0).int().argsort(dim=1, stable=True))

    def impossible(self, sentence: int, score: float) -> ValueError:
        """The error to raise where the best there is has no probability."""
        if math.isnan(score):
            return ModelError(f"the model produced non-finite values (NaN) for input {sentence}: check its weights")
        return RegardError(
            f"input {sentence}: no id may be said, of {len(self.suppressed)} suppressed, no_repeat_ngram="
            f"{self.options.no_repeat_ngram}, min_tokens={self.options.min_tokens}"
        )
