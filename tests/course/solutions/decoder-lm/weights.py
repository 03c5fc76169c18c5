"""Uses gather and weights instead of cross_entropy; adds the mask to the scores; computes the loss in a method."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, hidden):
        b, t, _ = x.shape
        q = self.q(x).reshape(b, t, self.heads, self.size)
        k = self.k(x).reshape(b, t, self.heads, self.size)
        v = self.v(x).reshape(b, t, self.heads, self.size)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(self.size)
        weights = (scores + hidden).softmax(dim=-1)
        return self.out(torch.einsum("bhij,bjhd->bihd", weights, v).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, hidden):
        x = x + self.attention(self.attention_norm(x), hidden)
        return x + self.network(self.network_norm(x))


def causal_mask(seq):
    return ~torch.triu(torch.ones(seq, seq), diagonal=1).bool()


class DecoderLM(nn.Module):
    def __init__(self, vocab, width, heads, layers, max_length):
        super().__init__()
        self.out = nn.Linear(width, vocab)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.positions = nn.Embedding(max_length, width)
        self.tokens = nn.Embedding(vocab, width)

    def forward(self, tokens):
        t = tokens.shape[-1]
        x = self.positions(torch.arange(t, device=tokens.device))[None] + self.tokens(tokens)
        hidden = torch.zeros(t, t, dtype=x.dtype, device=x.device)
        hidden[~causal_mask(t)] = float("-inf")
        for block in self.blocks:
            x = block(x, hidden)
        return self.out(self.norm(x))


def token_losses(logits, tokens):
    """The loss of each token except the first."""
    said = logits[:, :-1].gather(2, tokens[:, 1:, None])[..., 0]
    return logits[:, :-1].logsumexp(-1) - said


def shifted_loss(logits, tokens, counted):
    weights = counted[:, 1:].to(logits.dtype)
    return (token_losses(logits, tokens) * weights).sum() / weights.sum()


def next_token_loss(model, tokens, lengths):
    losses = token_losses(model(tokens), tokens)
    weights = (torch.arange(1, tokens.shape[1]) < lengths.unsqueeze(1)).float()
    return (losses * weights).sum() / (lengths - 1).sum()


def translation_loss(model, pairs, separator, end):
    longest = max(len(source) + len(target) for source, target in pairs) + 2
    tokens = torch.zeros(len(pairs), longest, dtype=torch.long)
    counted = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for row, (source, target) in enumerate(pairs):
        text = torch.tensor([*source, separator, *target, end])
        tokens[row, : len(text)] = text
        counted[row, len(source) + 1 : len(text)] = True
    return shifted_loss(model(tokens), tokens, counted)


@torch.inference_mode()
def greedy(model, prompt, count, end):
    if count == 0:
        return []
    new = model(torch.tensor([prompt]))[0, -1].topk(1).indices.item()
    return [] if new == end else [new, *greedy(model, [*prompt, new], count - 1, end)]


def translate(model, source, separator, end, count):
    return greedy(model, [*source, separator], count, end)
