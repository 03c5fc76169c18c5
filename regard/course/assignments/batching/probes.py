"""Probes of masks and batches. Padding has an id other than 0, which is an ordinary token here."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Names
from regard.course.fixed_weights import seeded_normal
from regard.course.probe_values import padded

PAD, VOCAB = 1, 8


def _rows(*rows: Sequence[int]) -> Tensor:
    """Rows of token ids, filled up with padding."""
    return padded(rows, 1, PAD)


def _mask(value: Any) -> Tensor:
    """A mask as booleans, if it is one: zeros and ones are accepted too."""
    mask = torch.as_tensor(value)
    is_mask = bool(((mask == 0) | (mask == 1)).all())
    return mask.bool() if is_mask else mask


def _loss(names: Names, labels: Tensor, pad_id: int = PAD) -> dict[str, Tensor]:
    """The loss and its gradient."""
    logits = (2 * seeded_normal("logits", *labels.shape, VOCAB)).requires_grad_()
    loss = names["masked_loss"](logits, labels, pad_id)
    if isinstance(loss, Tensor) and loss.requires_grad:
        loss.sum().backward()
    gradient = torch.zeros_like(logits) if logits.grad is None else logits.grad
    return {"loss": torch.as_tensor(loss, dtype=torch.float32), "gradient": gradient}


def _batches(names: Names, lengths: list[int], max_tokens: int) -> Tensor:
    batches = names["make_batches"](list(lengths), max_tokens)
    return padded([[int(index) for index in batch] for batch in batches], len(lengths))


def example(names: Names) -> dict[str, Tensor]:
    """Three sentences of four, two and five tokens, from padding to the loss."""
    tokens = names["pad"]([[2, 5, 0, 3], [2, 3], [2, 7, 0, 6, 3]], PAD)
    inputs, labels = names["shift"](tokens)
    mask = names["target_mask"](tokens, PAD)
    return {
        "tokens": tokens,
        "mask": _mask(mask),
        "weights": names["masked_softmax"](seeded_normal("scores", *mask.shape), torch.as_tensor(mask).bool()),
        "inputs": inputs,
        "labels": labels,
        **_loss(names, labels),
        "batches": _batches(names, [4, 2, 5, 3, 1], 8),
    }


def rows(names: Names) -> dict[str, Tensor]:
    """pad with two padding ids."""
    return {
        "padding 1": names["pad"]([[4, 0, 6], [5], [2, 2, 0, 7]], 1),
        "padding 9": names["pad"]([[3, 1], [4, 0, 6]], 9),
        "one sentence": names["pad"]([[3, 1, 2]], 1),
    }


def padding(names: Names) -> dict[str, Tensor]:
    """padding_mask with two padding ids, and with id 0 as an ordinary token."""
    tokens = _rows([2, 0, 5, 3], [4, 3], [0, 6, 3])
    return {
        "padding 1": _mask(names["padding_mask"](tokens, PAD)),
        "padding 0": _mask(names["padding_mask"](tokens.masked_fill(tokens == PAD, 0), 0)),
        "no padding": _mask(names["padding_mask"](tokens[:1], PAD)),
    }


def causal(names: Names) -> dict[str, Tensor]:
    """causal_mask of several sizes."""
    return {f"size {size}": _mask(names["causal_mask"](size)) for size in (1, 3, 5)}


def combined(names: Names) -> dict[str, Tensor]:
    """target_mask of sentences with and without padding."""
    return {
        "padding 1": _mask(names["target_mask"](_rows([2, 0, 5, 3], [4, 3], [0, 6, 3]), PAD)),
        "no padding": _mask(names["target_mask"](torch.tensor([[4, 0, 2]]), PAD)),
        "padding first": _mask(names["target_mask"](torch.tensor([[PAD, 4, 2], [5, 0, PAD]]), PAD)),
    }


def weights(names: Names) -> dict[str, Tensor]:
    """masked_softmax with a mask of keys and one of queries and keys; the gradient."""
    scores = (2 * seeded_normal("scores", 2, 4, 4)).requires_grad_()
    keys = torch.tensor([[True, True, True, False], [True, False, False, False]])[:, None]
    pairs = torch.ones(4, 4, dtype=torch.bool).tril().expand(2, 4, 4)
    of_keys, of_pairs = names["masked_softmax"](scores, keys), names["masked_softmax"](scores, pairs)
    total = ((of_keys + of_pairs) * seeded_normal("direction", 2, 4, 4)).sum()
    if total.requires_grad:
        total.backward()
    gradient = torch.zeros_like(scores) if scores.grad is None else scores.grad
    return {"mask of keys": of_keys, "mask of pairs": of_pairs, "gradient": gradient}


def nothing_visible(names: Names) -> dict[str, Tensor]:
    """masked_softmax for a query that sees nothing."""
    mask = torch.ones(3, 3, dtype=torch.bool).tril(-1).expand(2, 3, 3)
    return {"weights": names["masked_softmax"](seeded_normal("scores", 2, 3, 3), mask)}


def shifted(names: Names) -> dict[str, Tensor]:
    """shift of sentences with and without padding."""
    first = names["shift"](_rows([2, 5, 0, 3], [2, 3], [2, 7, 6, 4, 3]))
    second = names["shift"](torch.tensor([[2, 4, 5, 6, 0, 3]]))
    return {
        f"{name} {number}": value
        for number, pair in enumerate((first, second), 1)
        for name, value in zip(("inputs", "labels"), pair, strict=True)
    }


def loss(names: Names) -> dict[str, Tensor]:
    """masked_loss of labels with and without padding, and with another padding id; the gradient."""
    labels = _rows([5, 0, 3], [3], [7, 0, 6, 3])
    parts = {
        "padding": _loss(names, labels),
        "no padding": _loss(names, torch.tensor([[4, 0, 2], [5, 6, 3]])),
        "padding 7": _loss(names, labels, 7),
    }
    return {f"{key}, {part}": value for part, values in parts.items() for key, value in values.items()}


def no_labels(names: Names) -> dict[str, Tensor]:
    """masked_loss of a batch that is nothing but padding."""
    return {"loss": _loss(names, torch.full((2, 3), PAD))["loss"]}


def batches(names: Names) -> dict[str, Tensor]:
    """make_batches with several limits, equal lengths, and a sequence that is longer than the limit."""
    lengths = [7, 3, 12, 5, 3, 9, 1, 4, 5, 30, 2]
    values = {f"limit {limit}": _batches(names, lengths, limit) for limit in (12, 20, 36)}
    return values | {"one": _batches(names, [4], 10), "too long": _batches(names, [15, 12], 10)}
