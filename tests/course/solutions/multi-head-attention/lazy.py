"""Uses lazy layers."""

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    """Lazy layers."""

    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.LazyLinear(num_heads * qk_length, bias=False)
        self.W_k = nn.LazyLinear(num_heads * qk_length, bias=False)
        self.W_v = nn.LazyLinear(num_heads * value_length, bias=False)
        self.W_o = nn.LazyLinear(embedding_dim, bias=False)

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        d = Q.shape[-1]
        scores = torch.matmul(Q, K.transpose(-2, -1)) / torch.sqrt(torch.tensor(d, dtype=Q.dtype, device=Q.device))
        if mask is not None:
            scores = torch.where(
                mask.bool(), scores, torch.tensor(-torch.inf, dtype=scores.dtype, device=scores.device)
            )
        probs = torch.softmax(scores, -1)
        probs = torch.nan_to_num(probs)
        return torch.matmul(probs, V)

    def forward(self, Q, K, V, mask=None):
        queries = self.split_heads(self.W_q(Q), self.W_q.out_features // self.num_heads)
        keys = self.split_heads(self.W_k(K), self.W_k.out_features // self.num_heads)
        values = self.split_heads(self.W_v(V), self.W_v.out_features // self.num_heads)
        return self.W_o(self.combine_heads(self.scaled_dot_product_attention(queries, keys, values, mask)))
