"""Uses operators, a large negative number, the paper's names, and no biases."""

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads = num_heads
        self.qk_length = qk_length
        self.value_length = value_length
        self.W_O = nn.Linear(num_heads * value_length, embedding_dim, bias=False)
        self.W_Q = nn.Linear(embedding_dim, num_heads * qk_length, bias=False)
        self.W_K = nn.Linear(embedding_dim, num_heads * qk_length, bias=False)
        self.W_V = nn.Linear(embedding_dim, num_heads * value_length, bias=False)

    def split_heads(self, x, vec_length):
        B, T, _ = x.shape
        return x.view(B, T, self.num_heads, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        B, _, T, _ = x.shape
        return x.transpose(1, 2).contiguous().view(B, T, -1)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        scores = (Q @ K.transpose(-2, -1)) / self.qk_length**0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = torch.softmax(scores, dim=-1)
        return (weights if mask is None else weights * (mask.sum(-1, keepdim=True) > 0)) @ V

    def forward(self, Q, K, V, mask=None):
        Q = self.split_heads(self.W_Q(Q), self.qk_length)
        K = self.split_heads(self.W_K(K), self.qk_length)
        V = self.split_heads(self.W_V(V), self.value_length)
        out = self.scaled_dot_product_attention(Q, K, V, mask)
        return self.W_O(self.combine_heads(out))
