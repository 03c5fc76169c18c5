"""A query layer and one layer for keys and values."""

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads, self.qk, self.vl = num_heads, qk_length, value_length
        self.q_proj = nn.Linear(embedding_dim, num_heads * qk_length)
        self.kv_proj = nn.Linear(embedding_dim, num_heads * (qk_length + value_length))
        self.out_proj = nn.Linear(num_heads * value_length, embedding_dim)

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        scores = torch.einsum("...qd,...kd->...qk", Q / self.qk**0.5, K)
        if mask is not None:
            bias = torch.zeros_like(scores).masked_fill_(mask.expand_as(scores) == 0, float("-inf"))
            scores = scores + bias
        return scores.softmax(-1).nan_to_num() @ V

    def forward(self, Q, K, V, mask=None):
        n = self.num_heads * self.qk
        q = self.split_heads(self.q_proj(Q), self.qk)
        k = self.split_heads(self.kv_proj(K)[..., :n], self.qk)
        v = self.split_heads(self.kv_proj(V)[..., n:], self.vl)
        return self.out_proj(self.combine_heads(self.scaled_dot_product_attention(q, k, v, mask)))
