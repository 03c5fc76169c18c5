import math

import torch
from torch import Tensor, nn


def _safe_softmax(z: Tensor) -> Tensor:
    """softmax, zeros for rows of -inf"""
    p = torch.softmax(z, dim=-1)
    return torch.nan_to_num(p, nan=0.0)


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads, self.qk, self.vl = num_heads, qk_length, value_length
        self.to_q = nn.Linear(embedding_dim, num_heads * qk_length, bias=False)
        self.to_kv = nn.ModuleDict(
            {
                "k": nn.Linear(embedding_dim, num_heads * qk_length, bias=False),
                "v": nn.Linear(embedding_dim, num_heads * value_length, bias=False),
            }
        )
        self.proj = nn.Linear(num_heads * value_length, embedding_dim)

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, self.num_heads, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        b, h, t, d = x.shape
        return x.permute(0, 2, 1, 3).contiguous().view(b, t, h * d)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        if mask is not None:
            mask = mask.expand(Q.shape[0], Q.shape[1], Q.shape[2], K.shape[2])
        results = []
        for h in range(Q.shape[1]):
            q, k, v = Q[:, h], K[:, h], V[:, h]
            s = q.bmm(k.transpose(1, 2))
            s = s / math.sqrt(q.shape[-1])
            if mask is not None:
                s = s.masked_fill(mask[:, h] == 0, -math.inf)
            results.append(_safe_softmax(s).bmm(v))
        return torch.stack(results, dim=1)

    def forward(self, Q, K, V, mask=None):
        q = self.split_heads(self.to_q(Q), self.qk)
        k = self.split_heads(self.to_kv["k"](K), self.qk)
        v = self.split_heads(self.to_kv["v"](V), self.vl)
        z = self.scaled_dot_product_attention(q, k, v, mask)
        return self.proj(self.combine_heads(z))
