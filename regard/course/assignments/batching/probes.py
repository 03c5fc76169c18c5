"""Probes of masks and batches. Padding has an id other than 0, which is an ordinary token here."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Names
from regard.course.fixed_weights import seeded_normal
from regard.course.probe_values import items_from, padded, tensor_from, token_row, written_parts

PAD, VOCAB = 1, 8


def _rows(*rows: Sequence[int]) -> Tensor:
    """Rows of token ids, filled up with padding."""
    return padded(rows, 1, PAD)


def _mask(names: Names, function: str, *inputs: Any) -> Tensor:
    """A function's mask as booleans, if it is one: zeros and ones are accepted too."""
    mask = tensor_from(names[function](*inputs), function)
    is_mask = bool(((mask == 0) | (mask == 1)).all())
    return mask.bool() if is_mask else mask


def _loss(names: Names, labels: Tensor, pad_id: int = PAD) -> dict[str, Tensor]:
    """The loss and its gradient."""
    logits = (2 * seeded_normal("logits", *labels.shape, VOCAB)).requires_grad_()
    loss = tensor_from(names["masked_loss"](logits, labels, pad_id), "masked_loss")
    if loss.requires_grad:
        loss.sum().backward()
    gradient = torch.zeros_like(logits) if logits.grad is None else logits.grad
    return {"loss": loss * 1.0, "gradient": gradient}


def _shifted(names: Names, tokens: Tensor) -> dict[str, Tensor]:
    """The inputs and the labels."""
    pair = items_from(names["shift"](tokens), "shift", 2)
    return {key: tensor_from(value, "shift") for key, value in zip(("inputs", "labels"), pair, strict=True)}


def _batches(names: Names, lengths: list[int], max_tokens: int) -> Tensor:
    """The indices of each batch, as rows."""
    found = items_from(names["make_batches"](list(lengths), max_tokens), "make_batches")
    return padded([token_row(batch, "make_batches, as a batch,") for batch in found], len(lengths))


def _traced_masks(names: Names, tokens: Tensor) -> dict[str, Tensor]:
    """Trace the two simple masks. They are not compared here: target_mask need not use them."""
    names["padding_mask"](tokens, PAD)
    names["causal_mask"](tokens.shape[1])
    return {}


def example(names: Names) -> dict[str, Tensor]:
    """Three sentences of four, two and five tokens, from padding to the loss."""
    tokens, scores = _rows([2, 5, 0, 3], [2, 3], [2, 7, 0, 6, 3]), seeded_normal("scores", 3, 5, 5)
    mask = (tokens != PAD)[:, None] & (torch.arange(5)[:, None] >= torch.arange(5))
    parts = written_parts(
        {
            "pad": lambda: {"tokens": names["pad"]([[2, 5, 0, 3], [2, 3], [2, 7, 0, 6, 3]], PAD)},
            "masks": lambda: _traced_masks(names, tokens),
            "target_mask": lambda: {"mask": _mask(names, "target_mask", tokens, PAD)},
            "masked_softmax": lambda: {"weights": names["masked_softmax"](scores, mask)},
            "shift": lambda: _shifted(names, tokens),
            "masked_loss": lambda: _loss(names, tokens),
            "make_batches": lambda: {"batches": _batches(names, [4, 2, 5, 3, 1], 8)},
        }
    )
    return {key: value for part in parts.values() for key, value in part.items()}


def rows(names: Names) -> dict[str, Tensor]:
    """pad with two padding ids."""
    return {
        "padding 1": names["pad"]([[4, 0, 6], [5], [2, 2, 0, 7]], 1),
        "padding 9": names["pad"]([[3, 1], [4, 0, 6]], 9),
        "one sentence": names["pad"]([[3, 1, 2]], 1),
        "sequences are unchanged": _leaves_sequences(names),
    }


def _leaves_sequences(names: Names) -> Tensor:
    """Whether pad leaves the sequences that it is given as they are."""
    sequences = [[4, 5], [6]]
    names["pad"](sequences, PAD)
    return torch.tensor(sequences == [[4, 5], [6]])


def padding(names: Names) -> dict[str, Tensor]:
    """padding_mask with two padding ids, and with id 0 as an ordinary token."""
    tokens = _rows([2, 0, 5, 3], [4, 3], [0, 6, 3])
    return {
        "padding 1": _mask(names, "padding_mask", tokens, PAD),
        "padding 0": _mask(names, "padding_mask", tokens.masked_fill(tokens == PAD, 0), 0),
        "no padding": _mask(names, "padding_mask", tokens[:1], PAD),
    }


def causal(names: Names) -> dict[str, Tensor]:
    """causal_mask of several sizes."""
    return {f"size {size}": _mask(names, "causal_mask", size) for size in (1, 3, 5)}


def combined(names: Names) -> dict[str, Tensor]:
    """target_mask of sentences with and without padding."""
    return {
        "padding 1": _mask(names, "target_mask", _rows([2, 0, 5, 3], [4, 3], [0, 6, 3]), PAD),
        "no padding": _mask(names, "target_mask", torch.tensor([[4, 0, 2]]), PAD),
        "padding first": _mask(names, "target_mask", torch.tensor([[PAD, 4, 2], [5, 0, PAD]]), PAD),
    }


def weights(names: Names) -> dict[str, Tensor]:
    """masked_softmax with a mask of keys and one of queries and keys, for ordinary and extreme scores; the gradient."""
    scores = (2 * seeded_normal("scores", 2, 4, 4)).requires_grad_()
    keys = torch.tensor([[True, True, True, False], [True, False, False, False]])[:, None]
    pairs = torch.ones(4, 4, dtype=torch.bool).tril().expand(2, 4, 4)
    of_keys, of_pairs = (tensor_from(names["masked_softmax"](scores, mask), "masked_softmax") for mask in (keys, pairs))
    total = ((of_keys + of_pairs) * seeded_normal("direction", 2, 4, 4)).sum()
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    gradient = torch.zeros_like(scores) if scores.grad is None else scores.grad
    extreme = {
        f"extreme scores, {name}": names["masked_softmax"](scores.detach() + shift, pairs)
        for name, shift in (("large", 1000.0), ("small", -1000.0))
    }
    return {"mask of keys": of_keys, "mask of pairs": of_pairs, "gradient": gradient, **extreme}


def nothing_visible(names: Names) -> dict[str, Tensor]:
    """masked_softmax for queries that see nothing."""
    mask = torch.zeros(2, 1, 3, dtype=torch.bool)
    return {"weights": names["masked_softmax"](seeded_normal("scores", 2, 3, 3), mask)}


def shifted(names: Names) -> dict[str, Tensor]:
    """shift of sentences with and without padding."""
    first = _shifted(names, _rows([2, 5, 0, 3], [2, 3], [2, 7, 6, 4, 3]))
    second = _shifted(names, torch.tensor([[2, 4, 5, 6, 0, 3]]))
    return first | {f"{key} of one sentence": value for key, value in second.items()}


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
