"""Masks as integers, products instead of logic, and log-probabilities by hand."""

import torch


def pad(sequences, pad_id):
    lengths = [len(sequence) for sequence in sequences]
    table = torch.zeros(len(lengths), max(lengths), dtype=torch.long) + pad_id
    for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        table[row, :length] = torch.as_tensor(sequence)
    return table


def padding_mask(tokens, pad_id):
    return (1 - (tokens == pad_id).int())[:, None, :]


def causal_mask(size):
    return 1 - torch.triu(torch.ones(size, size, dtype=torch.int), diagonal=1)


def target_mask(tokens, pad_id):
    return padding_mask(tokens, pad_id) * causal_mask(tokens.shape[-1])


def masked_softmax(scores, mask):
    weights = torch.softmax(scores + (mask == 0) * -1e9, dim=-1)
    return weights * mask.any(-1, keepdim=True)


def shift(tokens):
    inputs = tokens[:, :-1].clone()
    labels = tokens[:, 1:].clone()
    return inputs, labels


def masked_loss(logits, labels, pad_id):
    real = labels[labels != pad_id]
    if real.numel() == 0:
        return logits.sum() * 0
    chosen = logits[labels != pad_id]  # [real, vocab]
    return -chosen.log_softmax(-1)[torch.arange(len(real)), real].mean()


def make_batches(lengths, max_tokens):
    batches = [[]]
    for length, index in sorted(zip(lengths, range(len(lengths)), strict=True)):
        fits = length * (len(batches[-1]) + 1) <= max_tokens
        if not fits and batches[-1]:
            batches.append([])
        batches[-1].append(index)
    return batches
