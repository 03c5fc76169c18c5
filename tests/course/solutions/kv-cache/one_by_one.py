"""Caches keys and values as [batch, length, width] and splits them into heads later."""

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


class Cache(dict):
    def __init__(self, layers):
        super().__init__()
        self.layers, self.length = layers, 0


def grown(cache, name, x):
    cache[name] = torch.cat([cache[name], x], 1) if name in cache else x
    return cache[name]


@torch.inference_mode()
def step(model, tokens, cache):
    """Read one token at a time, so that no mask is needed."""
    return torch.cat([one(model, token, cache) for token in tokens.unbind(1)], 1)


def one(model, token, cache):
    x = model.tokens(token)[:, None] + model.positions(torch.tensor([cache.length]))
    for layer, block in enumerate(model.blocks):
        y, attention = block.attention_norm(x), block.attention
        k = attention.split(grown(cache, ("k", layer), attention.k(y)))
        v = attention.split(grown(cache, ("v", layer), attention.v(y)))
        q = attention.split(attention.q(y))
        weights = torch.einsum("bhqd,bhkd->bhqk", q, k).div(math.sqrt(q.shape[-1])).softmax(-1)
        mixed = torch.einsum("bhqk,bhkd->bqhd", weights, v)
        x = x + attention.out(mixed.reshape(y.shape))
        x = x + block.network(block.network_norm(x))
    cache.length += 1
    return model.out(model.norm(x))


def generate_cached(model, prompts, count):
    cache = Cache(len(model.blocks))
    last = step(model, prompts, cache)[:, -1]
    for _ in range(count):
        best = last.argmax(-1, keepdim=True)
        prompts = torch.cat([prompts, best], 1)
        last = step(model, best, cache)[:, -1]
    return prompts
