"""The inputs of a search over a network, and the state that the network keeps between its steps.

Dimensions: N inputs, R rows, P prompt length, V outputs, L random numbers.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis, TokenRules
from regard.model.cache import Cache
from regard.model.tensor_checks import skipping_value_checks
from regard.model.transformer import Decoder, EncoderDecoder


@dataclass
class DecodingState:
    """What a network has read so far: the `state` that a search passes to `step` and `select`."""

    cache: Cache
    lengths: Int[Tensor, " R"]
    """Number of tokens in each row: the position of its next one."""
    longest: int
    """Upper bound of the lengths, known without waiting for the device."""
    prefix: Int[Tensor, " R"] | None = None
    """Length of the part of each row that sees itself bidirectionally, in a network with a prefix."""

    def select(self, rows: Int[Tensor, " Q"], inputs: Int[Tensor, " n"] | None) -> "DecodingState":
        """The state of these rows, which belong to these of the inputs (None: to all)."""
        prefix = None if self.prefix is None else self.prefix[rows]
        cache = self.cache.select(rows, inputs, self.longest)
        return DecodingState(cache, self.lengths[rows], self.longest, prefix)


@dataclass(frozen=True)
class SearchInputs:
    """Everything that a search over a network starts from."""

    network: Decoder | EncoderDecoder
    tokens: Int[Tensor, "N P"]
    """The sources or prompts, padded on the right."""
    lengths: Int[Tensor, " N"]
    max_tokens: list[int]
    """Maximum number of generated tokens for each input."""
    rules: TokenRules
    draws: Float[Tensor, "N L"] | None
    """Random numbers, one for each token that may be sampled; None to take the best token."""
    start: tuple[int, ...]
    """Tokens that an encoder–decoder reads before it generates."""
    cache_length: int
    """Number of tokens that each row of the cache can hold."""


class SearchEngine(Protocol):
    """Runs complete searches over the weights of a network, outside PyTorch."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def supports(self, options: Decoding) -> bool:
        """Whether it can search with these options."""

    def search(self, inputs: SearchInputs) -> list[list[Hypothesis]]:
        """As `beam_search`, or as greedy decoding if the beam is 1."""


def decode_one_token(
    network: Decoder | EncoderDecoder, tokens: Int[Tensor, " R"], state: DecodingState
) -> Float[Tensor, "R V"]:
    """The logits that follow one more token in each row; the state is updated in place."""
    cache = state.cache.upto(state.longest + 1)  # later entries are empty
    prefix = {} if state.prefix is None else {"prefix": state.prefix}
    with skipping_value_checks():
        logits = network.step(tokens[:, None], state.lengths[:, None], cache, **prefix)  # [R, 1, V]
    state.lengths, state.longest = state.lengths + 1, state.longest + 1
    return logits[:, 0]


def select_rows(state: DecodingState, rows: Int[Tensor, " Q"], inputs: Int[Tensor, " n"] | None) -> DecodingState:
    """`DecodingState.select` as the function that a search takes."""
    return state.select(rows, inputs)


def token_positions(tokens: Int[Tensor, "N P"]) -> Int[Tensor, "N P"]:
    """0, 1, 2, … in each row."""
    return torch.arange(tokens.size(1), device=tokens.device).expand(tokens.shape)
