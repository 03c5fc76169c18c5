import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def clones(module, N):
    return nn.ModuleList(copy.deepcopy(module) for _ in range(N))


def subsequent_mask(size):
    i = torch.arange(size)
    return (i[None, :] <= i[:, None])[None]


def apply_mask(scores, mask):
    if mask is None:
        return scores
    return torch.where(mask.bool(), scores, torch.full_like(scores, -1e9))


def attention(query, key, value, mask=None, dropout=None):
    d = query.shape[-1]
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key).div(d**0.5)
    probs = F.softmax(apply_mask(scores, mask), dim=-1)
    used = probs if dropout is None else dropout(probs)
    return torch.einsum("bhqk,bhkd->bhqd", used, value), used


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h = h
        self.d_k = d_model // h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(dropout)

    def heads_of(self, layer, x):
        return torch.stack(layer(x).split(self.d_k, dim=-1), dim=1)

    def glue(self, x):
        return torch.cat([x[:, i] for i in range(self.h)], dim=-1)

    def forward(self, query, key, value, mask=None):
        to_q, to_k, to_v, to_out = self.linears
        m = None if mask is None else mask[:, None]
        mixed, self.attn = attention(
            self.heads_of(to_q, query), self.heads_of(to_k, key), self.heads_of(to_v, value), m, self.dropout
        )
        return to_out(self.glue(mixed))


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = F.relu(self.w_1(x))
        h = self.dropout(h)
        return self.w_2(h)


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x):
        return self.lut(x) * self.d_model**0.5


def wave_table(n, d):
    rows = torch.arange(n, dtype=torch.float)[:, None]
    speed = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
    waves = rows * speed
    return torch.stack([waves.sin(), waves.cos()], dim=-1).flatten(1)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", wave_table(max_len, d_model))

    def forward(self, x):
        return self.dropout(x + self.table[: x.shape[1]])


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        var = centred.pow(2).mean(dim=-1, keepdim=True)
        return centred / (var.sqrt() + self.eps) * self.a_2 + self.b_2


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        y = self.norm(x)
        y = sublayer(y)
        y = self.dropout(y)
        return x + y


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 2)
        self.size = size

    def forward(self, x, mask):
        first, second = self.sublayer

        def look(y):
            return self.self_attn(y, y, y, mask)

        x = first(x, look)
        x = second(x, self.feed_forward)
        return x


class Encoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, mask):
        h = x
        for layer in self.layers:
            h = layer(h, mask)
        return self.norm(h)


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward, dropout):
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 3)

    def look_back(self, mask):
        return lambda y: self.self_attn(y, y, y, mask)

    def look_at_source(self, memory, mask):
        return lambda y: self.src_attn(y, memory, memory, mask)

    def forward(self, x, memory, src_mask, tgt_mask):
        h = self.sublayer[0](x, self.look_back(tgt_mask))
        h = self.sublayer[1](h, self.look_at_source(memory, src_mask))
        h = self.sublayer[2](h, self.feed_forward)
        return h


class Decoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        h = x
        for layer in self.layers:
            h = layer(h, memory, src_mask, tgt_mask)
        return self.norm(h)


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return F.log_softmax(self.proj(x), dim=-1)


class EncoderDecoder(nn.Module):
    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.generator = generator

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


def _embedding(vocab, d_model, dropout):
    return nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    def attn():
        return MultiHeadedAttention(h, d_model, dropout)

    def ffn():
        return PositionwiseFeedForward(d_model, d_ff, dropout)

    enc = Encoder(EncoderLayer(d_model, attn(), ffn(), dropout), N)
    dec = Decoder(DecoderLayer(d_model, attn(), attn(), ffn(), dropout), N)
    src, tgt = _embedding(src_vocab, d_model, dropout), _embedding(tgt_vocab, d_model, dropout)
    net = EncoderDecoder(enc, dec, src, tgt, Generator(d_model, tgt_vocab))
    for w in net.parameters():
        if w.dim() >= 2:
            nn.init.xavier_uniform_(w)
    return net
