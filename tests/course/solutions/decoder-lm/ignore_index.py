"""Tokens that do not count get the label that cross_entropy ignores."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Given: self-attention, where `mask` says which positions each position may see."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        """`mask` is [seq, seq], True where the position of the row may see the position of the column."""
        batch, seq, width = x.shape
        q, k, v = (
            layer(x).view(batch, seq, self.heads, -1).transpose(1, 2)  # [batch, heads, seq, head_size]
            for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [batch, heads, seq, seq]
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        mixed = scores.softmax(-1) @ v  # [batch, heads, seq, head_size]
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, width))  # [batch, seq, width]


class Block(nn.Module):
    """Given: a layer with attention and a feed-forward network, each with a residual connection."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        """[batch, seq, width] → [batch, seq, width]."""
        x = x + self.attention(self.attention_norm(x), mask)
        return x + self.network(self.network_norm(x))


def causal_mask(seq):
    positions = torch.arange(seq)
    return positions.unsqueeze(1) >= positions.unsqueeze(0)


class DecoderLM(nn.Module):
    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        b, t = tokens.shape
        pos = torch.arange(t, device=tokens.device).expand(b, t)
        h = self.tokens(tokens) + self.positions(pos)
        mask = causal_mask(t).to(h.device)
        for block in self.blocks:
            h = block(h, mask)
        return self.out(self.norm(h))


IGNORE = -100


def shifted_loss(logits, tokens, counted):
    labels = tokens.masked_fill(~counted.bool(), IGNORE)
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = labels[..., 1:].contiguous()
    return F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=IGNORE)


def next_token_loss(model, tokens, lengths):
    counted = torch.zeros_like(tokens, dtype=torch.bool)
    for row, n in enumerate(lengths.tolist()):
        counted[row, :n] = True
    return shifted_loss(model(tokens), tokens, counted)


def translation_loss(model, pairs, separator, end):
    longest = max(len(s) + len(t) for s, t in pairs) + 2
    tokens = torch.zeros(len(pairs), longest, dtype=torch.long)
    counted = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for i, (source, target) in enumerate(pairs):
        row = list(source) + [separator] + list(target) + [end]
        tokens[i, : len(row)] = torch.tensor(row)
        counted[i, len(source) + 1 : len(row)] = True
    return shifted_loss(model(tokens), tokens, counted)


def greedy(model, prompt, count, end):
    model.eval()
    ids = torch.tensor(prompt).unsqueeze(0)
    new = []
    with torch.no_grad():
        while len(new) < count:
            logits = model(ids)[:, -1, :]
            token = logits.argmax(dim=-1)
            if token.item() == end:
                break
            new.append(token.item())
            ids = torch.cat([ids, token.unsqueeze(0)], dim=1)
    return new


def translate(model, source, separator, end, count):
    return greedy(model, list(source) + [separator], count, end)
