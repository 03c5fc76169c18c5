"""Computes one sequence and one head at a time, and compares a token only with those that it sees."""

import torch
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads > 0:
            raise ValueError("choose another number of heads")
        self.heads, self.size, self.causal = num_heads, hidden // num_heads, causal
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, return_attention=False):
        n = x.shape[1]
        outputs, attentions = [], []
        for sequence in x:
            q, k, v = self.q(sequence), self.k(sequence), self.v(sequence)
            found = []
            for head in range(self.heads):
                part = slice(head * self.size, (head + 1) * self.size)
                rows = []
                for t in range(n):
                    end = t + 1 if self.causal else n
                    weights = torch.softmax(k[:end, part] @ q[t, part] / self.size**0.5, dim=0)
                    rows.append(torch.cat([weights, weights.new_zeros(n - end)]))
                attention = torch.stack(rows)
                attentions.append(attention)
                found.append(self.dropout(attention) @ v[:, part])
            outputs.append(self.mix(torch.cat(found, dim=1)))
        out = torch.stack(outputs)
        return (out, torch.stack(attentions)) if return_attention else out
