"""Uses nn.MultiheadAttention's own forward on projected heads, padded to the same width with zeros."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads, self.qk_length, self.value_length = num_heads, qk_length, value_length
        self.layer1 = nn.Linear(embedding_dim, num_heads * qk_length)
        self.layer2 = nn.Linear(embedding_dim, num_heads * qk_length)
        self.layer3 = nn.Linear(embedding_dim, num_heads * value_length)
        self.layer4 = nn.Linear(num_heads * value_length, embedding_dim)

    def split_heads(self, x, vec_length):
        return x.unflatten(2, (self.num_heads, vec_length)).transpose(1, 2)

    def combine_heads(self, x):
        return x.transpose(1, 2).flatten(2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        wide = max(self.qk_length, self.value_length)
        Q = Q * (wide / self.qk_length) ** 0.5
        q, k, v = (self.combine_heads(F.pad(x, (0, wide - x.shape[-1]))).transpose(0, 1) for x in (Q, K, V))
        width, shape = self.num_heads * wide, (Q.shape[0], self.num_heads, Q.shape[2], K.shape[2])
        hidden, empty = None, torch.zeros(1, dtype=torch.bool, device=Q.device)
        if mask is not None:
            empty = ~(mask != 0).any(-1, keepdim=True)
            hidden = ((mask == 0) & ~empty).expand(shape).flatten(0, 1)
        same = torch.eye(width, dtype=Q.dtype, device=Q.device)
        out, _ = F.multi_head_attention_forward(
            q,
            k,
            v,
            width,
            self.num_heads,
            same.repeat(3, 1),
            None,
            None,
            None,
            False,
            0.0,
            same,
            None,
            attn_mask=hidden,
        )
        out = self.split_heads(out.transpose(0, 1), wide)[..., : self.value_length]
        return out.masked_fill(empty, 0)

    def forward(self, Q, K, V, mask=None):
        Q = self.split_heads(self.layer1(Q), self.qk_length)
        K = self.split_heads(self.layer2(K), self.qk_length)
        V = self.split_heads(self.layer3(V), self.value_length)
        return self.layer4(self.combine_heads(self.scaled_dot_product_attention(Q, K, V, mask)))
