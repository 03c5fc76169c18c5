"""A correct solution."""

import math

import torch


def frequencies(width):
    """How fast each pair of features turns: [width / 2] frequencies in radians per position."""
    exponents = torch.arange(0, width, 2) / width  # [pairs]
    return 10_000.0**-exponents  # [pairs]


def sinusoids(positions, width):
    """Positions [seq] → sines and cosines [seq, width]."""
    waves = positions[:, None] * frequencies(width)  # [seq, pairs]
    encoding = torch.stack([waves.sin(), waves.cos()], dim=-1)  # [seq, pairs, 2]
    return encoding.flatten(1)  # [seq, width]


def embed(tokens, table):
    """Token ids [batch, seq] and embeddings [vocab, width] → [batch, seq, width]."""
    width = table.shape[1]
    vectors = table[tokens] * math.sqrt(width)  # [batch, seq, width]
    embedded = vectors + sinusoids(torch.arange(tokens.shape[1]), width)  # [batch, seq, width]
    return embedded


def rotate(x, positions):
    """[batch, heads, seq, head_size] and positions [seq] → the rotated vectors, of the same shape."""
    angles = positions[:, None] * frequencies(x.shape[-1])  # [seq, pairs]
    cos, sin = angles.cos(), angles.sin()  # [seq, pairs]
    first, second = x.chunk(2, dim=-1)  # [batch, heads, seq, pairs]
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)  # [batch, heads, seq, head_size]
    return rotated


def attend(q, k, v):
    """Queries [batch, heads, new, head_size] of the last tokens, keys and values of all → like the queries."""
    positions = torch.arange(k.shape[2])  # [seq]
    q = rotate(q, positions[-q.shape[2] :])  # [batch, heads, new, head_size]
    k = rotate(k, positions)  # [batch, heads, seq, head_size]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [batch, heads, new, seq]
    weights = torch.softmax(scores, dim=-1)  # [batch, heads, new, seq]
    return weights @ v  # [batch, heads, new, head_size]
