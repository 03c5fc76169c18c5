"""Uses one layer for all three projections, and folds heads into the batch."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads = num_heads
        self.widths = [num_heads * qk_length, num_heads * qk_length, num_heads * value_length]
        self.lengths = [qk_length, qk_length, value_length]
        self.qkv = nn.Linear(embedding_dim, sum(self.widths))
        self.out = nn.Linear(num_heads * value_length, embedding_dim)

    def split_heads(self, x, vec_length):
        B, T, _ = x.shape
        return x.view(B, T, self.num_heads, vec_length).transpose(1, 2).reshape(B * self.num_heads, T, vec_length)

    def combine_heads(self, x):
        return x.unflatten(0, (-1, self.num_heads)).transpose(1, 2).flatten(2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        scores = torch.bmm(Q / Q.size(-1) ** 0.5, K.transpose(1, 2))
        if mask is not None:
            shape = (Q.size(0) // self.num_heads, self.num_heads, Q.size(1), K.size(1))
            mask = mask.expand(shape).flatten(0, 1)
            scores = scores + (1.0 - mask.to(scores.dtype)) * torch.finfo(scores.dtype).min
        mixed = torch.bmm(scores.softmax(-1), V)
        return mixed if mask is None else mixed * (mask != 0).any(-1, keepdim=True)

    def forward(self, Q, K, V, mask=None):
        weights, biases = self.qkv.weight.split(self.widths), self.qkv.bias.split(self.widths)
        parts = [F.linear(x, w, b) for x, w, b in zip((Q, K, V), weights, biases, strict=True)]
        parts = [self.split_heads(x, length) for x, length in zip(parts, self.lengths, strict=True)]
        return self.out(self.combine_heads(self.scaled_dot_product_attention(*parts, mask)))
