"""The cache is a list of pairs; the step is one function with a loop over the layers."""

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
        """[batch, seq] → logits, [batch, seq, vocab]."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


@torch.no_grad()
def generate(model, prompts, count):
    """Given: `count` likeliest tokens behind each prompt, [batch, seq] → [batch, seq + count]."""
    tokens = prompts
    for _ in range(count):
        best = model(tokens)[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, best], 1)
    return tokens


class Cache:
    def __init__(self, layers):
        self.pairs = [None for _ in range(layers)]

    @property
    def length(self):
        return 0 if self.pairs[0] is None else self.pairs[0][0].shape[2]


def step(model, tokens, cache):
    with torch.no_grad():
        old, new = cache.length, tokens.shape[1]
        x = model.tokens(tokens) + model.positions.weight[old : old + new]
        query, key = torch.arange(old, old + new), torch.arange(old + new)
        hidden = key[None, :] > query[:, None]
        for i, block in enumerate(model.blocks):
            y, a = block.attention_norm(x), block.attention
            k, v = a.split(a.k(y)), a.split(a.v(y))
            if cache.pairs[i] is not None:
                k, v = (torch.cat(both, dim=2) for both in zip(cache.pairs[i], (k, v), strict=True))
            cache.pairs[i] = (k, v)
            weights = (a.split(a.q(y)) @ k.mT / k.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1)
            x = x + a.out((weights @ v).transpose(1, 2).flatten(2))
            x = x + block.network(block.network_norm(x))
        return model.out(model.norm(x))


def generate_cached(model, prompts, count):
    if count == 0:
        return prompts
    cache = Cache(len(model.blocks))
    written = [prompts]
    logits = step(model, prompts, cache)
    for i in range(count):
        written.append(logits[:, -1:].argmax(-1))
        if i < count - 1:
            logits = step(model, written[-1], cache)
    return torch.cat(written, dim=1)
