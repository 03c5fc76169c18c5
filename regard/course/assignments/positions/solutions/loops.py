"""One position and one pair of features at a time, with Python's math."""

import math

import torch


def frequencies(width):
    return torch.tensor([1 / 10000 ** (2 * pair / width) for pair in range(width // 2)])


def sinusoids(positions, width):
    rows = []
    for position in positions.tolist():
        row = []
        for frequency in frequencies(width).tolist():
            row += [math.sin(position * frequency), math.cos(position * frequency)]
        rows.append(row)
    return torch.tensor(rows)


def embed(tokens, table):
    width = table.shape[1]
    batch = []
    for sentence in tokens:
        encoding = sinusoids(torch.arange(len(sentence)), width)
        pairs = zip(sentence, encoding, strict=True)
        batch.append(torch.stack([table[token] * width**0.5 + wave for token, wave in pairs]))
    return torch.stack(batch)


def rotate(x, positions):
    size = x.shape[-1]
    turned = torch.zeros_like(x)
    for index, position in enumerate(positions.tolist()):
        for pair, frequency in enumerate(frequencies(size).tolist()):
            cos, sin = math.cos(position * frequency), math.sin(position * frequency)
            matrix = torch.tensor([[cos, -sin], [sin, cos]], dtype=x.dtype)
            both = [pair, pair + size // 2]
            turned[:, :, index, both] = x[:, :, index, both] @ matrix.T
    return turned


def attend(q, k, v):
    batch, heads, new, size = q.shape
    seq = k.shape[2]
    q, k = rotate(q, torch.arange(seq - new, seq)), rotate(k, torch.arange(seq))
    heads_out = []
    for b in range(batch):
        for h in range(heads):
            weights = torch.softmax(q[b, h] @ k[b, h].T / size**0.5, dim=-1)
            heads_out.append(weights @ v[b, h])
    return torch.stack(heads_out).view(batch, heads, new, size)
