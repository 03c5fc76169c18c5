"""Uses PyTorch's own multi-head attention, scaled dot product and norm; computes the sinusoids as complex numbers."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for i in range(N)])


def subsequent_mask(size):
    index = torch.arange(size)
    return (index[None, :] <= index[:, None])[None]


def attention(query, key, value, mask=None, dropout=None):
    keys = torch.eye(key.size(-2)).expand(*key.shape[:-1], -1)
    if mask is not None:
        mask = mask.expand(*query.shape[:-1], key.size(-2))
    weights = F.scaled_dot_product_attention(query, key, keys, attn_mask=mask)
    if dropout is not None:
        weights = dropout(weights)
    return torch.matmul(weights, value), weights


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h = h
        self.inner = nn.MultiheadAttention(d_model, h, dropout=dropout, batch_first=True)
        self.attn = None

    def forward(self, query, key, value, mask=None):
        hidden = None
        if mask is not None:
            whole = mask.expand(query.size(0), query.size(1), key.size(1))
            hidden = ~whole.repeat_interleave(self.h, dim=0)  # [batch*heads, seq, seq]: True hides
        out, self.attn = self.inner(query, key, value, attn_mask=hidden, average_attn_weights=False)
        return out


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.p = dropout

    def forward(self, x):
        return self.w_2(F.dropout(F.relu(self.w_1(x)), self.p, self.training))


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x):
        return math.sqrt(self.d_model) * F.embedding(x, self.lut.weight)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.p = dropout
        rates = 1 / 10000 ** (torch.arange(0, d_model, 2) / d_model)
        angles = torch.outer(torch.arange(max_len), rates)
        waves = torch.polar(torch.ones_like(angles), math.pi / 2 - angles)  # cos(pi/2 - a) = sin(a)
        self.pe = nn.Parameter(torch.view_as_real(waves).flatten(1), requires_grad=False)

    def forward(self, x):
        x = x + self.pe[: x.size(1), :]
        return F.dropout(x, self.p, training=self.training)


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.inner = nn.LayerNorm(features)

    def forward(self, x):
        return self.inner(x)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return self.drop(sublayer(self.norm(x))) + x


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.feed_forward = feed_forward
        self.self_attn = self_attn
        self.first = SublayerConnection(size, dropout)
        self.second = SublayerConnection(size, dropout)
        self.size = size

    def forward(self, x, mask):
        def attend(y):
            return self.self_attn(y, y, y, mask)

        return self.second(self.first(x, attend), self.feed_forward)


class Encoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.final_norm = nn.LayerNorm(layer.size)

    def forward(self, x, mask):
        for i in range(len(self.layers)):
            x = self.layers[i](x, mask)
        return self.final_norm(x)


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward, dropout):
        super().__init__()
        self.size = size
        self.src_attn = src_attn
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.first = SublayerConnection(size, dropout)
        self.second = SublayerConnection(size, dropout)
        self.third = SublayerConnection(size, dropout)

    def forward(self, x, memory, src_mask, tgt_mask):
        def look_back(y):
            return self.self_attn(y, y, y, tgt_mask)

        def look_over(y):
            return self.src_attn(y, memory, memory, src_mask)

        x = self.first(x, look_back)
        x = self.second(x, look_over)
        return self.third(x, self.feed_forward)


class Decoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.final_norm = nn.LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        for i in range(len(self.layers)):
            x = self.layers[i](x, memory, src_mask, tgt_mask)
        return self.final_norm(x)


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return torch.log(torch.softmax(self.proj(x), -1))


class EncoderDecoder(nn.Module):
    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.generator = generator

    def encode(self, src, src_mask):
        x = self.src_embed(src)
        return self.encoder(x, src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        x = self.tgt_embed(tgt)
        return self.decoder(x, memory, src_mask, tgt_mask)

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    attn = MultiHeadedAttention(h, d_model, dropout)
    ff = PositionwiseFeedForward(d_model, d_ff, dropout)
    position = PositionalEncoding(d_model, dropout)
    model = EncoderDecoder(
        Encoder(EncoderLayer(d_model, attn, ff, dropout), N),
        Decoder(DecoderLayer(d_model, attn, copy.deepcopy(attn), ff, dropout), N),
        nn.Sequential(Embeddings(d_model, src_vocab), position),
        nn.Sequential(Embeddings(d_model, tgt_vocab), position),
        Generator(d_model, tgt_vocab),
    )
    for p in model.parameters():
        if p.requires_grad and p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return model
