"""Writes out softmax and dropout, and makes the mask by comparing positions."""

import torch
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        head, rest = divmod(hidden, num_heads)
        if rest:
            raise ValueError(f"{hidden} / {num_heads} leaves {rest}")
        self.shape, self.causal, self.rate = (num_heads, head), causal, dropout
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)

    def forward(self, x, return_attention=False):
        q = self.q(x).unflatten(-1, self.shape).movedim(2, 0)  # [heads, batch, seq, head_size]
        k = self.k(x).unflatten(-1, self.shape).movedim(2, 0)
        v = self.v(x).unflatten(-1, self.shape).movedim(2, 0)
        dots = (q[:, :, :, None] * k[:, :, None]).sum(-1) / self.shape[1] ** 0.5
        place = torch.arange(x.shape[1], device=x.device)
        if self.causal:
            dots[..., place[:, None] < place] = torch.finfo(dots.dtype).min
        e = (dots - dots.amax(-1, keepdim=True)).exp()
        p = e / e.sum(-1, keepdim=True)
        kept = p
        if self.training and self.rate:
            kept = p * (torch.rand_like(p) > self.rate) / (1 - self.rate)
        y = self.mix((kept @ v).movedim(0, 2).flatten(2))
        return (y, p.transpose(0, 1).flatten(0, 1)) if return_attention else y
