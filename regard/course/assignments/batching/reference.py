"""A correct solution."""

import torch
import torch.nn.functional as F


def pad(sequences, pad_id):
    """Sequences of token ids as one tensor, filled up with padding on the right."""
    longest = max(len(sequence) for sequence in sequences)
    rows = [list(sequence) + [pad_id] * (longest - len(sequence)) for sequence in sequences]
    padded = torch.tensor(rows)  # [batch, seq]
    return padded


def padding_mask(tokens, pad_id):
    """True for each key that is not padding."""
    visible = tokens != pad_id  # [batch, seq]
    return visible[:, None]  # [batch, 1, seq]


def causal_mask(size):
    """True for each key that is not after its query."""
    causal = torch.ones(size, size, dtype=torch.bool).tril()  # [seq, seq]
    return causal


def target_mask(tokens, pad_id):
    """True for each key that is neither padding nor after its query."""
    combined = padding_mask(tokens, pad_id) & causal_mask(tokens.shape[1])  # [batch, seq, seq]
    return combined


def masked_softmax(scores, mask):
    """Attention weights: 0 at hidden keys, and a sum of 1 over the visible ones if there are any."""
    hidden = scores.masked_fill(~mask, float("-inf"))  # [batch, queries, keys]
    weights = hidden.softmax(dim=-1)
    weights = weights.masked_fill(~mask, 0.0)  # a query that sees nothing has NaN everywhere
    return weights


def shift(tokens):
    """The decoder's input and the labels: each position predicts the next token."""
    inputs, labels = tokens[:, :-1], tokens[:, 1:]  # [batch, seq - 1]
    return inputs, labels


def masked_loss(logits, labels, pad_id):
    """The mean cross-entropy of all labels that are not padding; 0 if there are none."""
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")  # [batch, seq]
    counted = labels != pad_id  # [batch, seq]
    loss = (losses * counted).sum() / counted.sum().clamp(min=1)
    return loss


def make_batches(lengths, max_tokens):
    """Indices of sequences in batches of similar lengths."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    batches, batch = [], []
    for index in order:
        if batch and lengths[index] * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch = []
        batch.append(index)
    if batch:
        batches.append(batch)
    return batches
