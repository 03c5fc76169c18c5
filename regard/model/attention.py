"""Attention: the readable path, the fast path beside it, and many heads of it.

Dimensions: B batch, T queries, S keys and values, H heads, G key/value heads (H unless grouped),
C model width, D a head's width (Dk for queries and keys, Dv for values).
"""

import math
from collections.abc import Callable
from functools import cache as once
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from regard.config import check_probability, head_widths
from regard.errors import RegardError
from regard.model.cache import KeyValues
from regard.model.masks import Mask, Sentences, check_mask, dense
from regard.model.positions import Rotary, rotate

HAS_TRITON = find_spec("triton") is not None
"""Whether Triton is installed, as with PyTorch's CUDA builds for Linux. Looked up once: torch 2.11 cannot trace it."""
WIDEST, LARGE = 64, {(8, 0), (9, 0), (10, 0)}
"""a head's width for which a row of 128 places is one tile, on a chip with room for it: A100, H100 and H200, B200"""


def attention(
    q: Float[Tensor, "*B T Dk"],
    k: Float[Tensor, "*G S Dk"],
    v: Float[Tensor, "*G S Dv"],
    mask: Mask = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*B T Dv"], Float[Tensor, "*B T S"]]:
    """Scaled dot-product attention, softmax(q kᵀ / √d_k) v, and its weights as they are before dropout.

    A row that may attend to nothing gets weights and output of zero.
    """
    k, v = _for_each_head(k, q), _for_each_head(v, q)
    scores = q / math.sqrt(q.size(-1)) @ k.transpose(-2, -1)  # [*B, T, S]; scaled first, or float16 overflows
    allowed = dense(mask, scores)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)  # not -inf: no NaN on the way either
    weights = scores.softmax(-1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout) @ v, weights


def fast_attention(
    q: Float[Tensor, "*B T Dk"],
    k: Float[Tensor, "*G S Dk"],
    v: Float[Tensor, "*G S Dv"],
    mask: Mask = None,
    dropout: float = 0.0,
) -> Float[Tensor, "*B T Dv"]:
    """The same output through PyTorch's fused kernels, which never form the weights. The mask decides the kernel."""
    grouped = _grouped(q, k)
    if isinstance(mask, Sentences | BlockMask):
        if dropout:
            raise RegardError(f"dropout={dropout} on the weights is not possible with packed sentences: set it to 0")
        if isinstance(mask, BlockMask):
            return _flex_attention(q, k, v, mask, grouped)
        if not grouped and tiles_fit(q, v):
            from regard.model.tile_attention import tile_attention  # Triton comes with CUDA alone

            return tile_attention(q, k, v, *mask)
        mask = mask.dense()
    check_mask(mask, torch.Size([*q.shape[:-1], k.size(-2)]))
    causal, tensor = (True, None) if isinstance(mask, str) else (False, mask)
    if tensor is None or not q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, tensor, dropout, causal, enable_gqa=grouped)
    # cuDNN's kernel gives a row that may see nothing the mean of all values, and NaN for its gradient: let it see all.
    blind = ~tensor.any(-1, keepdim=True)  # [..., T, 1]
    output = F.scaled_dot_product_attention(q, k, v, tensor | blind, dropout, enable_gqa=grouped)
    return output.masked_fill(blind, 0.0)


def shared_attention(
    q: Float[Tensor, "*R H T Dk"],
    k: Float[Tensor, "*B G S Dk"],
    v: Float[Tensor, "*B G S Dv"],
    mask: Mask = None,
    dropout: float = 0.0,
    attend: Callable[..., Tensor] | None = None,
) -> Float[Tensor, "*R H T Dv"]:
    """`fast_attention` where several rows of queries may share a row of keys: they become more queries of that row.

    The mask is then one for all of them, [B, 1, 1, S]: hypotheses of a beam looking at their source.
    """
    attend = attend or fast_attention
    if q.dim() != 4 or len(q) == len(k):
        return attend(q, k, v, mask, dropout)
    rows, heads, t, width = q.shape
    together = q.view(len(k), -1, heads, t, width).transpose(1, 2).flatten(2, 3)  # [B, H, R/B·T, Dk]
    output = attend(together, k, v, mask, dropout)  # [B, H, R/B·T, Dv]
    return output.view(len(k), heads, rows // len(k), t, -1).transpose(1, 2).flatten(0, 1)  # [R, H, T, Dv]


def split_heads(x: Float[Tensor, "*B T C"], heads: int) -> Float[Tensor, "*B {heads} T D"]:
    """Cut each vector into `heads` pieces, then bring the heads before the positions: reshape, *then* transpose."""
    return x.reshape(*x.shape[:-1], heads, x.size(-1) // heads).transpose(-3, -2)  # [*B, T, H, D] → [*B, H, T, D]


def combine_heads(x: Float[Tensor, "*B H T D"]) -> Float[Tensor, "*B T H*D"]:
    """Put the heads' outputs side by side again: the inverse of `split_heads`."""
    return x.transpose(-3, -2).flatten(-2)  # [*B, T, H, D] → [*B, T, H·D]


class MultiHeadAttention(nn.Module):
    """Several attentions at once, each over its own projections of queries, keys and values.

    `d_k` and `d_v` are a head's widths, d_model ÷ heads unless given. With fewer `kv_heads` than `heads`, each key and
    value head serves heads ÷ kv_heads query heads. `dropout` is on the weights.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_k: int | None = None,
        d_v: int | None = None,
        kv_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        d_k, d_v, kv_heads = head_widths(d_model, heads, d_k, d_v, kv_heads)
        self.heads, self.kv_heads, self.dropout = heads, kv_heads, dropout
        self.q = nn.Linear(d_model, heads * d_k, bias)
        self.k = nn.Linear(d_model, kv_heads * d_k, bias)
        self.v = nn.Linear(d_model, kv_heads * d_v, bias)
        self.out = nn.Linear(heads * d_v, d_model, bias)

    def forward(
        self,
        query: Float[Tensor, "*B T C"],
        key: Float[Tensor, "*B S C"] | None,
        value: Float[Tensor, "*B S C"] | None,
        mask: Mask = None,
        rotary: Rotary | None = None,
        cache: KeyValues | None = None,
        *,
        return_weights: bool = False,
    ) -> Float[Tensor, "*B T C"] | tuple[Float[Tensor, "*B T C"], Float[Tensor, "*B H T K"]]:
        """Self-attention is `mha(x, x, x)`; a filled cache stands for key and value, which are then None.

        K is the number of keys attended to: S, or with a cache all the places it has. A filled cache may have fewer
        rows: then as many rows of the query, one behind the other, look at each of its.
        """
        if isinstance(mask, Tensor) and mask.dim() == query.dim() == 3:
            raise RegardError(f"mask {list(mask.shape)}: is it of rows, mask[:, None], or of heads, mask[None]?")
        q = split_heads(self.q(query), self.heads)  # [*B, H, T, Dk]
        q = q if rotary is None else rotate(q, rotary)
        if cache is not None and cache.filled:
            if key is not None or value is not None:
                raise RegardError("a filled cache stands for key and value: give None for both")
            k, v = cache.k, cache.v  # [*B, G, K, Dk], [*B, G, K, Dv]
            if return_weights and len(q) != len(k):
                k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
        elif key is None or value is None:
            raise RegardError("key and value may be left out only where a filled cache stands for them")
        else:
            k, v = self.keys_and_values(key, value, rotary)  # [*B, G, S, Dk], [*B, G, S, Dv]
            k, v = (k, v) if cache is None else cache.put(k, v)
        dropout = self.dropout if self.training else 0.0
        if return_weights:
            output, weights = attention(q, k, v, mask, dropout)  # [*B, H, T, Dv], [*B, H, T, K]
            return self.out(combine_heads(output)), weights
        output = shared_attention(q, k, v, mask, dropout)  # [*B, H, T, Dv]
        return self.out(combine_heads(output))  # [*B, T, C]

    def keys_and_values(
        self, key: Float[Tensor, "*B S C"], value: Float[Tensor, "*B S C"], rotary: Rotary | None = None
    ) -> tuple[Float[Tensor, "*B G S Dk"], Float[Tensor, "*B G S Dv"]]:
        """What queries are compared with and what they take away."""
        k = split_heads(self.k(key), self.kv_heads)
        v = split_heads(self.v(value), self.kv_heads)
        return (k if rotary is None else rotate(k, rotary)), v


def _for_each_head(x: Tensor, q: Tensor) -> Tensor:
    """Grouped heads: repeat each key or value head for the query heads it serves."""
    return x.repeat_interleave(q.size(-3) // x.size(-3), dim=-3) if _grouped(q, x) else x


def _grouped(q: Tensor, k: Tensor) -> bool:
    """Whether there are fewer key heads than query heads, [..., heads, positions, width]."""
    if q.dim() < 3 or q.size(-3) == k.size(-3):
        return False
    if k.size(-3) == 0 or q.size(-3) % k.size(-3):
        raise RegardError(
            f"queries {list(q.shape)} and keys {list(k.shape)}: {q.size(-3)} heads cannot share {k.size(-3)}"
        )
    return True


def tiles_fit(q: Tensor, v: Tensor) -> bool:
    """Whether the tiles of short rows can be computed here."""
    fits = max(q.size(-1), v.size(-1)) <= WIDEST and torch.cuda.get_device_capability(q.device) in LARGE
    return fits and HAS_TRITON


def _flex_attention(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, grouped: bool) -> Tensor:
    """FlexAttention, compiled: eager, it would form all scores."""
    if torch.compiler.is_compiling():  # the caller's graph takes it in
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=grouped)
    with torch._dynamo.config.patch(recompile_limit=64):  # each type, width and kind of mask is a graph of its own
        return _compiled_flex_attention()(q, k, v, block_mask=mask, enable_gqa=grouped)


@once
def _compiled_flex_attention() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)
