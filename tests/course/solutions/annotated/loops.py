"""Uses loops over queries, heads, positions and sublayers."""

import copy
import math

import torch
from torch import nn


def clones(module, N):
    made = nn.ModuleList()
    for _ in range(N):
        made.append(copy.deepcopy(module))
    return made


def subsequent_mask(size):
    mask = torch.zeros(size, size, dtype=torch.bool)
    for row in range(size):
        for column in range(row + 1):
            mask[row, column] = True
    return mask


def attention(query, key, value, mask=None, dropout=None):
    rows, weights = [], []
    scale = query.shape[-1] ** -0.5
    if mask is not None:
        mask = mask.expand(*query.shape[:-1], key.shape[-2])
    for place in range(query.shape[-2]):
        one = query[..., place, :].unsqueeze(-2)
        scores = (one * key).sum(-1) * scale
        if mask is not None:
            hidden = mask[..., place, :].logical_not()
            scores = scores - 1e9 * hidden
        scores = scores - scores.max(dim=-1, keepdim=True).values
        grown = scores.exp()
        share = grown / grown.sum(dim=-1, keepdim=True)
        if dropout is not None:
            share = dropout(share)
        rows.append((share.unsqueeze(-1) * value).sum(-2))
        weights.append(share)
    return torch.stack(rows, dim=-2), torch.stack(weights, dim=-2)


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h = h
        self.d_k = d_model // h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.dropout = nn.Dropout(dropout)
        self.attn = None

    def forward(self, query, key, value, mask=None):
        q = self.linears[0](query)
        k = self.linears[1](key)
        v = self.linears[2](value)
        outs, attns = [], []
        for head in range(self.h):
            part = slice(head * self.d_k, (head + 1) * self.d_k)
            one = [x[:, None, :, part] for x in (q, k, v)]  # a head is a group of columns
            out, attn = attention(*one, None if mask is None else mask.unsqueeze(1), self.dropout)
            outs.append(out.squeeze(1))
            attns.append(attn)
        self.attn = torch.cat(attns, dim=1)
        together = torch.cat(outs, dim=-1)
        return self.linears[3](together)


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.rate = dropout

    def forward(self, x):
        x = self.w_1(x)
        x = torch.clamp(x, min=0)
        if self.training:
            x = x * (torch.rand(x.shape) >= self.rate) / (1 - self.rate)
        return self.w_2(x)


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, x):
        vectors = self.lut(x)
        return vectors * self.scale


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.d_model = d_model

    def encode(self, length):
        rows = []
        for pos in range(length):
            row = []
            for i in range(self.d_model // 2):
                angle = pos / 10000 ** (2 * i / self.d_model)
                row.extend([math.sin(angle), math.cos(angle)])
            rows.append(row)
        return torch.tensor(rows)

    def forward(self, x):
        pe = self.encode(x.shape[1]).to(x)
        return self.dropout(x + pe)


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = (centred**2).mean(dim=-1, keepdim=True)
        return self.a_2 * centred / torch.sqrt(variance + self.eps) + self.b_2


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        out = self.norm(x)
        out = sublayer(out)
        out = self.dropout(out)
        return x + out


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 2)
        self.size = size

    def forward(self, x, mask):
        steps = [lambda y: self.self_attn(y, y, y, mask), self.feed_forward]
        for around, step in zip(self.sublayer, steps, strict=True):
            x = around(x, step)
        return x


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward, dropout):
        super().__init__()
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 3)
        self.size = size

    def forward(self, x, memory, src_mask, tgt_mask):
        steps = [
            lambda y: self.self_attn(y, y, y, tgt_mask),
            lambda y: self.src_attn(y, memory, memory, src_mask),
            self.feed_forward,
        ]
        for around, step in zip(self.sublayer, steps, strict=True):
            x = around(x, step)
        return x


class Stack(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, *rest):
        for layer in self.layers:
            x = layer(x, *rest)
        return self.norm(x)


class Encoder(Stack):
    pass


class Decoder(Stack):
    pass


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        logits = self.proj(x)
        return logits - logits.logsumexp(dim=-1, keepdim=True)


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
        memory = self.encode(src, src_mask)
        return self.decode(memory, src_mask, tgt, tgt_mask)


class Embed(nn.Module):
    def __init__(self, d_model, vocab, dropout):
        super().__init__()
        self.tokens = Embeddings(d_model, vocab)
        self.places = PositionalEncoding(d_model, dropout)

    def forward(self, x):
        return self.places(self.tokens(x))


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    attn = MultiHeadedAttention(h, d_model, dropout)
    cross = MultiHeadedAttention(h, d_model, dropout)
    ff = PositionwiseFeedForward(d_model, d_ff, dropout)
    encoder = Encoder(EncoderLayer(d_model, attn, ff, dropout), N)
    decoder = Decoder(DecoderLayer(d_model, attn, cross, ff, dropout), N)
    src_embed, tgt_embed = Embed(d_model, src_vocab, dropout), Embed(d_model, tgt_vocab, dropout)
    model = EncoderDecoder(encoder, decoder, src_embed, tgt_embed, Generator(d_model, tgt_vocab))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                bound = math.sqrt(6 / (weight.size(0) + weight.size(1)))
                weight.copy_((2 * torch.rand(weight.shape) - 1) * bound)
    return model
