"""The queries, keys and values of a multi-head attention, from the inputs that a hook on it receives.

Dimensions: R rows of queries, B rows of keys (B divides R), T queries, S keys, H heads, Dk and Dv head widths, C width.
"""

import inspect
from dataclasses import dataclass
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor

from regard.model.attention import MultiHeadAttention, attention, split_heads
from regard.model.cache import AttentionCache
from regard.model.masks import Mask
from regard.model.positions import Rotary, rotate

_SIGNATURE = inspect.signature(MultiHeadAttention.forward)


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of one call of a multi-head attention."""

    module: MultiHeadAttention
    query: Float[Tensor, "R T C"]
    key: Float[Tensor, "B S C"] | None
    value: Float[Tensor, "B S C"] | None
    mask: Mask = None
    rotary: Rotary | None = None
    cache: AttentionCache | None = None

    @classmethod
    def of(cls, module: MultiHeadAttention, args: tuple[Any, ...], options: dict[str, Any]) -> "AttentionCall":
        """The call with these arguments."""
        given = _SIGNATURE.bind(module, *args, **options).arguments
        optional = {name: given.get(name) for name in ("mask", "rotary", "cache")}
        return cls(module, given["query"], given["key"], given["value"], **optional)

    @property
    def keys(self) -> int:
        """Number of keys that each query is compared with."""
        return self.cache.length if self.cache is not None else cast(Tensor, self.key).size(1)

    def vectors(
        self,
    ) -> tuple[Float[Tensor, "R H T Dk"], Float[Tensor, "R H S Dk"], Float[Tensor, "R H S Dv"]]:
        """The queries, keys and values of every head, as the attention compares them.

        If there is a cache, the call must have ended: then the cache holds all keys and values.
        """
        module = self.module
        q = module.q_norm(split_heads(module.q(self.query), module.heads))  # [R, H, T, Dk]
        q = q if self.rotary is None else rotate(q, self.rotary)
        if self.cache is not None:
            k, v = self.cache.k, self.cache.v
        else:
            assert self.key is not None
            assert self.value is not None
            k, v = module.keys_and_values(self.key, self.value, self.rotary)
        k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
        k, v = (x.repeat_interleave(module.heads // module.kv_heads, 1) for x in (k, v))
        return q, k, v

    def weights(self, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "R H T S"]:
        """The attention weights of these vectors."""
        return attention(q, k, v, self.mask, 0.0, self.module.scale)[1]
