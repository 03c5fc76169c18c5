import torch
import torch.nn.functional as F
from torch import nn


def to_heads(t, n):
    B, L, D = t.size()
    return t.reshape(B, L, n, D // n).permute(0, 2, 1, 3).reshape(B * n, L, D // n)


def from_heads(t, n):
    BN, L, d = t.size()
    return t.reshape(BN // n, n, L, d).permute(0, 2, 1, 3).reshape(BN // n, L, n * d)


def hide_future(s):
    L = s.size(-1)
    future = torch.ones(L, L, device=s.device).triu(1) > 0
    return torch.where(future, torch.full_like(s, float("-inf")), s)


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads != 0:
            raise ValueError("hidden must be divisible by num_heads")
        self.n = num_heads
        self.is_causal = causal
        self.p = dropout
        self.q, self.k, self.v = (nn.Linear(input_size, hidden) for _ in range(3))
        self.mix = nn.Linear(hidden, hidden)

    def forward(self, x, return_attention=False):
        q = to_heads(self.q(x), self.n)
        k = to_heads(self.k(x), self.n)
        v = to_heads(self.v(x), self.n)
        s = torch.bmm(q, k.mT) / (q.size(-1) ** 0.5)
        if self.is_causal:
            s = hide_future(s)
        a = F.softmax(s, dim=-1)
        a_drop = F.dropout(a, self.p, training=self.training)
        y = self.mix(from_heads(torch.bmm(a_drop, v), self.n))
        if return_attention:
            return y, a
        return y
