"""Uses one layer per head in a loop; queries that see nothing are handled first."""

import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.keys = nn.ModuleList(nn.Linear(embedding_dim, qk_length) for _ in range(num_heads))
        self.queries = nn.ModuleList(nn.Linear(embedding_dim, qk_length) for _ in range(num_heads))
        self.values = nn.ModuleList(nn.Linear(embedding_dim, value_length) for _ in range(num_heads))
        self.projection = nn.Linear(num_heads * value_length, embedding_dim)

    def split_heads(self, x, layers):
        return torch.stack([layer(x) for layer in layers], dim=1)

    def combine_heads(self, x):
        return torch.cat([x[:, head] for head in range(x.shape[1])], dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        scores = torch.matmul(Q, K.mT)
        scores = scores * (1 / math.sqrt(K.shape[3]))
        if mask is not None:
            empty = (mask != 0).sum(dim=-1, keepdim=True) == 0
            scores = torch.where((mask != 0) | empty, scores, float("-inf"))
            return torch.matmul(scores.softmax(3), V) * (~empty).to(V.dtype)
        return torch.matmul(scores.softmax(3), V)

    def forward(self, Q, K, V, mask=None):
        q, k, v = self.split_heads(Q, self.queries), self.split_heads(K, self.keys), self.split_heads(V, self.values)
        heads = []
        for h in range(q.shape[1]):
            one = mask[:, [h]] if mask is not None and mask.dim() == 4 and mask.shape[1] > 1 else mask
            heads.append(self.scaled_dot_product_attention(q[:, [h]], k[:, [h]], v[:, [h]], one))
        return self.projection(self.combine_heads(torch.cat(heads, dim=1)))
