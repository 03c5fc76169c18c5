"""Uses torch's own function, and layers in a list as in the Annotated Transformer."""

import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.sizes = [(num_heads, qk_length), (num_heads, qk_length), (num_heads, value_length)]
        outs = [heads * length for heads, length in self.sizes]
        self.linears = nn.ModuleList([nn.Linear(embedding_dim, out) for out in outs])
        self.linears.append(nn.Linear(num_heads * value_length, embedding_dim))

    def split_heads(self, x, sizes):
        return x.unflatten(-1, sizes).transpose(1, 2)

    def combine_heads(self, x):
        return x.transpose(1, 2).flatten(2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        if mask is not None:
            mask = mask.bool()
        out = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        if mask is not None:
            out = out.masked_fill(~mask.any(-1, keepdim=True), 0)
        return out

    def forward(self, Q, K, V, mask=None):
        parts = [self.split_heads(f(x), s) for f, x, s in zip(self.linears, (Q, K, V), self.sizes, strict=False)]
        return self.linears[-1](self.combine_heads(self.scaled_dot_product_attention(*parts, mask=mask)))
