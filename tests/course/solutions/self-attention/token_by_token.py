import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.hidden_dim = hidden
        self.q = nn.Linear(in_features=input_size, out_features=hidden)
        self.k = nn.Linear(in_features=input_size, out_features=hidden)
        self.v = nn.Linear(in_features=input_size, out_features=hidden)

    def attend_one(self, sentence):
        queries = self.q(sentence)
        keys = self.k(sentence)
        values = self.v(sentence)
        rows = []
        for query in queries:
            dots = []
            for key in keys:
                dots.append((query * key).sum() / math.sqrt(self.hidden_dim))
            w = torch.softmax(torch.stack(dots), dim=0)
            row = torch.zeros_like(values[0])
            for weight, value in zip(w, values):
                row = row + weight * value
            rows.append(row)
        return torch.stack(rows)

    def forward(self, x):
        out = []
        for sentence in x:
            out.append(self.attend_one(sentence))
        return torch.stack(out, dim=0)
