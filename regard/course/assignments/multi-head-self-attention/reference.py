"""A correct solution."""

import math

import torch
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    """Every token attends to all tokens of its sequence, or to those up to itself, in several heads."""

    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {hidden} features")
        self.num_heads, self.head_size, self.causal = num_heads, hidden // num_heads, causal
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def split(self, features):
        """[batch, seq, hidden] → [batch, heads, seq, head_size]."""
        batch, seq, _ = features.shape
        return features.reshape(batch, seq, self.num_heads, self.head_size).transpose(1, 2)

    def forward(self, x, return_attention=False):
        """[batch, seq, input_size] → [batch, seq, hidden], and [batch·heads, seq, seq] if requested."""
        batch, seq, _ = x.shape
        q = self.split(self.q(x))  # [batch, heads, seq, head_size]
        k = self.split(self.k(x))  # [batch, heads, seq, head_size]
        v = self.split(self.v(x))  # [batch, heads, seq, head_size]
        scores = q @ k.transpose(2, 3)  # [batch, heads, seq, seq]
        scores = scores / math.sqrt(self.head_size)  # [batch, heads, seq, seq]
        if self.causal:
            visible = torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()  # [seq, seq]
            scores = scores.masked_fill(~visible, -math.inf)  # [batch, heads, seq, seq]
        weights = torch.softmax(scores, dim=-1)  # [batch, heads, seq, seq]
        mixed = self.dropout(weights) @ v  # [batch, heads, seq, head_size]
        mixed = mixed.transpose(1, 2).reshape(batch, seq, -1)  # [batch, seq, hidden]
        output = self.mix(mixed)  # [batch, seq, hidden]
        attention = weights.flatten(0, 1)  # [batch*heads, seq, seq]
        return (output, attention) if return_attention else output
