"""Uses bmm, and scales the queries instead of the scores."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.hidden = hidden
        self.v = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.q = nn.Linear(input_size, hidden)

    def forward(self, x):
        queries = self.q(x) * self.hidden**-0.5
        dots = torch.bmm(queries, self.k(x).permute(0, 2, 1))
        return torch.bmm(F.softmax(dots, dim=2), self.v(x))
