"""Folds heads into the batch, with bmm and an additive mask."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads != 0:
            raise ValueError("hidden must be divisible by num_heads")
        self.h, self.d = num_heads, hidden // num_heads
        self.causal = causal
        self.p = dropout
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)

    def fold(self, y):
        b, t, _ = y.shape
        return y.view(b, t, self.h, self.d).permute(0, 2, 1, 3).contiguous().view(b * self.h, t, self.d)

    def forward(self, x, return_attention=False):
        b, t, _ = x.size()
        q, k, v = self.fold(self.q(x)), self.fold(self.k(x)), self.fold(self.v(x))
        s = torch.bmm(q / self.d**0.5, k.transpose(1, 2))
        if self.causal:
            s = s + torch.triu(torch.full((t, t), float("-inf"), device=s.device, dtype=s.dtype), diagonal=1)
        p = F.softmax(s, dim=2)
        o = torch.bmm(F.dropout(p, p=self.p, training=self.training), v)
        o = o.view(b, self.h, t, self.d).permute(0, 2, 1, 3).contiguous().view(b, t, self.h * self.d)
        o = self.mix(o)
        if return_attention:
            return o, p
        return o
