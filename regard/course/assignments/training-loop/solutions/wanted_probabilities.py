"""The wanted distribution is written out, and the gradients are divided at the end."""

import math

import torch
from torch import nn


def learning_rate(step, width, warmup):
    rising, falling = step / math.sqrt(warmup) ** 3, 1 / math.sqrt(step)
    return (rising if rising < falling else falling) / math.sqrt(width)


def smoothed_loss(logits, targets, smoothing, pad):
    vocab = logits.size(-1)
    wanted = torch.full_like(logits, smoothing / vocab)
    wanted.scatter_add_(-1, targets.unsqueeze(-1), torch.full_like(targets, 0).unsqueeze(-1) + (1.0 - smoothing))
    wanted[targets == pad] = 0
    return torch.sum(wanted * -torch.log(torch.softmax(logits, -1))), (targets != pad).sum().item()


def clip_gradients(parameters, max_norm):
    with torch.no_grad():
        having = [p for p in parameters if p.grad is not None]
        norm = torch.cat([p.grad.reshape(-1) for p in having]).norm()
        if norm > max_norm:
            for p in having:
                p.grad = p.grad / norm * max_norm
    return norm.item()


def train(model: nn.Module, optimizer, batches, accumulate, width, warmup, max_norm, smoothing, pad):
    model.train(True)
    losses, step, total, tokens = [], 1, 0.0, 0
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(batches, start=1):
        loss, count = smoothed_loss(model(inputs), targets, smoothing, pad)
        loss.backward()
        total, tokens = total + loss.detach(), tokens + count
        if number % accumulate == 0 or number == len(batches):
            for p in model.parameters():
                p.grad /= tokens
            clip_gradients(model.parameters(), max_norm)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, width, warmup)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(total / tokens))
            step, total, tokens = step + 1, 0.0, 0
    return losses
