"""A language model, its loss, text generation, and a translator built from them.

Attention and Block are given; you write the rest. Keep the names of the functions, classes and layers: the checker sets
the weights of layers by name.

A decoder reads tokens from left to right and predicts at each position which token comes next. Three things make it
work: the mask that hides the future, the loss that asks each position for the next token, and the loop that generates
text. Trained on texts of the form `source separator target end`, the same model learns to translate.

Run `regard check THIS_FILE` after each part: what is written is checked, and the rest is listed as still to write.
To train your model next to Regard's, run: regard train petit-lm --module THIS_FILE
"""

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
    """Booleans [seq, seq]: True where the row's position may see the column's, that is itself or an earlier one."""
    raise NotImplementedError("write causal_mask")


class DecoderLM(nn.Module):
    """Predicts the next token at each position."""

    def __init__(self, vocab, width, heads, layers, max_length):
        """Call super().__init__() first, then create the layers with these names:

        self.tokens      an nn.Embedding of `vocab` tokens
        self.positions   an nn.Embedding of `max_length` positions, starting at 0
        self.blocks      an nn.ModuleList of `layers` Blocks
        self.norm        an nn.LayerNorm, applied after the last Block
        self.out         an nn.Linear from `width` to `vocab`
        """
        raise NotImplementedError("write DecoderLM.__init__")

    def forward(self, tokens):
        """Token ids [batch, seq] → logits [batch, seq, vocab], without a softmax.

        The input of the first Block is the sum of the token embeddings and the position embeddings.
        """
        raise NotImplementedError("write DecoderLM.forward")


def shifted_loss(logits, tokens, counted):
    """The mean cross-entropy over all tokens that count, as a scalar tensor.

    logits:  [batch, seq, vocab]; those at position t predict the token at position t + 1
    tokens:  [batch, seq]
    counted: [batch, seq], booleans: whether each token counts. The first token of a row never counts, since there is
             nothing before it that could predict it.
    """
    raise NotImplementedError("write shifted_loss")


def next_token_loss(model, tokens, lengths):
    """The mean loss of all real tokens except the first one of each row.

    tokens:  [batch, seq]; row b has `lengths[b]` real tokens, followed by zeros as padding
    lengths: [batch]

    0 is also an ordinary token, so only the lengths tell which tokens are real.
    """
    raise NotImplementedError("write next_token_loss")


def translation_loss(model, pairs, separator, end):
    """The mean loss over the tokens of all targets and the `end` after each. Sources and separators do not count.

    The model reads each pair as: source separator target end. Shorter rows are padded with zeros.

    pairs: a list of (source, target), each a list of ids
    """
    raise NotImplementedError("write translation_loss")


def greedy(model, prompt, count, end):
    """Continue the prompt, always with the most likely token, and return the new ids as a list.

    Generate `count` ids, or fewer if `end` is the most likely token. Neither `end` nor the prompt is returned.

    prompt: a list of at least one id
    """
    raise NotImplementedError("write greedy")


def translate(model, source, separator, end, count):
    """Translate a list of ids: generate at most `count` ids where the target would be, and return them as a list."""
    raise NotImplementedError("write translate")
