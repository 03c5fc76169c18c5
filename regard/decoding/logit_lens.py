"""The logit lens: the tokens that each layer would predict if it were the last.

The vectors after every layer go through the final norm and the output head, as those of the last layer do
(nostalgebraist, "interpreting GPT: the logit lens", 2020).

Dimensions: B = 1 row, T tokens, C model width, V outputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.token_labels import TokenLabels
from regard.errors import ModelError
from regard.model.transformer import Encoder, Network

LENS_TOKENS = 5
"""Number of predictions per layer and position on the page and in files."""
PROBABILITY_DECIMALS = 6
"""Decimal places of the probabilities in JSON."""

LensPrediction = tuple[tuple[str, float], ...]
"""The most likely tokens at one position after one layer, with their probabilities."""


@dataclass(frozen=True)
class LogitLens:
    """The most likely tokens at each position, by the vectors after the embedding and after each layer."""

    queries: tuple[str, ...]
    """The token that each position reads."""
    writes: tuple[str, ...]
    """The token that each position of a decoder writes; "" for positions that write none, empty for an encoder."""
    top: tuple[tuple[LensPrediction, ...], ...]
    """The predictions of each state at each position; the last state's are those of the model."""

    @property
    def states(self) -> list[str]:
        """The name of each state: "embedding", "layer 0" …"""
        return ["embedding", *(f"layer {number}" for number in range(len(self.top) - 1))]

    def to_json(self) -> dict[str, Any]:
        """Everything in types that `json.dumps` accepts."""
        top = [
            [[{"token": token, "p": round(p, PROBABILITY_DECIMALS)} for token, p in prediction] for prediction in state]
            for state in self.top
        ]
        return {"queries": list(self.queries), "writes": list(self.writes), "states": self.states, "top": top}


def lens_predictions(
    network: Network, tokenizer: Tokenizer, read: Sequence[int], states: Sequence[Float[Tensor, "1 T C"]], count: int
) -> tuple[tuple[LensPrediction, ...], ...]:
    """The `count` most likely tokens of each state at each position of a text whose ids are `read`."""
    labels = TokenLabels.of(tokenizer, read)
    # A decoder predicts the token after the one it reads, an encoder the token at the same position.
    before = [read[max(0, i - 1) : i] if isinstance(network, Encoder) else read[i : i + 1] for i in range(len(read))]
    return tuple(
        tuple(
            tuple(zip(labels.among(ids, *previous), probabilities, strict=True))
            for previous, ids, probabilities in zip(before, top_ids, top, strict=True)
        )
        for top_ids, top in _most_likely(network, states, count)
    )


@torch.inference_mode()
def final_token_probabilities(network: Network, states: Sequence[Float[Tensor, "1 T C"]]) -> Float[Tensor, "states T"]:
    """The probability that each state gives, at each position, to the token that the last state predicts there."""
    logits = [_state_logits(network, states, i).float() for i in range(len(states))]
    final = logits[-1].argmax(-1, keepdim=True)  # [T, 1]
    return torch.stack([each.softmax(-1).gather(-1, final)[:, 0] for each in logits])


@torch.inference_mode()
def _most_likely(
    network: Network, states: Sequence[Tensor], count: int
) -> Iterator[tuple[list[list[int]], list[list[float]]]]:
    """For each state, the most likely ids at each position and their probabilities."""
    for i in range(len(states)):
        raise_if_cancelled()
        logits = _state_logits(network, states, i)
        top, ids = logits.float().softmax(-1).topk(min(count, logits.size(-1)))  # [T, count]
        if not top.isfinite().all():
            raise ModelError
        yield ids.tolist(), top.tolist()


def _state_logits(network: Network, states: Sequence[Tensor], i: int) -> Float[Tensor, "T V"]:
    """The logits of a state. Those of the last one are normalised already."""
    norm = (network.encoder if isinstance(network, Encoder) else network.decoder).norm
    logits: Tensor = network.head(states[i] if i == len(states) - 1 else norm(states[i]))
    return logits[0]
