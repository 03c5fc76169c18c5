"""Computes one sequence and one token at a time."""

import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)

    def forward(self, x):
        batch, seq, _ = x.shape
        out = torch.zeros(batch, seq, self.q.out_features)
        for b in range(batch):
            q, k, v = self.q(x[b]), self.k(x[b]), self.v(x[b])
            for t in range(seq):
                scores = torch.stack([torch.dot(q[t], k[s]) for s in range(seq)])
                scores = scores / math.sqrt(len(q[t]))
                weights = torch.softmax(scores, dim=0)
                for s in range(seq):
                    out[b, t] = out[b, t] + weights[s] * v[s]
        return out
