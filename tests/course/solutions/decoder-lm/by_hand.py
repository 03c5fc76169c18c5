"""The loss is computed token by token."""

import math

import torch
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
    return torch.triu(torch.ones(seq, seq), diagonal=1) == 0


class DecoderLM(nn.Module):
    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            self.blocks.append(Block(width, heads))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.tokens(tokens)
        x += self.positions.weight[: tokens.size(-1)]
        m = causal_mask(tokens.size(-1))
        for i in range(len(self.blocks)):
            x = self.blocks[i](x, m)
        x = self.norm(x)
        return self.out(x)


def shifted_loss(logits, tokens, counted):
    total, number = 0.0, 0
    for b in range(tokens.shape[0]):
        for t in range(1, tokens.shape[1]):
            if counted[b, t]:
                log_p = logits[b, t - 1] - torch.logsumexp(logits[b, t - 1], 0)
                total = total - log_p[tokens[b, t]]
                number += 1
    return total / number


def next_token_loss(model, tokens, lengths):
    real = torch.stack([torch.arange(tokens.shape[1]) < n for n in lengths])
    return shifted_loss(model(tokens), tokens, real)


def translation_loss(model, pairs, separator, end):
    sequences = [torch.tensor([*s, separator, *t, end]) for s, t in pairs]
    tokens = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    flags = [torch.tensor([0] * (len(s) + 1) + [1] * (len(t) + 1)) for s, t in pairs]
    counted = nn.utils.rnn.pad_sequence(flags, batch_first=True).bool()
    return shifted_loss(model(tokens), tokens, counted)


@torch.inference_mode()
def greedy(model, prompt, count, end):
    text = list(prompt)
    for _ in range(count):
        scores = model(torch.tensor(text)[None])[0, -1]
        best = int(scores.max(0).indices)
        if best == end:
            return text[len(prompt) :]
        text += [best]
    return text[len(prompt) :]


def translate(model, source, separator, end, count):
    return greedy(model, [*source, separator], count, end)
