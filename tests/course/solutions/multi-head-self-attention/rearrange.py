"""einops style with an own rearrange."""

import torch
from torch import einsum, nn


def rearrange(t, pattern, **sizes):
    if pattern == "b n (h d) -> b h n d":
        b, n, f = t.shape
        return t.unflatten(-1, (sizes["h"], f // sizes["h"])).movedim(2, 1)
    if pattern == "b h n d -> b n (h d)":
        return t.movedim(1, 2).flatten(2)
    if pattern == "b h i j -> (b h) i j":
        return t.flatten(0, 1)
    raise ValueError(pattern)


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        super().__init__()
        if hidden % num_heads:
            raise ValueError
        self.heads, self.causal, self.scale = num_heads, causal, (hidden // num_heads) ** -0.5
        self.q, self.k, self.v = (
            nn.Linear(input_size, hidden),
            nn.Linear(input_size, hidden),
            nn.Linear(input_size, hidden),
        )
        self.mix = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, return_attention=False):
        q, k, v = map(lambda f: rearrange(f(x), "b n (h d) -> b h n d", h=self.heads), (self.q, self.k, self.v))
        sim = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        if self.causal:
            i, j = sim.shape[-2:]
            rows, cols = torch.arange(i, device=x.device), torch.arange(j, device=x.device)
            sim = sim.masked_fill(rows[:, None] < cols[None, :], -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim=-1)
        out = einsum("b h i j, b h j d -> b h i d", self.drop(attn), v)
        out = self.mix(rearrange(out, "b h n d -> b n (h d)"))
        return (out, rearrange(attn, "b h i j -> (b h) i j")) if return_attention else out
