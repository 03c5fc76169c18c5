"""Uses nn.MultiheadAttention with projected inputs and the weights of the mix layer."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads != 0:
            raise ValueError("hidden % num_heads must be 0")
        self.hidden, self.num_heads, self.causal, self.dropout = hidden, num_heads, causal, dropout
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)

    def forward(self, x, return_attention=False):
        q, k, v = (layer(x).transpose(0, 1) for layer in (self.q, self.k, self.v))
        same = torch.eye(self.hidden, device=x.device, dtype=x.dtype)
        hidden = None
        if self.causal:
            hidden = torch.ones(len(q), len(q), dtype=torch.bool, device=x.device).triu(1)
        out, weights = F.multi_head_attention_forward(
            q,
            k,
            v,
            self.hidden,
            self.num_heads,
            same.repeat(3, 1),
            None,
            None,
            None,
            False,
            self.dropout,
            self.mix.weight,
            self.mix.bias,
            training=self.training,
            attn_mask=hidden,
            average_attn_weights=False,
        )
        out = out.transpose(0, 1)
        return (out, weights.flatten(0, 1)) if return_attention else out
