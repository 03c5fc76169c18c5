"""A module per head, as in many tutorials; each head adds its part of the output."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Head(nn.Module):
    def __init__(self, embedding_dim, qk_length, value_length):
        super().__init__()
        self.query = nn.Linear(embedding_dim, qk_length, bias=False)
        self.key = nn.Linear(embedding_dim, qk_length, bias=False)
        self.value = nn.Linear(embedding_dim, value_length, bias=False)
        self.out = nn.Linear(value_length, embedding_dim, bias=False)


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.heads = nn.ModuleList([Head(embedding_dim, qk_length, value_length) for _ in range(num_heads)])

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        wei = Q @ K.transpose(-2, -1) * K.shape[-1] ** -0.5
        if mask is not None:
            wei = wei.masked_fill(mask == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        wei = torch.nan_to_num(wei, nan=0.0)
        return wei @ V

    def forward(self, Q, K, V, mask=None):
        q = torch.stack([h.query(Q) for h in self.heads], 1)
        k = torch.stack([h.key(K) for h in self.heads], 1)
        v = torch.stack([h.value(V) for h in self.heads], 1)
        out = self.scaled_dot_product_attention(q, k, v, mask)
        return sum(h.out(out[:, i]) for i, h in enumerate(self.heads))
