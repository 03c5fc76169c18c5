"""Attends token by token."""

from math import sqrt

from torch import nn, softmax, stack


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        for name in "qkv":
            setattr(self, name, nn.Linear(input_size, hidden))
        self.root = sqrt(hidden)

    def look(self, query, keys, values):
        weights = softmax(keys @ query / self.root, dim=0)
        return weights @ values

    def forward(self, x):
        batches = []
        for tokens in x:
            keys, values = self.k(tokens), self.v(tokens)
            batches.append(stack([self.look(self.q(token), keys, values) for token in tokens]))
        return stack(batches)
