"""Lists of matrices, one per head, and a loop."""

import torch
from torch import nn


def attend(q, k, v, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5  # [B, T, S]
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -torch.inf)
    return scores.softmax(-1).nan_to_num(0) @ v


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.n = num_heads
        self.wq = nn.ParameterList([nn.Parameter(torch.randn(embedding_dim, qk_length)) for _ in range(num_heads)])
        self.wk = nn.ParameterList([nn.Parameter(torch.randn(embedding_dim, qk_length)) for _ in range(num_heads)])
        self.wv = nn.ParameterList([nn.Parameter(torch.randn(embedding_dim, value_length)) for _ in range(num_heads)])
        self.wo = nn.Parameter(torch.randn(num_heads * value_length, embedding_dim))

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        out = []
        for h in range(self.n):
            m = mask
            if m is not None and m.dim() == 4:
                m = m[:, h if m.size(1) > 1 else 0]
            out.append(attend(Q[:, h], K[:, h], V[:, h], m))
        return torch.stack(out, dim=1)

    def forward(self, Q, K, V, mask=None):
        q = torch.stack([Q @ w for w in self.wq], 1)
        k = torch.stack([K @ w for w in self.wk], 1)
        v = torch.stack([V @ w for w in self.wv], 1)
        return self.combine_heads(self.scaled_dot_product_attention(q, k, v, mask)) @ self.wo
