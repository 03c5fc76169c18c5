"""Generation with a key-value cache: the same result as without it, but each token is read only once.

A decoder without a cache is given, and so is `generate`, which reads the complete text again for each new token. In
each layer, later tokens need only two things from a token that has been read: its key and its value. You write the
cache that stores them, the step that uses it, and the generation loop.

You may also change Attention, Block and Decoder, as long as their layers keep their names (the checker sets weights by
name) and they still do the same when called as they are here.

Run `regard check THIS_FILE` after each part: what is written is checked, and the rest is listed as still to write.
"""

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
    def __init__(self, layers):
        self.store = [dict() for _ in range(layers)]
        self.length = 0

    def extend(self, layer, **new):
        slot = self.store[layer]
        for name, t in new.items():
            slot[name] = torch.cat((slot[name], t), dim=2) if name in slot else t
        return slot["k"], slot["v"]


def visible_to(new, total):
    past = total - new
    rows = torch.arange(past, total).unsqueeze(1)
    cols = torch.arange(total).unsqueeze(0)
    return cols <= rows


def cached_attention(att, h, cache, layer):
    q = att.split(att.q(h))
    k, v = cache.extend(layer, k=att.split(att.k(h)), v=att.split(att.v(h)))
    s = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.size(-1))
    ok = visible_to(q.size(2), k.size(2))
    p = torch.where(ok, s, torch.tensor(-torch.inf)).softmax(dim=-1)
    o = torch.einsum("bhij,bhjd->bihd", p, v)
    return att.out(o.flatten(2))


def run_block(block, h, cache, layer):
    h = h + cached_attention(block.attention, block.attention_norm(h), cache, layer)
    return h + block.network(block.network_norm(h))


@torch.no_grad()
def step(model, tokens, cache):
    n = tokens.size(1)
    pos = torch.arange(n) + cache.length
    h = model.tokens(tokens) + model.positions(pos)
    for i in range(len(model.blocks)):
        h = run_block(model.blocks[i], h, cache, i)
    cache.length += n
    return model.out(model.norm(h))


def generate_cached(model, prompts, count):
    cache = Cache(len(model.blocks))
    out = [prompts]
    feed = prompts
    for _ in range(count):
        feed = step(model, feed, cache)[:, -1, :].argmax(dim=-1).unsqueeze(1)
        out.append(feed)
    return torch.cat(out, dim=1)
