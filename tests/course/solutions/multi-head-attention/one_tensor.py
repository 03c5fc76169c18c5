"""One tensor for queries, keys and values of each head."""

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.sizes = [qk_length, qk_length, value_length]
        self.in_weight = nn.Parameter(torch.randn(num_heads, embedding_dim, sum(self.sizes)))
        self.out_weight = nn.Parameter(torch.randn(embedding_dim, num_heads * value_length))

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        scores = Q @ K.transpose(-1, -2) / self.sizes[0] ** 0.5
        if mask is None:
            return scores.softmax(-1) @ V
        scores = scores.masked_fill(mask == False, -1e30)
        weights = scores.softmax(-1).masked_fill(mask == False, 0.0)
        return weights @ V

    def forward(self, Q, K, V, mask=None):
        wq, wk, wv = self.in_weight.split(self.sizes, dim=-1)
        q, k, v = Q[:, None] @ wq, K[:, None] @ wk, V[:, None] @ wv
        merged = self.combine_heads(self.scaled_dot_product_attention(q, k, v, mask))
        return nn.functional.linear(merged, self.out_weight)
