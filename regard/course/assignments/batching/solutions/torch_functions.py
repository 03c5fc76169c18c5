"""torch's own functions wherever there is one."""

from itertools import groupby

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence


def pad(sequences, pad_id):
    return pad_sequence([torch.tensor(sequence) for sequence in sequences], batch_first=True, padding_value=pad_id)


def padding_mask(tokens, pad_id):
    return tokens.ne(pad_id).unsqueeze(1)


def causal_mask(size):
    positions = torch.arange(size)
    return positions.unsqueeze(1) >= positions


def target_mask(tokens, pad_id):
    return torch.logical_and(padding_mask(tokens, pad_id), causal_mask(tokens.size(1)))


def masked_softmax(scores, mask):
    scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    return torch.where(mask, F.softmax(scores, -1), 0.0)


def shift(tokens):
    return tokens.narrow(1, 0, tokens.size(1) - 1), tokens.narrow(1, 1, tokens.size(1) - 1)


def masked_loss(logits, labels, pad_id):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, reduction="sum")
    return total / max(1, int((labels != pad_id).sum()))


def make_batches(lengths, max_tokens):
    numbers, batch, count = {}, 0, 0
    for index in torch.tensor(lengths).argsort(stable=True).tolist():
        count += 1
        if count > 1 and lengths[index] * count > max_tokens:
            batch, count = batch + 1, 1
        numbers[index] = batch
    return [list(group) for _, group in groupby(numbers, key=numbers.get)]
