"""A loop over heads, slicing the weights of the layers."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden // num_heads * num_heads != hidden:
            raise ValueError("hidden must be divisible by num_heads")
        self.size = hidden // num_heads
        self.num_heads = num_heads
        self.causal = causal
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def head(self, x, i):
        part = slice(i * self.size, (i + 1) * self.size)
        q = F.linear(x, self.q.weight[part], self.q.bias[part])
        k = F.linear(x, self.k.weight[part], self.k.bias[part])
        v = F.linear(x, self.v.weight[part], self.v.bias[part])
        scores = q @ k.transpose(1, 2) / self.size**0.5
        if self.causal:
            future = torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1).bool()
            scores[:, future] = -float("inf")
        weights = scores.softmax(2)
        return self.dropout(weights) @ v, weights

    def forward(self, x, return_attention=False):
        outs, all_weights = zip(*[self.head(x, i) for i in range(self.num_heads)])
        output = self.mix(torch.cat(outs, dim=2))
        if not return_attention:
            return output
        return output, torch.stack(all_weights, dim=1).flatten(0, 1)
