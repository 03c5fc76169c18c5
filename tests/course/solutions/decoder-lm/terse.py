"""As short as possible: ignore_index, pad_sequence, buffers."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence


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
            each(x).view(batch, seq, self.heads, -1).transpose(1, 2)  # [batch, heads, seq, head_size]
            for each in (self.q, self.k, self.v)
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
    i = torch.arange(seq)
    return i[:, None] >= i[None, :]


class DecoderLM(nn.Module):
    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)
        self.register_buffer("mask", causal_mask(max_length), persistent=False)

    def forward(self, tokens):
        n = tokens.size(1)
        h = self.tokens(tokens) + self.positions.weight[:n]
        for layer in self.blocks:
            h = layer(h, self.mask[:n, :n])
        return self.out(self.norm(h))


def shifted_loss(logits, tokens, counted):
    targets = tokens.masked_fill(~counted, -100)[:, 1:]
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten())


def next_token_loss(model, tokens, lengths):
    real = torch.arange(tokens.size(1), device=tokens.device)[None] < lengths[:, None]
    return shifted_loss(model(tokens), tokens, real)


def translation_loss(model, pairs, separator, end):
    texts = [torch.tensor([*source, separator, *target, end]) for source, target in pairs]
    flags = [torch.tensor([False] * (len(source) + 1) + [True] * (len(target) + 1)) for source, target in pairs]
    tokens = pad_sequence(texts, batch_first=True)
    return shifted_loss(model(tokens), tokens, pad_sequence(flags, batch_first=True))


def greedy(model, prompt, count, end):
    tokens = torch.tensor(prompt)[None]
    with torch.no_grad():
        while tokens.size(1) < len(prompt) + count:
            best = model(tokens)[:, -1].softmax(-1).argmax(-1)
            if int(best) == end:
                break
            tokens = torch.cat([tokens, best[:, None]], dim=1)
    return tokens[0, len(prompt) :].tolist()


def translate(model, source, separator, end, count):
    return greedy(model, [*source, separator], count, end)
