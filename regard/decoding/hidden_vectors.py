"""The vectors of every layer for each token of a text.

Dimensions: B rows, T tokens, C model width, L layers; L + 1 states, the embeddings and the output of each layer.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.fast_copy import check_not_copy
from regard.decoding.own_network import check_regards_own
from regard.decoding.token_labels import token_labels
from regard.model.layers import Stack
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Network

HIDDEN_BATCH_TOKENS = 4_096
"""Tokens of a batch, padding included: each has one vector per layer."""


@dataclass(frozen=True)
class HiddenVectors:
    """The vectors of every layer for one text."""

    tokens: list[str]
    """The tokens as `attend` labels them, special tokens included."""
    vectors: Float[Tensor, "states T C"]
    """Vectors on the CPU: first the embeddings, then the output of each layer. The last is what the head reads: in
    pre-norm models it is the output of the final norm."""


def hidden_vectors(network: Network, tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[HiddenVectors]:
    """The vectors of each row of ids: of an encoder–decoder's encoder, or of the only stack there is."""
    check_not_copy(network, "take the hidden vectors of")
    check_regards_own(network, "hidden")
    results: dict[int, HiddenVectors] = {}
    for batch in batches_by_length(dict(enumerate(map(len, rows))), HIDDEN_BATCH_TOKENS):
        raise_if_cancelled()
        vectors = _batch_vectors(network, [rows[number] for number in batch])  # [L + 1, B, T, C]
        for row, number in enumerate(batch):
            ids = rows[number]
            row_vectors = vectors[:, row, : len(ids)].cpu()  # [L + 1, t, C], without padding
            results[number] = HiddenVectors(list(token_labels(tokenizer.source_side, ids)), row_vectors)
    return [results[number] for number in range(len(rows))]


@torch.inference_mode()
def _batch_vectors(network: Network, rows: Sequence[Sequence[int]]) -> Float[Tensor, "states B T C"]:
    tokens, lengths = pad_rows(rows, network.device)
    with layer_states(network.decoder if isinstance(network, Decoder) else network.encoder) as states:
        last_vectors(network, tokens, lengths)
    return torch.stack(states)


def last_vectors(
    network: Network, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None = None
) -> Float[Tensor, "B T C"]:
    """The last vectors of a text that is read: of an encoder–decoder's encoder, or of the only stack there is."""
    if isinstance(network, EncoderDecoder):
        return network.encode(tokens, lengths)
    if isinstance(network, Encoder):
        return network.hidden(tokens, lengths)
    return network.hidden(tokens, lengths, lengths if network.config.prefix else None)


@contextmanager
def layer_states(stack: Stack) -> Iterator[list[Tensor]]:
    """Collect the L + 1 states of one pass through a stack: its input, and the output of each layer.

    The last is the output of the stack, which the final norm has normalised if there is one.
    """
    states: list[Tensor] = []
    with ExitStack() as hooks:
        hooks.callback(stack.register_forward_pre_hook(lambda _module, inputs: states.append(inputs[0])).remove)
        for module in (*stack.layers[:-1], stack):
            handle = module.register_forward_hook(lambda _module, _inputs, output: states.append(output))
            hooks.callback(handle.remove)
        yield states
