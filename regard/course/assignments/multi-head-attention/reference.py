"""A correct solution."""

import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    """Every query attends to the keys that it may see, in several heads."""

    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads, self.qk_length, self.value_length = num_heads, qk_length, value_length
        self.query = nn.Linear(embedding_dim, num_heads * qk_length)
        self.key = nn.Linear(embedding_dim, num_heads * qk_length)
        self.value = nn.Linear(embedding_dim, num_heads * value_length)
        self.output = nn.Linear(num_heads * value_length, embedding_dim)

    def split_heads(self, x, vec_length):
        """[B, T, heads*vec_length] → [B, heads, T, vec_length]."""
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, vec_length).transpose(1, 2)

    def combine_heads(self, x):
        """[B, heads, T, vec_length] → [B, T, heads*vec_length]."""
        return x.transpose(1, 2).flatten(2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        """[B, heads, T, qk_length] and S keys and values → [B, heads, T, value_length]."""
        scores = Q @ K.transpose(2, 3)  # [B, heads, T, S]
        scores = scores / math.sqrt(Q.shape[-1])  # [B, heads, T, S]
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -math.inf)  # [B, heads, T, S]
        weights = torch.softmax(scores, dim=-1).nan_to_num()  # [B, heads, T, S], zeros where nothing may be seen
        mixed = weights @ V  # [B, heads, T, value_length]
        return mixed

    def forward(self, Q, K, V, mask=None):
        """[B, T, embedding_dim] and two times [B, S, embedding_dim] → [B, T, embedding_dim]."""
        q = self.split_heads(self.query(Q), self.qk_length)  # [B, heads, T, qk_length]
        k = self.split_heads(self.key(K), self.qk_length)  # [B, heads, S, qk_length]
        v = self.split_heads(self.value(V), self.value_length)  # [B, heads, S, value_length]
        mixed = self.scaled_dot_product_attention(q, k, v, mask)  # [B, heads, T, value_length]
        return self.output(self.combine_heads(mixed))  # [B, T, embedding_dim]
