import math

import torch


def _turns(positions, width):
    """table of angles, one row per position"""
    return positions.unsqueeze(-1).double() * frequencies(width).unsqueeze(0).double()


def frequencies(width):
    steps = torch.arange(0, width, 2)
    return torch.exp(-math.log(10000.0) * steps / width)


def sinusoids(positions, width):
    table = torch.empty(len(positions), width)
    a = _turns(positions, width).float()
    table[:, 0::2] = a.sin()
    table[:, 1::2] = a.cos()
    return table


def embed(tokens, table):
    n, d = tokens.shape[1], table.shape[1]
    looked_up = table[tokens]
    where = torch.arange(n)
    return looked_up * d**0.5 + sinusoids(where, d)


def swap_halves(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotate(x, positions):
    a = _turns(positions, x.shape[-1]).to(x.dtype)
    a = torch.cat((a, a), dim=-1)
    return x * a.cos() + swap_halves(x) * a.sin()


def attend(q, k, v):
    total, new = k.shape[-2], q.shape[-2]
    everything = torch.arange(total)
    rq = rotate(q, everything[total - new :])
    rk = rotate(k, everything)
    s = torch.matmul(rq, rk.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return torch.matmul(torch.softmax(s, dim=-1), v)
