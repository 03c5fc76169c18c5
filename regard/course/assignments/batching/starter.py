"""Masks and batches: how sentences of different lengths are computed together without disturbing each other.

A batch is a rectangle of token ids, so short sentences are filled up with padding. Padding must never have an effect:
no token may attend to it, and it must not count in the loss. A decoder has a second rule: no position may see the
tokens that it has to predict.

Masks are True where a query may look at a key, and False where it may not.

Each function is checked separately, so you can start with any of them and leave others for later.

Run `regard check THIS_FILE` after each part: what is written is checked, and the rest is listed as still to write.
"""

import torch
import torch.nn.functional as F


def pad(sequences, pad_id):
    """Lists of token ids, not empty → [batch, seq]: filled up with pad_id on the right, as long as the longest one."""
    raise NotImplementedError("write pad")


def padding_mask(tokens, pad_id):
    """[batch, seq] → [batch, 1, seq]: True for each key that is not padding, the same for all queries."""
    raise NotImplementedError("write padding_mask")


def causal_mask(size):
    """[size, size], queries times keys: a query may look at itself and at everything before it."""
    raise NotImplementedError("write causal_mask")


def target_mask(tokens, pad_id):
    """[batch, seq] → [batch, seq, seq]: both rules together. Use your functions from above."""
    raise NotImplementedError("write target_mask")


def masked_softmax(scores, mask):
    """Attention weights [batch, queries, keys] from scores of the same shape.

    mask:    can be broadcast to the shape of the scores
    returns: 0 at hidden keys; the weights of the visible keys sum to 1. If a query sees no key, all weights are 0
    """
    raise NotImplementedError("write masked_softmax")


def shift(tokens):
    """Target sentences [batch, seq] → a pair (inputs, labels), both [batch, seq - 1].

    Each row starts with a start token and contains an end token, and then perhaps padding. The label of a position is
    the token that follows the input at this position.
    """
    raise NotImplementedError("write shift")


def masked_loss(logits, labels, pad_id):
    """Logits [batch, seq, vocab] and labels [batch, seq] → the loss, a scalar.

    It is the mean cross-entropy of all labels in the batch that are not padding, and 0 if there are none.
    """
    raise NotImplementedError("write masked_loss")


def make_batches(lengths, max_tokens):
    """A list of lengths → a list of batches, each a list of indices into `lengths`.

    Sort the sequences by length, the shortest first, and of equal lengths the one with the lower index. Fill one batch
    after the other in this order. The size of a batch is what it has after padding: its longest length times its number
    of sequences. A sequence that would make it larger than `max_tokens` starts the next batch. Every sequence is in
    exactly one batch: one that is longer than `max_tokens` is alone in its batch.
    """
    raise NotImplementedError("write make_batches")
