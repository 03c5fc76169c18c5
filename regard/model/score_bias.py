"""Positions as a bias on the attention scores: ALiBi (Press et al. 2022) and T5's relative bias (Raffel et al. 2020).

A bias depends on the head and on the distance between query and key. It is computed once per pass, for the positions at
hand, and serves every self-attention of a stack; cross-attention has none. It takes the memory of the scores of one
layer, also for packed rows on a GPU, which then have a dense mask.

Dimensions: T queries, S keys, H heads.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.positions import wide


class AlibiBias(nn.Module):
    """Minus the distance, times a slope for each head. A key after the query is as distant as one before it: the paper
    has causal models only."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(
        self, queries: Int[Tensor, "*B T"], keys: Int[Tensor, "*K S"], dtype: torch.dtype
    ) -> Float[Tensor, "*B H T S"]:
        """The bias for queries and keys at these positions."""
        slopes = alibi_slopes(self.heads, wide(dtype), queries.device)[:, None, None]  # [H, 1, 1]
        return (-slopes * distances(queries, keys).abs()[..., None, :, :]).to(dtype)  # [*B, H, T, S]


class RelativeBias(nn.Module):
    """A learned bias for each head and each class of distances."""

    def __init__(self, heads: int, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__()
        self.max_distance, self.causal = max_distance, causal
        self.table = nn.Embedding(buckets, heads)

    def forward(
        self, queries: Int[Tensor, "*B T"], keys: Int[Tensor, "*K S"], dtype: torch.dtype
    ) -> Float[Tensor, "*B H T S"]:
        """The bias for queries and keys at these positions."""
        buckets = distance_buckets(
            distances(queries, keys), self.table.num_embeddings, self.max_distance, self.causal
        )  # [*B, T, S]
        return self.table(buckets).movedim(-1, -3).to(dtype)  # [*B, T, S, H] → [*B, H, T, S]


def score_bias(config: ModelConfig, causal: bool) -> AlibiBias | RelativeBias | None:
    """The bias that a config describes, if its positions are encoded by one."""
    if config.positions == "alibi":
        return AlibiBias(config.heads)
    if config.positions == "t5":
        return RelativeBias(config.heads, config.relative_buckets, config.relative_distance, causal)
    return None


def distances(queries: Int[Tensor, "*B T"], keys: Int[Tensor, "*K S"]) -> Int[Tensor, "*B T S"]:
    """How far each key is from each query; negative if it is before it."""
    return keys[..., None, :] - queries[..., :, None]


def alibi_slopes(heads: int, dtype: torch.dtype, device: torch.device | None = None) -> Float[Tensor, " heads"]:
    """ALiBi's slopes: for n heads, a power of two, 2^(-8/n), 2^(-16/n), …, 2^-8.

    Otherwise those for the next smaller power of two, followed by every other slope for twice as many heads.

    >>> alibi_slopes(3, torch.float32)
    tensor([0.0625, 0.0039, 0.2500])
    """
    power = 2 ** (heads.bit_length() - 1)
    ranks = torch.arange(heads, device=device, dtype=dtype)
    first, others = 2 ** (-8 / power * (ranks[:power] + 1)), 2 ** (-4 / power * (2 * ranks[: heads - power] + 1))
    return torch.cat([first, others])


def distance_buckets(distance: Int[Tensor, "*B"], buckets: int, max_distance: int, causal: bool) -> Int[Tensor, "*B"]:
    """The number of each distance's class in T5: small distances have classes of their own, larger ones share classes
    whose sizes grow logarithmically up to `max_distance`.

    In causal attention all classes are for keys before the query; otherwise the second half is for keys after it.

    >>> distance_buckets(torch.tensor([-20, -2, -1, 0, 1]), 8, 16, causal=False)
    tensor([3, 2, 1, 0, 5])
    """
    first = torch.zeros_like(distance)
    if causal:
        distance = -distance.clamp(max=0)
    else:
        buckets //= 2
        first, distance = (distance > 0) * buckets, distance.abs()
    exact = buckets // 2  # distances below have a class of their own
    octaves = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    large = exact + (octaves * (buckets - exact)).long()
    return first + distance.where(distance < exact, large.clamp(max=buckets - 1))
