"""The complete Transformer, part by part.

Fill in what is missing. Keep the names of the functions, classes and layers: the checker sets the
weights of layers by name. Each part is checked separately, so you can start with any of them: run
`regard check THIS_FILE` after each part. What is written is checked, and the rest is listed as still to write.

Some details are fixed here because implementations differ:
- The norm comes before each sublayer, x + dropout(sublayer(norm(x))), and once more at the end of
  the encoder and of the decoder. (The paper normalises the sum after each sublayer; most later
  models do it as we do here.)
- Masks are True (or 1) where a position may look, and False (or 0) where it may not.
- Sines and cosines alternate: feature 2i of a position's vector is a sine, and feature 2i + 1 is
  the cosine of the same angle.
You may use nn.LayerNorm inside LayerNorm. The standard deviation of a sample and that of a
population are both accepted.

To train a translator with your model, run: regard train petit-fr-en --module THIS_FILE
"""

import torch
from torch import nn


def clones(module, N):
    """A ModuleList of N copies of a module, each with its own parameters."""
    raise NotImplementedError


def subsequent_mask(size):
    """[1, size, size]: True where the row's position may look at the column's.

    A position may look at itself and at all earlier positions.
    """
    raise NotImplementedError


def attention(query, key, value, mask=None, dropout=None):
    """Scaled dot-product attention: the weighted averages of the values, and the weights.

    query is [batch, h, seq, d_k]; key and value are [batch, h, keys, d_k], where keys may differ
    from seq; mask can be broadcast to [batch, h, seq, keys]; dropout is a module to apply to the
    weights. Returns the averages [batch, h, seq, d_k] and the weights [batch, h, seq, keys]. A
    query that may not look anywhere must not give NaN.
    """
    raise NotImplementedError


class MultiHeadedAttention(nn.Module):
    """Attention in h heads, each with a part of the width."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h = h
        self.d_k = d_model // h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        """[batch, seq, d_model] → [batch, seq, d_model].

        The four linears are for the queries, the keys, the values and the concatenated outputs of
        the heads, in this order. A mask is [batch, 1, keys] or [batch, seq, keys], the same for all
        heads. Store the attention weights in self.attn.
        """
        raise NotImplementedError


class PositionwiseFeedForward(nn.Module):
    """Two linear layers with a ReLU between them, applied at each position."""

    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]: w_1, ReLU, dropout, w_2."""
        raise NotImplementedError


class Embeddings(nn.Module):
    """A vector for each token, multiplied by the square root of its width."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x):
        """[batch, seq] → [batch, seq, d_model]: the embeddings, scaled as in the paper."""
        raise NotImplementedError


class PositionalEncoding(nn.Module):
    """Adds sines and cosines of the positions."""

    def __init__(self, d_model, dropout, max_len=5000):
        """Create a table of max_len positions that moves with the module but is not trained."""
        raise NotImplementedError

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]: add the positions, then dropout."""
        raise NotImplementedError


class LayerNorm(nn.Module):
    """Normalises each vector to mean 0 and standard deviation 1, then scales and shifts it."""

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]; eps prevents a division by zero."""
        raise NotImplementedError


class SublayerConnection(nn.Module):
    """A residual connection around a sublayer whose input is normalised."""

    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        """x plus the dropped-out result of the sublayer (a function) on the normalised x."""
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
    """A stack of layers, followed by a norm."""

    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, mask):
        """[batch, seq, d_model] → [batch, seq, d_model]: all layers, then the norm."""
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

        The three sublayers, in this order: self_attn within the target, src_attn to the encoder's
        output (memory), and feed_forward.
        """
        raise NotImplementedError


class Decoder(nn.Module):
    """A stack of layers that attend to the encoder's output, followed by a norm."""

    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        """[batch, seq, d_model] → [batch, seq, d_model]: all layers, then the norm."""
        raise NotImplementedError


class Generator(nn.Module):
    """Log-probabilities of the next token."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, vocab]: log-probabilities."""
        raise NotImplementedError


class EncoderDecoder(nn.Module):
    """An encoder and a decoder with their embeddings and a generator."""

    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.generator = generator

    def encode(self, src, src_mask):
        """[batch, seq] → [batch, seq, d_model]: the encoder's output for a source text."""
        raise NotImplementedError

    def decode(self, memory, src_mask, tgt, tgt_mask):
        """[batch, seq] → [batch, seq, d_model]: the decoder's output, before the generator."""
        raise NotImplementedError

    def forward(self, src, tgt, src_mask, tgt_mask):
        """The decoder's output for a source and a target text, before the generator."""
        raise NotImplementedError


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    """An EncoderDecoder with N layers on each side, each part with its own parameters.

    src_embed and tgt_embed are each an nn.Sequential of Embeddings and a PositionalEncoding.
    Matrices are initialised with nn.init.xavier_uniform_.
    """
    raise NotImplementedError
