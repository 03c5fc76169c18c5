"""A correct solution."""

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
    """[seq, seq], True where the row's position may see the column's: itself or an earlier one."""
    return torch.ones(seq, seq, dtype=torch.bool).tril()


class DecoderLM(nn.Module):
    """Predicts the next token at each position."""

    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        """Token ids [batch, seq] → logits [batch, seq, vocab]."""
        seq = tokens.shape[1]
        positions = torch.arange(seq, device=tokens.device)
        embedded = self.tokens(tokens) + self.positions(positions)  # [batch, seq, width]
        mask = causal_mask(seq).to(tokens.device)
        hidden = embedded
        for block in self.blocks:
            hidden = block(hidden, mask)
        output = self.out(self.norm(hidden))  # [batch, seq, vocab]
        return output


def shifted_loss(logits, tokens, counted):
    """The mean cross-entropy of the tokens that count, each predicted at the position before it."""
    logits = logits[:, :-1]  # there is no target for the last position
    targets, counts = tokens[:, 1:], counted[:, 1:]
    losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return losses[counts].mean()


def next_token_loss(model, tokens, lengths):
    """The mean loss of all real tokens except the first one of each row; row b has `lengths[b]` real tokens."""
    counted = torch.arange(tokens.shape[1]) < lengths[:, None]  # [batch, seq]
    return shifted_loss(model(tokens), tokens, counted)


def translation_loss(model, pairs, separator, end):
    """The mean loss of the target tokens and of the `end` after each target."""
    rows = [[*source, separator, *target, end] for source, target in pairs]
    seq = max(len(row) for row in rows)
    tokens = torch.tensor([row + [0] * (seq - len(row)) for row in rows])  # [batch, seq]
    first = torch.tensor([[len(source) + 1] for source, _ in pairs])
    ends = torch.tensor([[len(row)] for row in rows])
    position = torch.arange(seq)
    counted = (position >= first) & (position < ends)
    return shifted_loss(model(tokens), tokens, counted)


@torch.no_grad()
def greedy(model, prompt, count, end):
    """Continue the prompt with the most likely tokens: `count` of them, or fewer if `end` comes first."""
    ids = list(prompt)
    for _ in range(count):
        context = ids
        logits = model(torch.tensor([context]))  # [1, seq, vocab]
        new = logits[0, -1].argmax().item()
        if new == end:
            break
        ids.append(new)
    return ids[len(prompt) :]


def translate(model, source, separator, end, count):
    """A translation of at most `count` ids."""
    prompt = [*source, separator]
    return greedy(model, prompt, count, end)
