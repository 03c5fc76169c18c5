"""The vectors of every layer for each token of a text.

Dimensions: B rows, T tokens, C model width, L layers; L + 1 states, the embeddings and the output of each layer.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.tokenizer import Tokenizer
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.token_labels import token_labels
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
    results: dict[int, HiddenVectors] = {}
    for batch in batches_by_length(dict(enumerate(map(len, rows))), HIDDEN_BATCH_TOKENS):
        raise_if_cancelled()
        vectors = _batch_vectors(network, [rows[number] for number in batch])  # [L + 1, B, T, C]
        for row, number in enumerate(batch):
            ids = rows[number]
            row_vectors = vectors[:, row, : len(ids)].cpu()  # [L + 1, t, C], without padding
            results[number] = HiddenVectors(list(token_labels(tokenizer, ids)), row_vectors)
    return [results[number] for number in range(len(rows))]


@torch.inference_mode()
def _batch_vectors(network: Network, rows: Sequence[Sequence[int]]) -> Float[Tensor, "states B T C"]:
    tokens, lengths = pad_rows(rows, network.device)
    stack = network.decoder if isinstance(network, Decoder) else network.encoder
    with _outputs_of([network.embedding, *stack.layers[:-1], stack]) as outputs:
        if isinstance(network, EncoderDecoder):
            network.encode(tokens, lengths)
        elif isinstance(network, Encoder):
            network.hidden(tokens, lengths)
        else:
            network.hidden(tokens, lengths, lengths if network.config.prefix else None)
    return torch.stack(outputs)


@contextmanager
def _outputs_of(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Collect the output of each module, in the order of the calls."""
    outputs: list[Tensor] = []
    with ExitStack() as hooks:
        for module in modules:
            handle = module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
            hooks.callback(handle.remove)
        yield outputs
