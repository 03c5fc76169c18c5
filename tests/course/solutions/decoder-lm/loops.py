"""Uses loops and plain arithmetic, one row at a time, with PyTorch's own attention."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, mask):
        parts = [self.split(layer(x)) for layer in (self.q, self.k, self.v)]
        mixed = F.scaled_dot_product_attention(*parts, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        x = x + self.attention(self.attention_norm(x), mask)
        return x + self.network(self.network_norm(x))


def causal_mask(seq):
    mask = torch.zeros(seq, seq, dtype=torch.bool)
    for row in range(seq):
        for column in range(row + 1):
            mask[row, column] = True
    return mask


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
        batch, seq = tokens.shape
        positions = torch.arange(seq).expand(batch, seq)
        x = self.tokens(tokens) + self.positions(positions)
        mask = causal_mask(seq)
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        return self.out(x)


def shifted_loss(logits, tokens, counted):
    total, count = 0.0, 0
    log_probabilities = torch.log_softmax(logits, dim=-1)
    for row in range(tokens.shape[0]):
        for place in range(1, tokens.shape[1]):
            if counted[row, place]:
                total = total - log_probabilities[row, place - 1, tokens[row, place]]
                count += 1
    return total / count


def next_token_loss(model, tokens, lengths):
    counted = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, length in enumerate(lengths.tolist()):
        counted[row, :length] = True
    return shifted_loss(model(tokens), tokens, counted)


def translation_loss(model, pairs, separator, end):
    total, count = 0.0, 0
    for source, target in pairs:
        text = torch.tensor([[*source, separator, *target, end]])
        logits = model(text)[0]
        wanted = [*target, end]
        for number, token in enumerate(wanted):
            place = len(source) + number
            total = total - logits[place].log_softmax(0)[token]
        count += len(wanted)
    return total / count


def greedy(model, prompt, count, end):
    written = []
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([prompt + written]))
            best = int(torch.argmax(logits[0, -1]))
            if best == end:
                return written
            written.append(best)
    return written


def translate(model, source, separator, end, count):
    return greedy(model, [*list(source), separator], count, end)
