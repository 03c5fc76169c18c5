"""Uses nn.MultiheadAttention's own forward with projected inputs."""

import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.hidden = hidden
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)

    def forward(self, x):
        q, k, v = (layer(x).transpose(0, 1) for layer in (self.q, self.k, self.v))
        same = torch.eye(self.hidden)
        out, _ = F.multi_head_attention_forward(
            q, k, v, self.hidden, 1, torch.cat([same, same, same]), None, None, None, False, 0.0, same, None
        )
        return out.transpose(0, 1)
