"""Generation with a cache, which gives what generation without it gives, and reads each token once.

A decoder without a cache is given, and so is `generate`, which has it read the whole text again for each new token.
Of a token that was read, later ones need two things alone in each layer: its key and its value. You write the cache
that keeps them, the step that uses it, and the generation that goes step by step. You may change Attention, Block and
Decoder too, if you like; keep the names of their layers, since the checker gives weights to layers by their names, and
keep what they do when they are called as here.

When all is written: regard check THIS_FILE
"""

import math

import torch
from torch import nn


class Attention(nn.Module):
    """Given: causal attention of a sequence to itself."""

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
    """Given: a layer."""

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
    """The keys and values of all tokens so far, for each layer; how, is up to you."""

    def __init__(self, layers):
        """An empty one. Behind each step, `self.length` is the number of tokens that were read."""
        raise NotImplementedError("Cache is yours to write")


def step(model, tokens, cache):
    """Read new tokens, which stand behind those in the cache, and keep their keys and values there.

    tokens   [batch, new]: a whole prompt, one token, or any number of them
    returns  the logits at the new tokens, [batch, new, vocab]: what the model gives there when it reads all at once
    """
    raise NotImplementedError("step is yours to write")


def generate_cached(model, prompts, count):
    """What `generate` gives, with each token read once: [batch, seq] → [batch, seq + count]."""
    raise NotImplementedError("generate_cached is yours to write")
