"""The cache is passed through the layers; it is allocated once and filled from the left."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Room:
    def __init__(self):
        self.k = self.v = None
        self.filled = 0

    def add(self, k, v):
        end = self.filled + k.shape[2]
        if self.k is None or self.k.shape[2] < end:
            more = [*k.shape[:2], 2 * end, k.shape[3]]
            bigger = k.new_zeros(more), v.new_zeros(more)
            if self.k is not None:
                bigger[0][:, :, : self.filled] = self.k[:, :, : self.filled]
                bigger[1][:, :, : self.filled] = self.v[:, :, : self.filled]
            self.k, self.v = bigger
        self.k[:, :, self.filled : end], self.v[:, :, self.filled : end] = k, v
        self.filled = end
        return self.k[:, :, :end], self.v[:, :, :end]


class Cache:
    def __init__(self, layers):
        self.rooms = [Room() for _ in range(layers)]

    @property
    def length(self):
        return self.rooms[0].filled


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, room=None):
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        if room is not None:
            k, v = room.add(k, v)
        new, total = q.shape[2], k.shape[2]
        mask = torch.full((new, total), -math.inf, dtype=q.dtype).triu(total - new + 1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, room=None):
        x = x + self.attention(self.attention_norm(x), room)
        return x + self.network(self.network_norm(x))


class Decoder(nn.Module):
    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens, cache=None):
        first = 0 if cache is None else cache.length
        rooms = [None] * len(self.blocks) if cache is None else cache.rooms
        x = self.tokens(tokens) + self.positions(first + torch.arange(tokens.shape[1]))
        for block, room in zip(self.blocks, rooms, strict=True):
            x = block(x, room)
        return self.out(self.norm(x))


@torch.no_grad()
def step(model, tokens, cache):
    return model(tokens, cache)


def generate_cached(model, prompts, count):
    cache, tokens = Cache(len(model.blocks)), prompts
    while tokens.shape[1] < prompts.shape[1] + count:
        logits = step(model, tokens[:, cache.length :], cache)
        tokens = torch.cat([tokens, logits[:, -1].argmax(-1)[:, None]], 1)
    return tokens
