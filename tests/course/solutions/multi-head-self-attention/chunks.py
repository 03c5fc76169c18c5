"""Splits heads with chunk and stacks them along the batch; reorders the returned weights."""

import torch
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads:
            raise ValueError
        self.num_heads = num_heads
        self.causal = causal
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x, return_attention=False):
        Q, K, V = (torch.cat(layer(x).chunk(self.num_heads, dim=2), dim=0) for layer in (self.q, self.k, self.v))
        A = torch.matmul(Q, K.transpose(-1, -2))
        A = A.div(Q.size(-1) ** 0.5).softmax(dim=-1)
        if self.causal:  # remove hidden weights and renormalise
            A = A.tril()
            A = A / A.sum(dim=-1, keepdim=True)
        H = torch.matmul(self.dropout(A), V)
        out = self.mix(torch.cat(H.chunk(self.num_heads, dim=0), dim=2))
        if return_attention:
            A = torch.stack(A.chunk(self.num_heads, dim=0), dim=1)
            return out, A.flatten(0, 1)
        return out
