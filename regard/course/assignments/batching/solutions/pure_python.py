"""Loops over positions, with as little of torch as possible."""

import torch


def pad(sequences, pad_id):
    length = len(max(sequences, key=len))
    batch = torch.full((len(sequences), length), pad_id)
    for i, sequence in enumerate(sequences):
        for j, token in enumerate(sequence):
            batch[i, j] = token
    return batch


def padding_mask(tokens, pad_id):
    return torch.tensor([[[token != pad_id for token in row]] for row in tokens.tolist()])


def causal_mask(size):
    return torch.tensor([[key <= query for key in range(size)] for query in range(size)])


def target_mask(tokens, pad_id):
    batch, length = tokens.shape
    mask = torch.zeros(batch, length, length, dtype=torch.bool)
    for i in range(batch):
        for query in range(length):
            for key in range(query + 1):
                mask[i, query, key] = tokens[i, key] != pad_id
    return mask


def masked_softmax(scores, mask):
    powers = torch.exp(scores - scores.amax(-1, keepdim=True)) * mask
    sums = powers.sum(-1, keepdim=True)
    return powers / torch.where(sums == 0, 1, sums)


def shift(tokens):
    length = tokens.size(1)
    return tokens[:, : length - 1], tokens[:, 1:length]


def masked_loss(logits, labels, pad_id):
    losses = []
    for row, targets in zip(logits, labels, strict=True):
        for scores, target in zip(row, targets, strict=True):
            if target != pad_id:
                losses.append(torch.logsumexp(scores, 0) - scores[target])
    return sum(losses) / len(losses) if losses else torch.tensor(0.0)


def make_batches(lengths, max_tokens):
    waiting = sorted((length, index) for index, length in enumerate(lengths))
    batches = []
    while waiting:
        count = 1
        while count < len(waiting) and waiting[count][0] * (count + 1) <= max_tokens:
            count += 1
        batches.append([index for _, index in waiting[:count]])
        waiting = waiting[count:]
    return batches
