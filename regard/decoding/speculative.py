"""Speculative decoding: a small draft model proposes the next tokens, and the model reads them all in one step.

Leviathan et al. (2023) and Chen et al. (2023) accept proposals so that the text keeps its distribution. Here it stays
the same text: every token is chosen with a random number that depends on seed, prompt and position only
(`random_numbers`), the draft uses the same numbers, and a proposal is accepted where the model chooses the same token.
Only rounding can make a difference, since several tokens are read at once.

Dimensions: T tokens that are read at once, V outputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.decoding_state import DecodingState, SearchInputs
from regard.decoding.greedy import ChosenToken
from regard.decoding.sampling import choose_tokens
from regard.decoding.search import FinishReason, StopCheck, finish_reason
from regard.model.tensor_checks import skipping_value_checks

DRAFT_TOKENS = 4
"""Number of tokens that the draft proposes at a time."""


@dataclass
class AcceptanceCount:
    """How many of the draft's proposals were accepted."""

    proposed: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        """The share of proposals that were accepted."""
        return self.accepted / max(1, self.proposed)


class _Reader:
    """A network that reads the tokens of one text; tokens that turn out wrong are read again."""

    def __init__(self, inputs: SearchInputs, state: DecodingState) -> None:
        self.network, self.rules, self.draws = inputs.network, inputs.rules, inputs.draws
        self.cache, self.prefix = state.cache, state.prefix
        self.prompt_length = self.count = int(inputs.lengths[0])
        """`count` is the number of tokens read so far, those of the prompt included."""

    @torch.inference_mode()
    def read(self, text: Sequence[int]) -> Float[Tensor, "T V"]:
        """Read what is new in a text, and return the logits after each of these tokens."""
        new = text[self.count - self.prompt_length :]
        tokens = torch.tensor([new], device=self.network.device)  # [1, T]
        positions = torch.arange(self.count, self.count + len(new), device=tokens.device)[None]  # [1, T]
        prefix = {} if self.prefix is None else {"prefix": self.prefix}
        self.count += len(new)
        with skipping_value_checks():
            return self.network.step(tokens, positions, self.cache.upto(self.count), **prefix)[0]  # [T, V]

    def forget(self, text: Sequence[int]) -> None:
        """Consider only the tokens of this text as read."""
        self.count = min(self.count, self.prompt_length + len(text))

    @torch.inference_mode()
    def choose(self, logits: Float[Tensor, " V"], text: Sequence[int]) -> tuple[int, float]:
        """The token that comes after a text, and its log-probability."""
        generated = torch.tensor([text], dtype=torch.long, device=logits.device)  # [1, T]
        row = torch.zeros(1, dtype=torch.long, device=logits.device)
        log_probs = self.rules.log_probs(logits[None], generated, row, torch.tensor(len(text)))  # [1, V]
        draws = None if self.draws is None else self.draws[:, len(text)]
        token = int(choose_tokens(log_probs, self.rules.options, draws)[0])
        return token, float(log_probs[0, token])


def speculative_tokens(
    inputs: SearchInputs,
    prefilled: tuple[Float[Tensor, "1 V"], DecodingState],
    draft_inputs: SearchInputs,
    draft_prefilled: tuple[Float[Tensor, "1 V"], DecodingState],
    stops: StopCheck | None,
    count: AcceptanceCount,
) -> Iterator[ChosenToken]:
    """The tokens that the network generates after one prompt, as `generate_tokens` gives them."""
    model, draft = _Reader(inputs, prefilled[1]), _Reader(draft_inputs, draft_prefilled[1])
    end, limit = set(inputs.rules.end.tolist()), inputs.max_tokens[0]
    text: list[int] = []

    def chosen(logits: Tensor) -> ChosenToken:
        token, log_prob = model.choose(logits, text)
        if not log_prob > -torch.inf:
            raise model.rules.no_token_error(0, log_prob)
        text.append(token)
        at_limit: FinishReason | None = "length" if len(text) >= limit else None
        return ChosenToken(0, token, log_prob, finish_reason(text, end, stops) or at_limit)

    latest = chosen(prefilled[0][0])
    yield latest
    while latest.reason is None:
        raise_if_cancelled()
        proposed = _propose(draft, text, min(DRAFT_TOKENS, limit - len(text) - 1), end)
        model.forget(text[:-1])  # the newest token has not been read
        after_each = model.read([*text, *proposed])  # [1 + proposals, V]
        count.proposed += len(proposed)
        for number, logits in enumerate(after_each):
            latest = chosen(logits)
            yield latest
            if latest.reason is not None or number == len(proposed) or latest.token != proposed[number]:
                break
            count.accepted += 1


def _propose(draft: _Reader, text: Sequence[int], most: int, end: set[int]) -> list[int]:
    """The draft's next tokens, at most this many."""
    proposed: list[int] = []
    draft.forget(text[:-1])
    while len(proposed) < most and not end.intersection(proposed[-1:]):
        logits = draft.read([*text, *proposed])[-1]  # [V]
        proposed.append(draft.choose(logits, [*text, *proposed])[0])
    return proposed
