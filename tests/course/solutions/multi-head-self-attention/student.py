"""A student's solution: one step per line, names from the lecture."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads != 0:
            raise ValueError("hidden must be divisible by num_heads")
        self.n = num_heads
        self.d = hidden // num_heads
        self.causal = causal
        self.k = nn.Linear(input_size, hidden)
        self.q = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, return_attention=False):
        B = x.size(0)
        T = x.size(1)
        K = self.k(x)
        Q = self.q(x)
        V = self.v(x)
        # split into heads and fold them into the batch
        K = K.view(B, T, self.n, self.d).transpose(1, 2).reshape(B * self.n, T, self.d)
        Q = Q.view(B, T, self.n, self.d).transpose(1, 2).reshape(B * self.n, T, self.d)
        V = V.view(B, T, self.n, self.d).transpose(1, 2).reshape(B * self.n, T, self.d)
        # scores
        E = torch.bmm(Q, K.transpose(1, 2))
        E = E / np.sqrt(self.d)
        if self.causal:
            M = torch.tril(torch.ones(T, T, device=x.device))
            E = E.masked_fill(M == 0, float("-inf"))
        A = F.softmax(E, dim=2)
        P = self.dropout(A)
        O = torch.bmm(P, V)
        # back to one vector per token
        O = O.view(B, self.n, T, self.d)
        O = O.transpose(1, 2).contiguous()
        O = O.view(B, T, self.n * self.d)
        Y = self.mix(O)
        if return_attention:
            return Y, A
        return Y
