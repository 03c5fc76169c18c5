"""Uses lazy layers, and one tensor for queries, keys and values."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads > 0:
            raise ValueError(f"{hidden=} must be a multiple of {num_heads=}")
        self.h, self.causal, self.rate = num_heads, causal, dropout
        self.q, self.k, self.v, self.mix = (nn.LazyLinear(hidden) for _ in range(4))

    def forward(self, x, return_attention=False):
        b, t, _ = x.shape
        fused = torch.cat([layer(x) for layer in (self.q, self.k, self.v)], -1)
        q, k, v = fused.view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        if not return_attention:
            y = F.scaled_dot_product_attention(
                q, k, v, is_causal=self.causal, dropout_p=self.rate if self.training else 0
            )
            return self.mix(y.transpose(1, 2).reshape(b, t, -1))
        logits = q @ k.mT / k.size(-1) ** 0.5
        if self.causal:
            logits = logits + torch.triu(torch.full_like(logits, -torch.inf), 1)
        p = logits.softmax(-1)
        y = F.dropout(p, self.rate, self.training) @ v
        return self.mix(y.transpose(1, 2).reshape(b, t, -1)), p.view(-1, t, t)
