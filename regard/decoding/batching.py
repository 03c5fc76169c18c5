"""Rows of ids to batches: similar lengths together, padded on the right.

Dimensions: N rows, P tokens of the longest.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

Key = TypeVar("Key", bound=Hashable)


def batches_by_length(lengths: Mapping[Key, int], max_tokens: int) -> Iterator[list[Key]]:
    """The keys in batches of at most `max_tokens`, padding included; longest first, similar lengths together."""
    batch: list[Key] = []
    longest = 0
    for key in sorted(lengths, key=lambda key: -lengths[key]):
        if batch and (len(batch) + 1) * longest > max_tokens:
            yield batch
            batch = []
        longest = longest if batch else lengths[key]
        batch.append(key)
    if batch:
        yield batch


def pad_rows(
    rows: Sequence[Sequence[int]], device: torch.device, length: int = 0
) -> tuple[Int[Tensor, "N P"], Int[Tensor, " N"]]:
    """The rows as one tensor, padded with 0 to the longest of them or to `length`, and the length of each.

    Any id will do as padding: models ignore what comes after a row's length.
    """
    longest = max(length, *map(len, rows))
    padded = [[*ids, *[0] * (longest - len(ids))] for ids in rows]
    return torch.tensor(padded, device=device), torch.tensor([len(ids) for ids in rows], device=device)
