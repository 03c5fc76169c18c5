"""Keys and values that are computed once: allocated at the start, written at explicit positions, read by attention.

Rows need not be equally long. Each writes at its own positions, so that a short prompt, padded on the right, goes on
right behind its last real token and overwrites the padding; the mask of a step hides what lies ahead of it.

Dimensions: B rows, G key/value heads, L places, T new tokens, D a head's width.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError


class Room(NamedTuple):
    """Places for the keys and values of one attention."""

    k: Float[Tensor, "B G L Dk"]
    v: Float[Tensor, "B G L Dv"]


@dataclass
class KeyValues:
    """The keys and values of one attention in one step."""

    k: Float[Tensor, "B G L Dk"]
    v: Float[Tensor, "B G L Dv"]
    positions: Int[Tensor, "B T"] | None = None
    """where the next ones go; None when there are none to come"""

    @property
    def filled(self) -> bool:
        """Whether all keys and values are there: those of a source sentence, computed once."""
        return self.positions is None

    def put(self, k: Float[Tensor, "B G T Dk"], v: Float[Tensor, "B G T Dv"]) -> tuple[Tensor, Tensor]:
        """Write new keys and values at the positions, and give back all there are."""
        if self.positions is None:
            raise RegardError("this cache is filled: it takes no more keys and values")
        rows = torch.arange(k.size(0), device=k.device)[:, None]  # [B, 1]
        self.k[rows, :, self.positions] = k.transpose(1, 2).to(self.k.dtype)  # [B, T, G, Dk]
        self.v[rows, :, self.positions] = v.transpose(1, 2).to(self.v.dtype)
        return self.k, self.v


@dataclass
class Cache:
    """What a model has computed of the tokens so far: `own` per layer for self-attention, `cross` for the source."""

    own: list[Room]
    cross: list[KeyValues]
    """empty in a decoder without an encoder"""
    source_mask: Tensor | None = None
    """which of the source's positions are real, [B, 1, 1, S]"""

    @property
    def rows(self) -> int:
        """Rows it was made for."""
        return self.own[0].k.size(0)

    @property
    def length(self) -> int:
        """Places for tokens in each row."""
        return self.own[0].k.size(2)

    def upto(self, length: int) -> "Cache":
        """The first `length` places of this cache, sharing its memory: what lies behind need not be attended to."""
        own = [Room(each.k[:, :, :length], each.v[:, :, :length]) for each in self.own]
        return Cache(own, self.cross, self.source_mask)

    def pick(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " n"] | None, filled: int) -> "Cache":
        """These rows, in this order, each as often as it is named, and these of the sources (None: all of them).

        Each source serves as many rows as every other, one behind the other. Of each row `filled` places are kept.
        """
        own = [Room(_picked(each.k, rows, filled), _picked(each.v, rows, filled)) for each in self.own]
        if sources is None:
            return Cache(own, self.cross, self.source_mask)
        cross = [KeyValues(each.k[sources], each.v[sources]) for each in self.cross]
        return Cache(own, cross, None if self.source_mask is None else self.source_mask[sources])

    def at(self, positions: Int[Tensor, "B T"]) -> list[tuple[KeyValues, KeyValues | None]]:
        """For each layer: where its new keys and values go, and the source's."""
        own = [KeyValues(each.k, each.v, positions) for each in self.own]
        none: list[KeyValues | None] = [None] * len(own)
        return list(zip(own, self.cross or none, strict=True))


def _picked(x: Float[Tensor, "B G L D"], rows: Int[Tensor, " R"], filled: int) -> Float[Tensor, "R G L D"]:
    picked = x.new_zeros(len(rows), *x.shape[1:])  # what is hidden must still be a number
    picked[:, :, :filled] = x[:, :, :filled][rows]
    return picked
