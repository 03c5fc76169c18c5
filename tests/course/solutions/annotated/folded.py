"""Folds heads into the batch for bmm; computes norms by hand; writes layers without SublayerConnection."""

import copy

import torch
from torch import nn


def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size):
    return ~torch.ones((1, size, size), dtype=torch.bool).triu_(1)


def attention(query, key, value, mask=None, dropout=None):
    *lead, t, d = query.shape
    s = key.shape[-2]
    q, k, v = query.reshape(-1, t, d), key.reshape(-1, s, d), value.reshape(-1, s, value.shape[-1])
    scores = torch.bmm(q, k.mT) / d**0.5  # [batch*heads, seq, seq]
    scores = scores.view(*lead, t, s)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    p = torch.softmax(scores, dim=-1).nan_to_num(0.0)
    if dropout:
        p = dropout(p)
    out = torch.bmm(p.reshape(-1, t, s), v)
    return out.view(*lead, t, -1), p


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
        self.dropout = nn.Dropout(dropout)
        self.attn = None

    def forward(self, query, key, value, mask=None):
        b, h, d = query.size(0), self.h, self.d_k
        to_q, to_k, to_v, to_out = self.linears
        q = to_q(query).reshape(b, -1, h, d).swapaxes(1, 2)
        k = to_k(key).reshape(b, -1, h, d).swapaxes(1, 2)
        v = to_v(value).reshape(b, -1, h, d).swapaxes(1, 2)
        if mask is not None:
            mask = mask.unsqueeze(1)
        x, self.attn = attention(q, k, v, mask=mask, dropout=self.dropout)
        x = x.swapaxes(1, 2).contiguous().view(b, -1, h * d)
        return to_out(x)


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = self.w_1(x)
        return self.w_2(self.dropout(x * (x > 0)))


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)

    def forward(self, x):
        e = self.lut(x)
        return e * e.shape[-1] ** 0.5


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        i = torch.arange(d_model)
        angle = torch.arange(max_len)[:, None] * torch.pow(10000.0, -(i - i % 2) / d_model)
        self.register_buffer("table", torch.where(i % 2 == 0, angle.sin(), angle.cos()))

    def forward(self, x):
        return self.dropout(x + self.table[torch.arange(x.size(1))])


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(features))
        self.beta = nn.Parameter(torch.zeros(features))
        self.n, self.eps = features, eps

    def forward(self, x):
        mean = x.sum(-1, keepdim=True) / self.n
        var = x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.gamma + self.beta


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm, self.dropout = LayerNorm(size), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.size, self.self_attn, self.feed_forward = size, self_attn, feed_forward
        self.norm1, self.norm2 = LayerNorm(size), LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.dropout(self.self_attn(y, y, y, mask))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class Encoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers, self.norm = clones(layer, N), LayerNorm(layer.size)

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward, dropout):
        super().__init__()
        self.size, self.self_attn, self.src_attn, self.feed_forward = size, self_attn, src_attn, feed_forward
        self.norm1, self.norm2, self.norm3 = LayerNorm(size), LayerNorm(size), LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, src_mask, tgt_mask):
        y = self.norm1(x)
        x = x + self.dropout(self.self_attn(y, y, y, tgt_mask))
        x = x + self.dropout(self.src_attn(self.norm2(x), memory, memory, src_mask))
        return x + self.dropout(self.feed_forward(self.norm3(x)))


class Decoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers, self.norm = clones(layer, N), LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return nn.LogSoftmax(dim=-1)(self.proj(x))


class EncoderDecoder(nn.Module):
    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder, self.decoder, self.generator = encoder, decoder, generator
        self.src_embed, self.tgt_embed = src_embed, tgt_embed

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)

    def forward(self, src, tgt, src_mask, tgt_mask):
        memory = self.encode(src, src_mask)
        return self.decode(memory, src_mask, tgt, tgt_mask)


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    c = copy.deepcopy
    attn, ff = MultiHeadedAttention(h, d_model, dropout), PositionwiseFeedForward(d_model, d_ff, dropout)
    position = PositionalEncoding(d_model, dropout)
    model = EncoderDecoder(
        Encoder(EncoderLayer(d_model, c(attn), c(ff), dropout), N),
        Decoder(DecoderLayer(d_model, c(attn), c(attn), c(ff), dropout), N),
        nn.Sequential(Embeddings(d_model, src_vocab), c(position)),
        nn.Sequential(Embeddings(d_model, tgt_vocab), c(position)),
        Generator(d_model, tgt_vocab),
    )
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return model
