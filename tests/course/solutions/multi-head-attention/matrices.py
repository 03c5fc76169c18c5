"""Uses bare matrices and einsum; attention also returns the weights, and hidden ones are set to zero."""

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.h = num_heads
        self.wq = nn.Parameter(torch.randn(embedding_dim, num_heads * qk_length) * 0.1)
        self.wk = nn.Parameter(torch.randn(embedding_dim, num_heads * qk_length) * 0.1)
        self.wv = nn.Parameter(torch.randn(embedding_dim, num_heads * value_length) * 0.1)
        self.wo = nn.Parameter(torch.randn(num_heads * value_length, embedding_dim) * 0.1)

    def split_heads(self, x, vec_length):
        return torch.stack(x.split(vec_length, dim=-1), dim=1)

    def combine_heads(self, x):
        return torch.cat(list(x.unbind(1)), dim=-1)

    def scaled_dot_product_attention(self, Q, K, V, mask):
        scores = torch.einsum("bhtd,bhsd->bhts", Q, K) / Q.shape[-1] ** 0.5
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        if mask is not None:
            e = e * mask
        weights = e / e.sum(-1, keepdim=True).clamp(min=1e-9)
        return torch.einsum("bhts,bhsd->bhtd", weights, V), weights

    def forward(self, Q, K, V, mask):
        q, k, v = Q @ self.wq, K @ self.wk, V @ self.wv
        split = [self.split_heads(each, each.shape[-1] // self.h) for each in (q, k, v)]
        out, _ = self.scaled_dot_product_attention(*split, mask)
        return self.combine_heads(out) @ self.wo
