"""Keys and values of texts whose next token was asked for: a text that grows by a token costs one token.

The Write view asks for the next token after each one that was added. Texts are recognised by their ids, so that no
client needs a session; the least recently used are forgotten when they take more memory than they may.

Dimensions: V outputs.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.generate import PREFILL_TOKENS
from regard.model.cache import Cache, Room
from regard.model.transformer import Decoder
from regard.server import limits as bounds

GROWTH = 64
"""A cache has room for up to this many tokens more than its text, so that it need not grow with every one."""


class Prefix:
    """A text's ids, and the cache that holds their keys and values."""

    def __init__(self, ids: Sequence[int], cache: Cache) -> None:
        self.ids, self.cache = list(ids), cache

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return sum(each.nbytes for room in self.cache.own for each in room)

    def shared(self, ids: Sequence[int]) -> int:
        """How many of the first ids are the same."""
        pairs = zip(self.ids, ids, strict=False)
        return next((i for i, (mine, other) in enumerate(pairs) if mine != other), min(len(self.ids), len(ids)))


class Prefixes:
    """The texts of one network. Used by its engine's thread only."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = bounds.PREFIX_BYTES if limit is None else limit
        """Bytes that all texts may take together; the last one is kept whatever it takes."""
        self.kept: list[Prefix] = []
        """Most recently used last."""
        self.tokens_read = 0
        """Tokens that went through the network so far."""

    @torch.inference_mode()
    def next_logits(self, network: Decoder, ids: Sequence[int]) -> Float[Tensor, " V"]:
        """Logits of the token after these ids. A request that is cancelled keeps what it has read so far."""
        device = network.device
        prefix, known = self._prefix(network, ids)
        try:
            for begin in range(known, len(ids), PREFILL_TOKENS):
                raise_if_cancelled()
                end = min(begin + PREFILL_TOKENS, len(ids))
                tokens = torch.tensor([ids[begin:end]], device=device)
                positions = torch.arange(begin, end, device=device)[None]
                hidden = network.extend(tokens, positions, prefix.cache.upto(end))
                self.tokens_read += end - begin
                known = end
        finally:
            prefix.ids = list(ids[:known])
            self.kept.append(prefix)
        return network.head(hidden[:, -1:])[0, -1]

    def _prefix(self, network: Decoder, ids: Sequence[int]) -> tuple[Prefix, int]:
        """A cache with room for these ids, and how many of them it holds; the last is always read again."""
        shared = [(min(each.shared(ids), len(ids) - 1), -len(each.ids), i) for i, each in enumerate(self.kept)]
        known, _, which = max(shared, default=(0, 0, None))  # of those that share as much, the shortest
        best = None if which is None else self.kept[which]
        if best is not None and 2 * known >= len(best.ids):  # the same text, longer or cut: the cache goes on with it
            self.kept.remove(best)
            if len(ids) <= best.cache.length:
                return best, known
        wanted = len(ids) + GROWTH
        while self.kept and sum(each.size for each in self.kept) + _bytes_per_token(network) * wanted > self.limit:
            self.kept.pop(0)
        cache = network.start(1, wanted)
        if best is not None:
            for old, new in zip(best.cache.own, cache.own, strict=True):
                _copy(old, new, known)
        return Prefix(ids, cache), known


def _bytes_per_token(network: Decoder) -> int:
    d_k, d_v, groups = network.config.widths
    return network.config.layers * groups * (d_k + d_v) * network.embedding.tokens.weight.element_size()


def _copy(old: Room, new: Room, length: int) -> None:
    for source, target in zip(old, new, strict=True):
        target[:, :, :length] = source[:, :, :length]
