"""Keeps the layers in a dictionary too, wraps the output layer, and keeps heads as the last axis."""

import torch
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    """Attention with several heads."""

    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads != 0:
            raise ValueError("num_heads must divide hidden")
        self.num_heads, self.causal = num_heads, causal
        self.layers = nn.ModuleDict({name: nn.Linear(input_size, hidden) for name in "kvq"})
        self.q, self.k, self.v = (self.layers[name] for name in "qkv")
        self.mix = nn.Sequential(nn.Linear(hidden, hidden), nn.Identity())
        self.drop = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x, return_attention=False):
        """[batch, seq, input_size] → [batch, seq, hidden]."""
        q, k, v = (self.layers[name](x).unflatten(2, (self.num_heads, -1)) for name in "qkv")
        scores = torch.einsum("bihd,bjhd->bijh", q, k) * q.size(-1) ** -0.5
        if self.causal:
            row, column = torch.triu_indices(x.size(1), x.size(1), offset=1)
            scores[:, row, column] = float("-inf")
        weights = scores.softmax(dim=2)
        output = self.mix(torch.einsum("bijh,bjhd->bihd", self.drop(weights), v).flatten(2))
        return (output, weights.permute(0, 3, 1, 2).flatten(0, 1)) if return_attention else output
