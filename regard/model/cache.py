"""The key/value cache: allocated once, written at explicit positions, read by attention.

Rows may have different lengths. Each row is written at its own positions: a short prompt, padded on the right,
continues right after its last real token and overwrites the padding. The mask of each step hides all later positions.

Dimensions: B rows, G key/value heads, L cache length, T new tokens, D head width (Dk for keys, Dv for values).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError


class KeyValueBuffer(NamedTuple):
    """Memory for the keys and values of one attention."""

    k: Float[Tensor, "B G L Dk"]
    v: Float[Tensor, "B G L Dv"]


@dataclass
class AttentionCache:
    """The keys and values of one attention in one step."""

    k: Float[Tensor, "B G L Dk"]
    v: Float[Tensor, "B G L Dv"]
    positions: Int[Tensor, "B T"] | None = None
    """Where new keys and values are written; None if there are none, as for a source sentence."""
    owners: Int[Tensor, "B L"] | None = None
    """The row that holds the key and the value of each row's positions; None if each row holds its own."""

    @property
    def length(self) -> int:
        """Number of positions for keys and values."""
        return self.k.size(2)

    @property
    def filled(self) -> bool:
        """Whether all keys and values have been computed: those of a source sentence are computed once."""
        return self.positions is None

    def put(self, k: Float[Tensor, "B G T Dk"], v: Float[Tensor, "B G T Dv"]) -> tuple[Tensor, Tensor]:
        """Write new keys and values at the positions, and return all keys and values of each row."""
        if self.positions is None:
            raise RegardError("this cache is filled: it takes no more keys and values")
        rows = torch.arange(k.size(0), device=k.device)[:, None]  # [B, 1]
        self.k[rows, :, self.positions] = k.transpose(1, 2).to(self.k.dtype)  # [B, T, G, Dk]
        self.v[rows, :, self.positions] = v.transpose(1, 2).to(self.v.dtype)  # [B, T, G, Dv]
        if self.owners is None:
            return self.k, self.v
        positions = torch.arange(self.length, device=k.device)
        k, v = (x[self.owners, :, positions] for x in (self.k, self.v))  # [B, L, G, D]
        return k.transpose(1, 2), v.transpose(1, 2)


@dataclass
class Cache:
    """The keys and values of all decoder layers."""

    self_attention: list[KeyValueBuffer]
    """Keys and values of the tokens so far, for each layer."""
    cross_attention: list[AttentionCache]
    """Keys and values of the source, for each layer; empty in a decoder without an encoder."""
    source_mask: Tensor | None = None
    """True at the source's real positions, [B, 1, 1, S]; None if there is no padding."""
    owners: Int[Tensor, "B L"] | None = None
    """The row that holds each row's keys and values, by position; None if each row holds its own.

    Hypotheses of a beam share those of the tokens that they have in common: reordering a beam then moves these numbers
    instead of keys and values."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.self_attention[0].k.size(0)

    @property
    def length(self) -> int:
        """Maximum number of tokens in each row."""
        return self.self_attention[0].k.size(2)

    def upto(self, length: int) -> "Cache":
        """The first `length` positions of this cache, sharing its memory: attention then ignores the rest."""
        buffers = [KeyValueBuffer(x.k[:, :, :length], x.v[:, :, :length]) for x in self.self_attention]
        owners = None if self.owners is None else self.owners[:, :length]
        return Cache(buffers, self.cross_attention, self.source_mask, owners)

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " n"] | None, filled: int) -> "Cache":
        """These rows, in this order and with repetitions, and these of the sources (None: all of them).

        Every source serves the same number of adjacent rows. Only the first `filled` positions are copied.
        """
        buffers = [
            KeyValueBuffer(_select_rows(x.k, rows, filled), _select_rows(x.v, rows, filled))
            for x in self.self_attention
        ]
        if sources is None:
            return Cache(buffers, self.cross_attention, self.source_mask)
        cross_attention = [AttentionCache(x.k[sources], x.v[sources]) for x in self.cross_attention]
        source_mask = None if self.source_mask is None else self.source_mask[sources]
        return Cache(buffers, cross_attention, source_mask)

    def layers(self, positions: Int[Tensor, "B T"]) -> list[tuple[AttentionCache, AttentionCache | None]]:
        """For each layer, its self-attention cache for new tokens at these positions, and its cross-attention cache."""
        self_caches = [AttentionCache(x.k, x.v, positions, self.owners) for x in self.self_attention]
        no_source: list[AttentionCache | None] = [None] * len(self_caches)
        return list(zip(self_caches, self.cross_attention or no_source, strict=True))


def _select_rows(x: Float[Tensor, "B G L D"], rows: Int[Tensor, " R"], filled: int) -> Float[Tensor, "R G L D"]:
    selected = x.new_zeros(len(rows), *x.shape[1:])  # zeros: masked positions must still be finite numbers
    selected[:, :, :filled] = x[:, :, :filled][rows]
    return selected
