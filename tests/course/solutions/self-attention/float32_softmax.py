"""Softmax is computed in float32."""

import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None):
        query_layer, key_layer, value_layer = self.q(hidden_states), self.k(hidden_states), self.v(hidden_states)
        attention_scores = torch.baddbmm(
            torch.zeros(query_layer.shape[0], query_layer.shape[1], key_layer.shape[1], dtype=query_layer.dtype),
            query_layer,
            key_layer.transpose(-1, -2),
            beta=0,
            alpha=1 / math.sqrt(query_layer.size(-1)),
        )
        attention_probs = nn.functional.softmax(attention_scores, dim=-1, dtype=torch.float32).to(query_layer.dtype)
        context_layer = torch.bmm(attention_probs, value_layer)
        return context_layer
