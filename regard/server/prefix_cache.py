"""The prefix cache: keys and values of texts whose next token was requested.

The Write view requests the next token after each token that is added, so a longer text reuses the cache of the shorter
one and only the new tokens are computed. Texts are matched by their token ids, so clients need no session. The least
recently used texts are evicted when the cache exceeds its limit.

Dimensions: V outputs.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decoding.generate import read_in_parts
from regard.model.cache import Cache, KeyValueBuffer
from regard.model.transformer import Decoder
from regard.server import limits

EXTRA_CACHE_TOKENS = 64
"""Number of tokens for which a new cache has room beyond its text, so that it is not reallocated for every token."""


class CachedPrefix:
    """The token ids of a text, and the cache with their keys and values."""

    def __init__(self, ids: Sequence[int], cache: Cache) -> None:
        self.ids, self.cache = list(ids), cache

    @property
    def nbytes(self) -> int:
        """Size of the cache in bytes."""
        return sum(tensor.nbytes for buffer in self.cache.self_attention for tensor in buffer)

    def common_length(self, ids: Sequence[int]) -> int:
        """Length of the common prefix with these ids."""
        pairs = zip(self.ids, ids, strict=False)
        return next((i for i, (cached, given) in enumerate(pairs) if cached != given), min(len(self.ids), len(ids)))


class PrefixCache:
    """The cached texts of one network. Used only by the thread of the model's engine."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = limits.PREFIX_CACHE_BYTES if max_bytes is None else max_bytes
        """Maximum size of all caches. The most recent one is kept even if it is larger."""
        self.entries: list[CachedPrefix] = []
        """Cached texts, the most recently used last."""
        self.tokens_read = 0
        """Number of tokens that the network has processed."""

    @torch.inference_mode()
    def next_logits(self, network: Decoder, ids: Sequence[int]) -> Float[Tensor, " V"]:
        """The logits of the token after these ids. A cancelled request keeps the tokens it has processed."""
        entry, known = self._take_entry(network, ids)
        tokens = torch.tensor([ids], device=network.device)
        try:
            for first, hidden in read_in_parts(network, tokens, entry.cache, known):
                self.tokens_read += hidden.size(1)
                known = first + hidden.size(1)
        finally:
            entry.ids = list(ids[:known])
            self.entries.append(entry)
        return network.head(hidden[:, -1:])[0, -1]

    def _take_entry(self, network: Decoder, ids: Sequence[int]) -> tuple[CachedPrefix, int]:
        """An entry with room for these ids, and how many of them it holds. The last id is always processed again."""
        best, known = self._longest_match(ids)
        if best is not None and 2 * known >= len(best.ids):  # the same text, extended or cut: continue with its cache
            self.entries.remove(best)
            if len(ids) <= best.cache.length:
                return best, known
        capacity = len(ids) + EXTRA_CACHE_TOKENS
        self._evict(_bytes_per_token(network) * capacity)
        cache = network.start(1, capacity)
        if best is not None:
            for old, new in zip(best.cache.self_attention, cache.self_attention, strict=True):
                _copy(old, new, known)
        return CachedPrefix(ids, cache), known

    def _longest_match(self, ids: Sequence[int]) -> tuple[CachedPrefix | None, int]:
        """The entry with the longest common prefix and its length. Among several, the shortest text."""
        lengths = [
            (min(entry.common_length(ids), len(ids) - 1), -len(entry.ids), index)
            for index, entry in enumerate(self.entries)
        ]
        known, _, index = max(lengths, default=(0, 0, None))
        return (None if index is None else self.entries[index]), known

    def _evict(self, needed_bytes: int) -> None:
        """Drop the least recently used entries until there is room for this many bytes."""
        while self.entries and sum(entry.nbytes for entry in self.entries) + needed_bytes > self.max_bytes:
            self.entries.pop(0)


def _bytes_per_token(network: Decoder) -> int:
    d_k, d_v, groups = network.config.widths
    return network.config.layers * groups * (d_k + d_v) * network.embedding.tokens.weight.element_size()


def _copy(old: KeyValueBuffer, new: KeyValueBuffer, length: int) -> None:
    for source, target in zip(old, new, strict=True):
        target[:, :, :length] = source[:, :, :length]
