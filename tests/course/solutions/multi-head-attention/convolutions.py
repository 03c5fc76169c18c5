"""1x1 convolutions as projections, sdpa inside."""

from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.h = num_heads
        self.to_q = nn.Conv1d(embedding_dim, num_heads * qk_length, 1)
        self.to_k = nn.Conv1d(embedding_dim, num_heads * qk_length, 1)
        self.to_v = nn.Conv1d(embedding_dim, num_heads * value_length, 1)
        self.to_out = nn.Conv1d(num_heads * value_length, embedding_dim, 1)

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        if mask is None:
            return F.scaled_dot_product_attention(Q, K, V)
        mask = mask.bool()
        visible = mask.any(-1, keepdim=True)
        return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask | ~visible) * visible

    def forward(self, Q, K, V, mask=None):
        q, k, v = (f(x.transpose(1, 2)).transpose(1, 2) for f, x in ((self.to_q, Q), (self.to_k, K), (self.to_v, V)))
        q = self.split_heads(q, q.shape[-1] // self.h)
        k = self.split_heads(k, k.shape[-1] // self.h)
        v = self.split_heads(v, v.shape[-1] // self.h)
        y = self.combine_heads(self.scaled_dot_product_attention(q, k, v, mask))
        return self.to_out(y.transpose(1, 2)).transpose(1, 2)
