"""Uses torch's own function; computes the weights only if requested."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden // num_heads * num_heads != hidden:
            raise ValueError("heads do not divide")
        self.num_heads, self.causal, self.dropout = num_heads, causal, dropout
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)

    def forward(self, x, return_attention=False):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.causal)
        y = self.mix(y.transpose(1, 2).contiguous().view(b, t, -1))
        if not return_attention:
            return y
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if self.causal:
            scores = torch.where(torch.ones(t, t, device=x.device).tril().bool(), scores, float("-inf"))
        return y, scores.softmax(-1).view(b * self.num_heads, t, t)
