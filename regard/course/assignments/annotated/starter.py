"""The whole Transformer, part by part.

Write what is missing. Keep the names of functions, classes and layers as they are here: the
checker gives weights to layers by their names. It looks at each part by itself, so you may begin
with any of them and leave others for later.

Three things are settled here, since people do them in several ways:
- The norm stands before each sublayer, x + dropout(sublayer(norm(x))), and once more at the end of
  the encoder and of the decoder. (The paper norms the sum, behind each sublayer; most of what came
  later does as we do here.)
- Masks are True, or 1, where a position may look, and False, or 0, where it may not.
- Sines and cosines take turns: number 2i of a position's vector is a sine, number 2i + 1 is the
  cosine of the same angle.
nn.LayerNorm may be used inside LayerNorm; the deviation of a sample and that of a population are
both right.

When all is written: regard check THIS_FILE
"""

import torch
from torch import nn


def clones(module, N):
    """A ModuleList of N copies of a module, each with parameters of its own."""
    raise NotImplementedError


def subsequent_mask(size):
    """[1, size, size]: True where the row's position may look at the column's.

    That is at itself and at all before it.
    """
    raise NotImplementedError


def attention(query, key, value, mask=None, dropout=None):
    """For each query a mixture of the values, and how it is mixed.

    query is [batch, h, seq, d_k]; key and value are [batch, h, keys, d_k], and keys may be another
    number than seq; mask fits [batch, h, seq, keys]; dropout is a module for the weights.
    Returns the mixtures [batch, h, seq, d_k] and the weights [batch, h, seq, keys]. A query that
    may look nowhere must not give NaN.
    """
    raise NotImplementedError


class MultiHeadedAttention(nn.Module):
    """Attention in h heads, each in a part of the width."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h = h
        self.d_k = d_model // h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        """[batch, seq, d_model] → [batch, seq, d_model].

        The linears are for queries, keys, values and, the last, for the heads' outputs side by
        side. A mask is [batch, 1, keys] or [batch, seq, keys], the same for all heads. self.attn
        keeps the weights that attention gives, to be looked at.
        """
        raise NotImplementedError


class PositionwiseFeedForward(nn.Module):
    """Two linear maps with a ReLU between them, at each position."""

    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]: w_1, ReLU, dropout, w_2."""
        raise NotImplementedError


class Embeddings(nn.Module):
    """A vector for each token, times the root of its width."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x):
        """[batch, seq] → [batch, seq, d_model]: the tokens' vectors, as the paper scales them."""
        raise NotImplementedError


class PositionalEncoding(nn.Module):
    """Sines and cosines of the position, added."""

    def __init__(self, d_model, dropout, max_len=5000):
        """Makes a table of max_len positions: not trained, but it goes where the module goes."""
        raise NotImplementedError

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]: positions added, then dropout."""
        raise NotImplementedError


class LayerNorm(nn.Module):
    """Each vector with mean 0 and deviation 1, then a learned scale and shift."""

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]; eps is for vectors of equal numbers."""
        raise NotImplementedError


class SublayerConnection(nn.Module):
    """A way around a sublayer, which sees its input normed."""

    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        """x and, dropped out, what the sublayer (a function) makes of x when it is normed."""
        raise NotImplementedError


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 2)
        self.size = size

    def forward(self, x, mask):
        """[batch, seq, d_model] → [batch, seq, d_model]: self_attn, then feed_forward."""
        raise NotImplementedError


class Encoder(nn.Module):
    """A stack of layers, and a norm at its end."""

    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, mask):
        """[batch, seq, d_model] → [batch, seq, d_model]: through all layers, then the norm."""
        raise NotImplementedError


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, then the feed-forward network."""

    def __init__(self, size, self_attn, src_attn, feed_forward, dropout):
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 3)

    def forward(self, x, memory, src_mask, tgt_mask):
        """[batch, seq, d_model] → [batch, seq, d_model].

        Three sublayers, in this order: self_attn to the target itself, src_attn to the encoder's
        output (memory), and feed_forward.
        """
        raise NotImplementedError


class Decoder(nn.Module):
    """A stack of layers that look at the encoder's output, and a norm at its end."""

    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        """[batch, seq, d_model] → [batch, seq, d_model]: through all layers, then the norm."""
        raise NotImplementedError


class Generator(nn.Module):
    """The logarithm of each next token's probability."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, vocab]: logarithms of probabilities."""
        raise NotImplementedError


class EncoderDecoder(nn.Module):
    """An encoder, a decoder, and what stands before and behind them."""

    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.generator = generator

    def encode(self, src, src_mask):
        """[batch, seq] → [batch, seq, d_model]: the encoder's output for a source."""
        raise NotImplementedError

    def decode(self, memory, src_mask, tgt, tgt_mask):
        """[batch, seq] → [batch, seq, d_model]: the decoder's output, before the generator."""
        raise NotImplementedError

    def forward(self, src, tgt, src_mask, tgt_mask):
        """The decoder's output for a source and a target, before the generator."""
        raise NotImplementedError


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    """An EncoderDecoder with N layers on each side, each part with parameters of its own.

    src_embed and tgt_embed are each an nn.Sequential of Embeddings and a PositionalEncoding.
    Matrices start as nn.init.xavier_uniform_ draws them.
    """
    raise NotImplementedError
