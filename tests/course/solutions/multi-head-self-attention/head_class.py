import torch
from torch import nn


class _Head(nn.Module):
    """One head on slices of the projections."""

    def __init__(self, causal, p):
        super().__init__()
        self.causal, self.drop = causal, nn.Dropout(p)

    def scores(self, qi, ki):
        raw = qi @ ki.transpose(1, 2)
        raw = raw * (qi.shape[2] ** -0.5)
        if self.causal:
            n = raw.shape[1]
            idx = torch.arange(n, device=raw.device)
            raw = raw.masked_fill(idx[None, :] > idx[:, None], torch.finfo(raw.dtype).min)
        return raw

    def forward(self, qi, ki, vi):
        attn = self.scores(qi, ki).softmax(2)
        return self.drop(attn) @ vi, attn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads:
            raise ValueError(f"{hidden} % {num_heads} != 0")
        self.q = nn.Linear(input_size, hidden)
        self.k = nn.Linear(input_size, hidden)
        self.v = nn.Linear(input_size, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.heads = nn.ModuleList([_Head(causal, dropout) for _ in range(num_heads)])

    def forward(self, x, return_attention=False):
        n = len(self.heads)
        qs = self.q(x).chunk(n, dim=-1)
        ks = self.k(x).chunk(n, dim=-1)
        vs = self.v(x).chunk(n, dim=-1)
        results = [head(a, b, c) for head, a, b, c in zip(self.heads, qs, ks, vs)]
        outs = [r[0] for r in results]
        maps = [r[1] for r in results]
        out = self.mix(torch.cat(outs, dim=-1))
        if not return_attention:
            return out
        return out, torch.stack(maps, dim=1).flatten(0, 1)
