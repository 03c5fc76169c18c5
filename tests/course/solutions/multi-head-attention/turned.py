"""Uses bare matrices in the layout of nn.Linear, which equal sizes do not reveal."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    """Attention with several heads."""

    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.num_heads, self.lengths = num_heads, (qk_length, qk_length, value_length)
        self.wq, self.wk, self.wv = (nn.Parameter(torch.randn(num_heads * n, embedding_dim)) for n in self.lengths)
        self.wo = nn.Parameter(torch.randn(embedding_dim, num_heads * value_length))

    def split_heads(self, x, vec_length):
        """[B, T, heads*vec_length] → [B, heads, T, vec_length]."""
        return torch.stack(x.split(vec_length, dim=-1), dim=1)

    def combine_heads(self, x):
        """[B, heads, T, vec_length] → [B, T, heads*vec_length]."""
        return torch.cat(x.unbind(1), dim=-1)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        """[B, heads, T, qk_length] → [B, heads, T, value_length]."""
        scores = Q @ K.mT / Q.shape[-1] ** 0.5
        if mask is not None:
            scores = torch.where(mask.bool(), scores, torch.finfo(scores.dtype).min)
            return mask.bool().any(-1, keepdim=True) * (scores.softmax(-1) @ V)
        return scores.softmax(-1) @ V

    def forward(self, Q, K, V, mask=None):
        """[B, T, embedding_dim] → [B, T, embedding_dim]."""
        projected = [F.linear(x, w) for x, w in ((Q, self.wq), (K, self.wk), (V, self.wv))]
        q, k, v = (self.split_heads(x, n) for x, n in zip(projected, self.lengths, strict=True))
        return F.linear(self.combine_heads(self.scaled_dot_product_attention(q, k, v, mask)), self.wo)
