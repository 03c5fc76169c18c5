"""A correct solution: the complete Transformer, with the norm before each sublayer."""

import copy
import math

import torch
from torch import nn


def clones(module, N):
    """N copies of a module, each with its own parameters."""
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size):
    """[1, size, size]: True where a position may look."""
    return torch.ones(1, size, size).tril().bool()


def attention(query, key, value, mask=None, dropout=None):
    """The weighted averages of the values, and the weights."""
    scores = query @ key.transpose(-2, -1)  # [batch, heads, seq, seq]
    scores = scores / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    mixed = p_attn @ value  # [batch, heads, seq, d_k]
    return mixed, p_attn


class MultiHeadedAttention(nn.Module):
    """Attention in h heads, each with a part of the width."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h = h
        self.d_k = d_model // h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(dropout)

    def split_heads(self, x):
        """[batch, seq, d_model] → [batch, h, seq, d_k]."""
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def merge_heads(self, x):
        """[batch, h, seq, d_k] → [batch, seq, d_model]."""
        return x.transpose(1, 2).reshape(x.size(0), -1, self.h * self.d_k)

    def forward(self, query, key, value, mask=None):
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        if mask is not None:
            mask = mask.unsqueeze(1)
        queries = self.split_heads(self.linears[0](query))  # [batch, h, seq, d_k]
        keys = self.split_heads(self.linears[1](key))
        values = self.split_heads(self.linears[2](value))
        mixed, self.attn = attention(queries, keys, values, mask, self.dropout)
        merged = self.merge_heads(mixed)  # [batch, seq, d_model]
        return self.linears[3](merged)


class PositionwiseFeedForward(nn.Module):
    """Two linear layers with a ReLU between them, applied at each position."""

    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        hidden = self.w_1(x).relu()  # [batch, seq, d_ff]
        return self.w_2(self.dropout(hidden))


class Embeddings(nn.Module):
    """A vector for each token, multiplied by the square root of its width."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x):
        """[batch, seq] → [batch, seq, d_model]."""
        return self.lut(x) * math.sqrt(self.d_model)


class PositionalEncoding(nn.Module):
    """Adds sines and cosines of the positions."""

    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        angle = position * rate
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(angle)
        pe[:, 1::2] = torch.cos(angle)
        self.register_buffer("pe", pe)

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        with_positions = x + self.pe[: x.size(1)]
        return self.dropout(with_positions)


class LayerNorm(nn.Module):
    """Normalises each vector to mean 0 and standard deviation 1, then scales and shifts it."""

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        normed = (x - mean) / (std + self.eps)
        return self.a_2 * normed + self.b_2


class SublayerConnection(nn.Module):
    """A residual connection around a sublayer whose input is normalised."""

    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        """The input plus the result of the sublayer."""
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 2)
        self.size = size

    def forward(self, x, mask):
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        attended = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, mask))
        return self.sublayer[1](attended, self.feed_forward)


class Encoder(nn.Module):
    """A stack of layers, followed by a norm."""

    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, mask):
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        for layer in self.layers:
            x = layer(x, mask)
        memory = self.norm(x)
        return memory


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
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        self_attended = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        cross_attended = self.sublayer[1](self_attended, lambda y: self.src_attn(y, memory, memory, src_mask))
        return self.sublayer[2](cross_attended, self.feed_forward)


class Decoder(nn.Module):
    """A stack of layers that attend to the encoder's output, followed by a norm."""

    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        """[batch, seq, d_model] → [batch, seq, d_model]."""
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        states = self.norm(x)
        return states


class Generator(nn.Module):
    """Log-probabilities of the next token."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        """[batch, seq, d_model] → [batch, seq, vocab]."""
        logits = self.proj(x)  # [batch, seq, tgt_vocab]
        return logits.log_softmax(dim=-1)


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
        """[batch, seq] → [batch, seq, d_model]."""
        source_embedded = self.src_embed(src)  # [batch, seq, d_model]
        return self.encoder(source_embedded, src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        """[batch, seq] → [batch, seq, d_model]: the decoder's states, before the generator."""
        target_embedded = self.tgt_embed(tgt)  # [batch, seq, d_model]
        return self.decoder(target_embedded, memory, src_mask, tgt_mask)

    def forward(self, src, tgt, src_mask, tgt_mask):
        """The decoder's states for a source and a target text."""
        memory = self.encode(src, src_mask)
        return self.decode(memory, src_mask, tgt, tgt_mask)


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    """The complete Transformer, each part with its own parameters."""
    attn = MultiHeadedAttention(h, d_model, dropout)
    ff = PositionwiseFeedForward(d_model, d_ff, dropout)
    position = PositionalEncoding(d_model, dropout)
    copied = copy.deepcopy
    encoder_layer = EncoderLayer(d_model, copied(attn), copied(ff), dropout)
    decoder_layer = DecoderLayer(d_model, copied(attn), copied(attn), copied(ff), dropout)
    model = EncoderDecoder(
        Encoder(encoder_layer, N),
        Decoder(decoder_layer, N),
        nn.Sequential(Embeddings(d_model, src_vocab), copied(position)),
        nn.Sequential(Embeddings(d_model, tgt_vocab), copied(position)),
        Generator(d_model, tgt_vocab),
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model
