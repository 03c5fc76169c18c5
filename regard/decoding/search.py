"""What greedy decoding, sampling and beam search share. None of them knows a model; they are given two functions:

    step(tokens [R], state) → logits [R, V]     append one token to each row and return the logits that follow it
    select(state, rows [Q], inputs) → state     continue with these rows, in this order; a row may be repeated or
                                                dropped. inputs [n] are those that remain; None means all of them

Rows of one input are adjacent, and every input has the same number of them. A search starts from the logits that follow
the prompts, with a state that has read the prompts.

Generated tokens are aligned to the right of their tensor, with -1 on the left, so that shapes stay constant.

Dimensions: N inputs, R rows, V outputs, P prompt length, T maximum number of generated tokens.
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

State = TypeVar("State")
Step = Callable[[Tensor, State], Tensor]
Select = Callable[[State, Tensor, Tensor | None], State]
StopCheck = Callable[[list[int]], bool]
"""Whether the text of these ids contains a stop string."""
FinishReason = Literal["end", "stop", "length"]
"""A text ends with an end token, at a stop string, or at its maximum length."""


@dataclass(frozen=True)
class Hypothesis:
    """A generated text and its score."""

    ids: list[int]
    """The generated ids, without the end token."""
    score: float
    """Sum of the log-probabilities of all generated tokens, the end token included, under the model's own softmax:
    suppressed ids, temperature and the like affect which tokens are chosen, not their score."""
    penalised: float
    """The score divided by the length penalty: what a beam ranks by."""
    reason: FinishReason


def make_hypothesis(ids: list[int], score: float, penalised: float, reason: FinishReason) -> Hypothesis:
    """A hypothesis from all its ids, the end token included."""
    return Hypothesis(ids[:-1] if reason == "end" else ids, score, penalised, reason)


def finish_reason(ids: list[int], end: set[int], stops: StopCheck | None) -> FinishReason | None:
    """Why a text ends after these ids; None if it does not, or only because of its length."""
    if ids[-1] in end:
        return "end"
    return "stop" if stops is not None and stops(ids) else None


def length_penalty(tokens: Any, alpha: float) -> Any:
    """The length penalty of Wu et al. 2016, which the paper uses with alpha = 0.6; for one length or a tensor.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0)
    (1.0, 2.0)
    """
    return ((5 + tokens) / 6) ** alpha


@dataclass(frozen=True)
class TokenRules:
    """Which tokens may come next, and their log-probabilities."""

    end: Int[Tensor, " E"]
    """Ids that end a text."""
    suppressed: Int[Tensor, " X"]
    """Ids that are never generated."""
    prompts: Int[Tensor, "N P"]
    """Ids that count as part of the text when repetitions are looked for; -1 on the left of shorter prompts."""
    options: Decoding

    @classmethod
    def of(
        cls,
        special: SpecialIds,
        options: Decoding,
        outputs: int,
        prompts: Sequence[Sequence[int]],
        device: torch.device | None = None,
    ) -> "TokenRules":
        """The rules for a model with this many outputs."""
        end = [id_ for id_ in special.end if id_ < outputs and id_ not in special.suppressed]
        suppressed = [id_ for id_ in special.suppressed if id_ < outputs]
        longest = max((len(prompt) for prompt in prompts), default=0)
        padded = [[-1] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        tensors = [torch.tensor(ids, dtype=torch.long, device=device) for ids in (end, suppressed, padded)]
        return cls(tensors[0], tensors[1], tensors[2].view(len(prompts), longest), options)

    def log_probs(
        self,
        logits: Float[Tensor, "R V"],
        generated: Int[Tensor, "R T"],
        inputs: Int[Tensor, " R"],
        length: Tensor,
    ) -> Float[Tensor, "R V"]:
        """Log-probabilities of the next token after `length` [] generated ones, -inf where it is not allowed.

        A repetition penalty changes the logits and is thus part of the scoring model. Forbidden tokens are masked
        after the softmax, so the probabilities of all others stay as the model gives them.
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        repetition_penalty, n = self.options.repetition_penalty, self.options.no_repeat_ngram
        history = self.history(generated, inputs) if repetition_penalty != 1 or n else generated  # [R, P + T]
        if repetition_penalty != 1:
            logits = penalise_repetition(logits, history, repetition_penalty)
        log_probs = logits.log_softmax(-1).index_fill_(-1, self.suppressed, -torch.inf)
        if self.options.min_tokens:
            too_early = length < self.options.min_tokens  # []
            log_probs[:, self.end] = log_probs[:, self.end].masked_fill(too_early, -torch.inf)
        return forbid_repeated_ngrams(log_probs, history, n) if n else log_probs

    def history(self, generated: Int[Tensor, "R T"], inputs: Int[Tensor, " R"]) -> Int[Tensor, "R L"]:
        """Each row's prompt and generated tokens without a gap between them; -1 on the left."""
        rows = torch.cat([self.prompts[inputs], generated], 1)  # [R, P + T]
        return rows.gather(1, (rows >= 0).int().argsort(dim=1, stable=True))

    def no_token_error(self, number: int, score: float) -> RegardError:
        """The error for an input whose best continuation has probability zero, or is not a number."""
        if math.isnan(score):
            return ModelError(f"the model produced non-finite values (NaN) for input {number}: check its weights")
        return RegardError(
            f"input {number}: no token is allowed, with {len(self.suppressed)} ids suppressed, no_repeat_ngram="
            f"{self.options.no_repeat_ngram} and min_tokens={self.options.min_tokens}"
        )
