"""A compact solution with einsum and helper functions."""

import torch
from torch import einsum, nn


class MultiHeadSelfAttention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads:
            raise ValueError(f"hidden ({hidden}) is not a multiple of num_heads ({num_heads})")
        self.q, self.k, self.v = (nn.Linear(input_size, hidden) for _ in range(3))
        self.mix = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(dropout)
        self.heads, self.causal = num_heads, causal

    def heads_of(self, layer, x):
        return layer(x).unflatten(-1, (self.heads, -1))  # [batch, seq, heads, head_size]

    def weights(self, x):
        query, key = self.heads_of(self.q, x), self.heads_of(self.k, x)
        scores = einsum("bihd,bjhd->bhij", query, key) / query.size(-1) ** 0.5
        if self.causal:
            scores = scores + self.future(x)
        return scores.softmax(-1)

    def future(self, x):
        size = x.size(1)
        return torch.full((size, size), float("-inf"), device=x.device, dtype=x.dtype).triu(1)

    def forward(self, x, return_attention=False):
        weights = self.weights(x)
        values = self.heads_of(self.v, x)
        mixed = einsum("bhij,bjhd->bihd", self.drop(weights), values).flatten(2)
        output = self.mix(mixed)
        return (output, weights.flatten(0, 1)) if return_attention else output
