"""Uses einsum."""

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(input_size, hidden) for _ in range(3))
        self.scale = torch.sqrt(torch.tensor(float(hidden)))

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        similarity = torch.einsum("bqd,bkd->bqk", q, k) / self.scale
        attention = similarity.softmax(dim=-1)
        return torch.einsum("bqk,bkd->bqd", attention, v)
