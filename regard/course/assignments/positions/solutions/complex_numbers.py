"""Rotations as products of complex numbers."""

import torch
import torch.nn.functional as F


def frequencies(width):
    return torch.exp(torch.arange(width // 2) * (-2 * torch.log(torch.tensor(10000.0)) / width))


def turns(positions, width):
    """e^(i·position·frequency), [seq, width / 2]."""
    angle = torch.outer(positions.to(frequencies(width).dtype), frequencies(width))
    return torch.polar(torch.ones_like(angle), angle)


def sinusoids(positions, width):
    waves = turns(positions, width)
    return torch.stack((waves.imag, waves.real), -1).reshape(len(positions), width)


def embed(tokens, table):
    seq, width = tokens.size(1), table.size(1)
    return F.embedding(tokens, table) * width**0.5 + sinusoids(torch.arange(seq), width)


def rotate(x, positions):
    half = x.size(-1) // 2
    z = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())
    z = z * turns(positions, x.size(-1)).to(z.dtype)
    return torch.cat([z.real, z.imag], dim=-1)


def attend(q, k, v):
    past = k.size(-2) - q.size(-2)
    q = rotate(q, torch.arange(past, k.size(-2)))
    return F.scaled_dot_product_attention(q, rotate(k, torch.arange(k.size(-2))), v)
