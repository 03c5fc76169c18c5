"""A student's solution with loops over the heads' slices written out."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.H = num_heads
        self.dq = qk_length
        self.dv = value_length
        self.query = nn.Linear(embedding_dim, self.H * self.dq)
        self.key = nn.Linear(embedding_dim, self.H * self.dq)
        self.value = nn.Linear(embedding_dim, self.H * self.dv)
        self.output = nn.Linear(self.H * self.dv, embedding_dim)

    def split_heads(self, x, vec_length):
        B, T, _ = x.size()
        x = x.view(B, T, self.H, vec_length)
        x = x.permute(0, 2, 1, 3)
        return x

    def combine_heads(self, x):
        B, H, T, d = x.size()
        x = x.permute(0, 2, 1, 3).contiguous()
        x = x.view(B, T, H * d)
        return x

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        d = Q.size(-1)
        dots = torch.matmul(Q, K.permute(0, 1, 3, 2))
        dots = dots / (d**0.5)
        if mask is not None:
            dots = dots.masked_fill(mask == 0, float("-inf"))
        probs = F.softmax(dots, dim=-1)
        probs = torch.nan_to_num(probs)
        return torch.matmul(probs, V)

    def forward(self, Q, K, V, mask=None):
        qs = self.query(Q)
        ks = self.key(K)
        vs = self.value(V)
        qs = self.split_heads(qs, self.dq)
        ks = self.split_heads(ks, self.dq)
        vs = self.split_heads(vs, self.dv)
        z = self.scaled_dot_product_attention(qs, ks, vs, mask)
        z = self.combine_heads(z)
        return self.output(z)
