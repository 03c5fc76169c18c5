"""A correct solution."""

import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    """Every token of a sequence attends to every token of the sequence."""

    def __init__(self, input_size, hidden):
        super().__init__()
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)

    def forward(self, x):
        """[batch, seq, input_size] → [batch, seq, hidden]."""
        q = self.q(x)  # [batch, seq, hidden]
        k = self.k(x)  # [batch, seq, hidden]
        v = self.v(x)  # [batch, seq, hidden]
        scores = q @ k.transpose(1, 2)  # [batch, seq, seq]
        scores = scores / math.sqrt(q.shape[-1])  # [batch, seq, seq]
        weights = torch.softmax(scores, dim=-1)  # [batch, seq, seq]
        mixed = weights @ v  # [batch, seq, hidden]
        return mixed
