"""Beginner: broadcasting and sums instead of matrix products."""

import torch
import torch.nn as nn


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.hidden = hidden
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)

    def forward(self, x):
        Q = self.q(x)
        K = self.k(x)
        V = self.v(x)
        # compare every query with every key
        similarity = (Q.unsqueeze(2) * K.unsqueeze(1)).sum(dim=3)
        similarity = similarity / torch.sqrt(torch.tensor(float(self.hidden)))
        e = torch.exp(similarity - similarity.max(dim=2, keepdim=True).values)
        attention = e / e.sum(dim=2, keepdim=True)
        result = (attention.unsqueeze(3) * V.unsqueeze(1)).sum(dim=2)
        return result
