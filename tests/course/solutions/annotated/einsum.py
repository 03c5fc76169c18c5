"""Uses einsum, a norm that inherits from PyTorch's, and sinusoids stacked in pairs."""

from copy import deepcopy
from math import log, sqrt

import torch
import torch.nn.functional as F
from torch import nn


def clones(module, N):
    return nn.ModuleList(deepcopy(module) for _ in range(N))


def subsequent_mask(size):
    ahead = torch.triu(torch.ones(1, size, size), diagonal=1).type(torch.uint8)
    return ahead == 0


def attention(query, key, value, mask=None, dropout=None):
    energy = torch.einsum("bhtd,bhsd->bhts", query / sqrt(query.shape[-1]), key)  # [batch, heads, seq, seq]
    if mask is not None:
        energy = torch.where(mask, energy, torch.finfo(energy.dtype).min)
    share = F.softmax(energy, dim=3)
    if dropout is not None:
        share = dropout(share)
    return torch.einsum("bhts,bhsd->bhtd", share, value), share


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.dropout = nn.Dropout(p=dropout)
        self.attn = None

    def forward(self, query, key, value, mask=None):
        heads = []
        for linear, x in zip(self.linears[:3], (query, key, value), strict=True):
            heads.append(linear(x).unflatten(-1, (self.h, -1)).permute(0, 2, 1, 3))  # [batch, h, seq, d_k]
        mixed, self.attn = attention(*heads, mask=None if mask is None else mask[:, None], dropout=self.dropout)
        return self.linears[-1](mixed.permute(0, 2, 1, 3).flatten(2))


class PositionwiseFeedForward(nn.Sequential):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.act = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.w_2 = nn.Linear(d_ff, d_model)


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model, padding_idx=0)

    def forward(self, x):
        return self.lut(x) * self.lut.embedding_dim**0.5


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        turns = torch.einsum("p,f->pf", torch.arange(max_len).float(), self.rates(d_model))
        waves = torch.stack([turns.sin(), turns.cos()], dim=-1)  # [max_len, d_model / 2, 2]
        self.register_buffer("pe", waves.flatten(1).unsqueeze(0), persistent=False)

    @staticmethod
    def rates(d_model):
        return torch.exp(-log(10000) * torch.arange(0, d_model, 2).float() / d_model)

    def forward(self, x):
        return self.dropout(x + self.pe[:, : x.shape[1]])


class LayerNorm(nn.LayerNorm):
    def __init__(self, features, eps=1e-6):
        super().__init__(features, eps=eps)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        y = self.norm(x)
        y = self.dropout(sublayer(y))
        return x + y


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.size = size
        self.self_attn, self.feed_forward = self_attn, feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 2)

    def forward(self, x, mask):
        around_attention, around_feeding = self.sublayer
        x = around_attention(x, lambda y: self.self_attn(y, y, y, mask=mask))
        return around_feeding(x, self.feed_forward)


class Encoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward, dropout):
        super().__init__()
        self.size = size
        self.self_attn, self.src_attn, self.feed_forward = self_attn, src_attn, feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 3)

    def forward(self, x, memory, src_mask, tgt_mask):
        m = memory
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, mask=tgt_mask))
        x = self.sublayer[1](x, lambda y: self.src_attn(y, m, m, mask=src_mask))
        return self.sublayer[2](x, self.feed_forward)


class Decoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return F.log_softmax(self.proj(x), dim=-1)


class EncoderDecoder(nn.Module):
    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed = src_embed, tgt_embed
        self.generator = generator

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


def xavier(part):
    for matrix in part.parameters(recurse=False):
        if matrix.ndim == 2:
            nn.init.xavier_uniform_(matrix)


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    def attn():
        return MultiHeadedAttention(h, d_model, dropout)

    def feed():
        return PositionwiseFeedForward(d_model, d_ff, dropout)

    def embed(vocab):
        return nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))

    model = EncoderDecoder(
        Encoder(EncoderLayer(d_model, attn(), feed(), dropout), N),
        Decoder(DecoderLayer(d_model, attn(), attn(), feed(), dropout), N),
        embed(src_vocab),
        embed(tgt_vocab),
        Generator(d_model, tgt_vocab),
    )
    return model.apply(xavier)
