"""A correct solution."""

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
    """The keys and values of all tokens so far, for each layer."""

    def __init__(self, layers):
        self.keys = [None] * layers  # [batch, heads, length, head_size] each
        self.values = [None] * layers
        self.length = 0

    def put(self, layer, k, v):
        """Add new keys and values to a layer's, and return all of them."""
        if self.keys[layer] is not None:
            k = torch.cat([self.keys[layer], k], 2)
            v = torch.cat([self.values[layer], v], 2)
        self.keys[layer], self.values[layer] = k, v
        return k, v


def attend(attention, x, cache, layer):
    """Attention of the new tokens to themselves and to those in the cache."""
    q, k, v = attention.split(attention.q(x)), attention.split(attention.k(x)), attention.split(attention.v(x))
    k, v = cache.put(layer, k, v)  # [batch, heads, total, head_size]
    scores = q @ k.transpose(-2, -1)  # [batch, heads, new, total]
    scores = scores / math.sqrt(q.shape[-1])
    new, total = scores.shape[-2:]
    mask = torch.ones(new, total, dtype=torch.bool).tril(total - new)  # a query sees the past and itself
    mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v  # [batch, heads, new, head_size]
    return attention.out(mixed.transpose(1, 2).flatten(2))  # [batch, new, width]


@torch.no_grad()
def step(model, tokens, cache):
    """Logits [batch, new, vocab] of new tokens [batch, new], which follow those in the cache."""
    new, past = tokens.shape[1], cache.length
    positions = torch.arange(past, past + new)
    x = model.tokens(tokens) + model.positions(positions)  # [batch, new, width]
    for layer, block in enumerate(model.blocks):
        x = x + attend(block.attention, block.attention_norm(x), cache, layer)
        x = x + block.network(block.network_norm(x))
    cache.length = past + new
    logits = model.out(model.norm(x))  # [batch, new, vocab]
    return logits


def generate_cached(model, prompts, count):
    """The same result as `generate`, but each token is read once: [batch, seq] → [batch, seq + count]."""
    cache = Cache(len(model.blocks))
    written, fresh = prompts, prompts
    for _ in range(count):
        logits = step(model, fresh, cache)
        fresh = logits[:, -1].argmax(-1, keepdim=True)  # [batch, 1]
        written = torch.cat([written, fresh], 1)
    return written
