"""A language model, its loss, its writing, and a translator made of it.

Attention and Block are given; you write the rest. Keep the names of functions, classes and layers as they are here:
the checker gives weights to layers by their names.

A decoder reads tokens from left to right and says at each position what may follow. Three things make it one: the mask
that hides what follows, the loss that asks each position for the next token, and the loop that writes. With a text of
the form `source separator target end` the same model learns to translate.

When all is written: regard check THIS_FILE
"""

import math

import torch
from torch import nn


class Attention(nn.Module):
    """Given: each position mixes the values of the positions that `mask` lets it see."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        """`mask` is [seq, seq], True where the row's position may see the column's."""
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
    """Given: a layer; attention, then a small network at each position, each added to what came in."""

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
    """Booleans [seq, seq]: True where the row's position may see the column's, which is itself or came before."""
    raise NotImplementedError("causal_mask is yours to write")


class DecoderLM(nn.Module):
    """Reads tokens; says at each what may follow."""

    def __init__(self, vocab, width, heads, layers, max_length):
        """Begin with super().__init__(), then make the layers, with these names:

        self.tokens      an nn.Embedding of `vocab` tokens
        self.positions   an nn.Embedding of `max_length` positions, the first of which is 0
        self.blocks      an nn.ModuleList of `layers` Blocks
        self.norm        an nn.LayerNorm, after the last Block
        self.out         an nn.Linear from `width` to `vocab`
        """
        raise NotImplementedError("DecoderLM.__init__ is yours to write")

    def forward(self, tokens):
        """Token ids [batch, seq] → logits [batch, seq, vocab], not yet probabilities.

        A token's vector is its embedding plus its position's.
        """
        raise NotImplementedError("DecoderLM.forward is yours to write")


def shifted_loss(logits, tokens, counted):
    """The mean cross-entropy over all tokens that count, as one number.

    logits   [batch, seq, vocab]: those at position t are about the token behind it
    tokens   [batch, seq]
    counted  [batch, seq], booleans: whether the token at this place counts. The first of a row never does, since there
             is nothing before it that could have predicted it.
    """
    raise NotImplementedError("shifted_loss is yours to write")


def next_token_loss(model, tokens, lengths):
    """The mean loss of all real tokens but the first of each row.

    tokens   [batch, seq]; row b has `lengths[b]` real tokens, and zeros behind them
    lengths  [batch]

    0 is also a token like any other: real or not, that is known by the lengths alone.
    """
    raise NotImplementedError("next_token_loss is yours to write")


def translation_loss(model, pairs, separator, end):
    """The mean loss over all tokens of all targets and the `end` behind each; sources and separators do not count.

    The model reads each pair as: source separator target end; shorter rows are filled up with zeros.

    pairs    a list of (source, target), each a list of ids
    """
    raise NotImplementedError("translation_loss is yours to write")


def greedy(model, prompt, count, end):
    """The ids that the model writes behind the prompt, as a list: each time the likeliest one.

    It writes `count` ids, or fewer if the likeliest is `end`, which is not among them; neither is the prompt.

    prompt   a list of ids, at least one
    """
    raise NotImplementedError("greedy is yours to write")


def translate(model, source, separator, end, count):
    """The ids of a translation, at most `count`: what is written where a target would stand."""
    raise NotImplementedError("translate is yours to write")
