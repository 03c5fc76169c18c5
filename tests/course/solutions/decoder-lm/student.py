"""A language model, its loss, text generation, and a translator built from them.

Attention and Block are given; you write the rest. Keep the names of the functions, classes and layers: the checker sets
the weights of layers by name.

A decoder reads tokens from left to right and predicts at each position which token comes next. Three things make it
work: the mask that hides the future, the loss that asks each position for the next token, and the loop that generates
text. Trained on texts of the form `source separator target end`, the same model learns to translate.

When you are done, run: regard check THIS_FILE
To train your model next to Regard's, run: regard train petit-lm --module THIS_FILE
"""

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
    rows = torch.arange(seq).unsqueeze(1)
    cols = torch.arange(seq).unsqueeze(0)
    return cols <= rows


class DecoderLM(nn.Module):
    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max_length, width)
        blocks = []
        for _ in range(layers):
            blocks.append(Block(width, heads))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        B, T = tokens.shape
        x = self.tokens(tokens)
        pos = torch.arange(T)
        x = x + self.positions(pos)
        mask = causal_mask(T)
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        return self.out(x)


def shifted_loss(logits, tokens, counted):
    pred = logits[:, :-1, :]
    gold = tokens[:, 1:]
    keep = counted[:, 1:].float()
    V = pred.size(-1)
    nll = F.cross_entropy(pred.reshape(-1, V), gold.reshape(-1), reduction="none")
    total = (nll * keep.reshape(-1)).sum()
    return total / keep.sum()


def next_token_loss(model, tokens, lengths):
    B, T = tokens.shape
    counted = torch.zeros(B, T, dtype=torch.bool)
    for b in range(B):
        counted[b, : lengths[b]] = True
    logits = model(tokens)
    return shifted_loss(logits, tokens, counted)


def translation_loss(model, pairs, separator, end):
    longest = max(len(s) + len(t) + 2 for s, t in pairs)
    tokens = torch.zeros(len(pairs), longest, dtype=torch.long)
    counted = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for i, (s, t) in enumerate(pairs):
        row = s + [separator] + t + [end]
        tokens[i, : len(row)] = torch.tensor(row)
        counted[i, len(s) + 1 : len(row)] = True
    logits = model(tokens)
    return shifted_loss(logits, tokens, counted)


def greedy(model, prompt, count, end):
    model.eval()
    text = list(prompt)
    new = []
    with torch.no_grad():
        while len(new) < count:
            logits = model(torch.tensor([text]))
            best = int(logits[0, -1].argmax())
            if best == end:
                break
            text.append(best)
            new.append(best)
    return new


def translate(model, source, separator, end, count):
    prompt = list(source) + [separator]
    return greedy(model, prompt, count, end)
