"""One vector for each text, pooled from the vectors of the last layer.

Dimensions: N texts, B rows, T tokens, C model width.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import check_type
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.hidden_vectors import last_vectors
from regard.errors import RegardError
from regard.model.masks import real_positions
from regard.model.transformer import Encoder, Network

Pooling = Literal["mean", "cls"]
"""The mean over all tokens of a text, or the vector of the first token, [CLS] in BERT."""

EMBEDDING_BATCH_TOKENS = 8_192
"""Tokens of a batch, padding included."""


def check_pooling(network: Network, pooling: Pooling) -> None:
    """Raise a RegardError if the network's vectors cannot be pooled in this way."""
    check_type("pooling", pooling, Pooling)
    if pooling == "cls" and not isinstance(network, Encoder):
        reason = "sees only itself" if network.config.kind == "decoder" else "stands for its word and not for the text"
        raise RegardError(
            f'pooling="cls" takes the first token, which in {network.config.kind_with_article} {reason}: use "mean"'
        )


def sentence_vectors(
    network: Network, rows: Sequence[Sequence[int]], pooling: Pooling = "mean"
) -> Float[Tensor, "N C"]:
    """The vector of each row of ids, on the CPU and at least in float32. Padding does not count."""
    check_pooling(network, pooling)
    vectors: dict[int, Tensor] = {}
    for batch in batches_by_length(dict(enumerate(map(len, rows))), EMBEDDING_BATCH_TOKENS):
        raise_if_cancelled()
        pooled = _pooled_batch(network, [rows[number] for number in batch], pooling)  # [B, C]
        vectors |= dict(zip(batch, pooled, strict=True))
    if not vectors:
        return torch.empty(0, network.config.d_model)
    return torch.stack([vectors[number] for number in range(len(rows))])


@torch.inference_mode()
def _pooled_batch(network: Network, rows: Sequence[Sequence[int]], pooling: Pooling) -> Float[Tensor, "B C"]:
    tokens, lengths = pad_rows(rows, network.device)
    hidden = last_vectors(network, tokens, lengths)  # [B, T, C]
    hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    if pooling == "cls":
        return hidden[:, 0].cpu()
    is_padding = ~real_positions(lengths, tokens.size(1))  # [B, T]
    total = hidden.masked_fill(is_padding[..., None], 0.0).sum(1)  # [B, C]
    return (total / lengths[:, None]).cpu()
