"""The cache has a dictionary of keys and values for each layer."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    """Given: causal self-attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        """[batch, seq, width] → [batch, heads, seq, head_size]."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        """[batch, seq, width] → [batch, seq, width]."""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Given: a decoder layer, attention followed by a feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        """[batch, seq, width] → [batch, seq, width]."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.network(self.network_norm(x))


class Decoder(nn.Module):
    """Given: a language model without a cache."""

    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        """Token ids [batch, seq] → logits [batch, seq, vocab]."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


@torch.no_grad()
def generate(model, prompts, count):
    """Given: greedy continuation of each prompt by `count` tokens, [batch, seq] → [batch, seq + count]."""
    tokens = prompts
    for _ in range(count):
        best = model(tokens)[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, best], 1)
    return tokens


class Cache:
    """A dictionary per layer."""

    def __init__(self, layers):
        self.store = [dict() for _ in range(layers)]
        self.length = 0


def cached_attention(attn, x, entry):
    B, T, C = x.shape
    q = attn.split(attn.q(x))
    k_new = attn.split(attn.k(x))
    v_new = attn.split(attn.v(x))
    if "k" in entry:
        k_all = torch.cat((entry["k"], k_new), dim=-2)
        v_all = torch.cat((entry["v"], v_new), dim=-2)
    else:
        k_all, v_all = k_new, v_new
    entry["k"], entry["v"] = k_all, v_all
    S = k_all.size(-2)
    att = torch.matmul(q, k_all.transpose(-1, -2)) / math.sqrt(q.size(-1))
    i = torch.arange(S - T, S).view(-1, 1)
    j = torch.arange(S).view(1, -1)
    att = att.masked_fill(j > i, float("-inf"))
    att = torch.softmax(att, dim=-1)
    out = torch.matmul(att, v_all)
    return attn.out(out.transpose(1, 2).contiguous().view(B, T, C))


def step(model, tokens, cache):
    pos = torch.arange(cache.length, cache.length + tokens.size(1))
    h = model.tokens(tokens) + model.positions(pos)
    for block, entry in zip(model.blocks, cache.store):
        h = h + cached_attention(block.attention, block.attention_norm(h), entry)
        h = h + block.network(block.network_norm(h))
    cache.length += tokens.size(1)
    return model.out(model.norm(h))


@torch.no_grad()
def generate_cached(model, prompts, count):
    cache = Cache(len(model.blocks))
    out = prompts
    nxt = prompts
    for _ in range(count):
        logits = step(model, nxt, cache)
        nxt = torch.argmax(logits[:, -1, :], dim=-1, keepdim=True)
        out = torch.cat((out, nxt), dim=1)
    return out
