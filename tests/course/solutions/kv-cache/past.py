"""Attention takes a list with the past keys and values, which the model passes on."""

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

    def forward(self, x, past=None):
        """GPT-2 style: `past` is a list that holds keys and values."""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        if past:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        if past is not None:
            past[:] = [k, v]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        rows, columns = scores.shape[-2:]
        mask = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
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

    def forward(self, x, past=None):
        """[batch, seq, width] → [batch, seq, width]."""
        x = x + self.attention(self.attention_norm(x), past)
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

    def forward(self, tokens, pasts=None, start=0):
        """Token ids [batch, seq] → logits [batch, seq, vocab]."""
        x = self.tokens(tokens) + self.positions(torch.arange(start, start + tokens.shape[1]))
        for index, block in enumerate(self.blocks):
            x = block(x, None if pasts is None else pasts[index])
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
    def __init__(self, layers):
        self.pasts = [[] for _ in range(layers)]
        self.length = 0


@torch.no_grad()
def step(model, tokens, cache):
    logits = model(tokens, cache.pasts, cache.length)
    cache.length += tokens.shape[1]
    return logits


def generate_cached(model, prompts, count):
    cache, ids = Cache(len(model.blocks)), prompts.clone()
    while ids.shape[1] < prompts.shape[1] + count:
        unread = ids[:, cache.length :]
        ids = torch.cat([ids, step(model, unread, cache)[:, [-1]].argmax(-1)], dim=1)
    return ids
