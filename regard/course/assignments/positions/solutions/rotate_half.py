"""The style of Hugging Face's Llama: cosines and sines for all features, and rotate_half."""

import math

import torch


def frequencies(width):
    return 1.0 / (10000 ** (torch.arange(0, width, 2).float() / width))


def sinusoids(positions, width):
    pe = torch.zeros(len(positions), width)
    angle = positions.unsqueeze(1) * frequencies(width)
    pe[:, 0::2] = torch.sin(angle)
    pe[:, 1::2] = torch.cos(angle)
    return pe


def embed(tokens, table):
    x = torch.index_select(table, 0, tokens.reshape(-1)).view(*tokens.shape, -1)
    x *= math.sqrt(x.size(-1))
    x += sinusoids(torch.arange(x.size(1)), x.size(-1)).unsqueeze(0)
    return x


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def rotate(x, positions):
    angle = torch.outer(positions.float(), frequencies(x.shape[-1]).float())
    emb = torch.cat((angle, angle), dim=-1)[None, None]
    return (x * emb.cos()) + (rotate_half(x) * emb.sin())


def attend(q, k, v):
    seq, new = k.shape[2], q.shape[2]
    positions = torch.arange(seq)
    scores = torch.einsum("bhqd,bhkd->bhqk", rotate(q, positions[seq - new :]), rotate(k, positions))
    return torch.einsum("bhqk,bhkd->bhqd", (scores / math.sqrt(k.shape[-1])).softmax(dim=-1), v)
