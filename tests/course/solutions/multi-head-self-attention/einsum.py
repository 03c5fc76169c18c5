"""Uses einsum, and a mask in a buffer."""

import torch
from torch import einsum, nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads:
            raise ValueError(f"hidden ({hidden}) is no multiple of num_heads ({num_heads})")
        self.num_heads = num_heads
        self.causal = causal
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(1024, 1024)).view(1, 1, 1024, 1024), persistent=False)

    def forward(self, x, return_attention=False):
        t = x.shape[1]
        q, k, v = (part.unflatten(2, (self.num_heads, -1)) for part in (self.q(x), self.k(x), self.v(x)))
        scores = einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        if self.causal:
            scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, -1e9)
        probabilities = scores.softmax(-1)
        y = self.mix(einsum("bhij,bjhd->bihd", self.drop(probabilities), v).flatten(2))
        return (y, probabilities.reshape(-1, t, t)) if return_attention else y
