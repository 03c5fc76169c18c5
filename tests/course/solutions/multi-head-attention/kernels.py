"""JAX-style weights [embedding, heads, features] with bare biases."""

import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()

        def w(*s):
            return nn.Parameter(torch.randn(*s) / math.sqrt(s[0]))

        self.query_kernel, self.query_b = (
            w(embedding_dim, num_heads, qk_length),
            nn.Parameter(torch.randn(num_heads, qk_length)),
        )
        self.key_kernel, self.key_b = (
            w(embedding_dim, num_heads, qk_length),
            nn.Parameter(torch.randn(num_heads, qk_length)),
        )
        self.value_kernel, self.value_b = (
            w(embedding_dim, num_heads, value_length),
            nn.Parameter(torch.randn(num_heads, value_length)),
        )
        self.out_kernel, self.out_b = (
            w(num_heads, value_length, embedding_dim),
            nn.Parameter(torch.randn(embedding_dim)),
        )

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        if mask is None:
            mask = torch.ones(1, 1, dtype=torch.bool, device=Q.device)
        s = Q.matmul(K.mT).div(math.sqrt(Q.size(-1)))
        s = s.masked_fill(mask.logical_not(), torch.finfo(s.dtype).min)
        p = s.softmax(-1) * mask.any(-1, keepdim=True)
        return p.matmul(V)

    def forward(self, Q, K, V, mask=None):
        q = torch.tensordot(Q, self.query_kernel, dims=1) + self.query_b
        k = torch.tensordot(K, self.key_kernel, dims=1) + self.key_b
        v = torch.tensordot(V, self.value_kernel, dims=1) + self.value_b
        y = self.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v)), mask)
        return torch.tensordot(y.transpose(1, 2), self.out_kernel, dims=2) + self.out_b
