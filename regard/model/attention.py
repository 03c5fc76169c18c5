"""Scaled dot-product attention and multi-head attention (section 3.2 of the paper).

`attention` is the readable path, which returns its weights; `fast_attention` computes the same output with fused
kernels. A test holds them equal.

Dimensions: B batch, T queries, S keys and values, H heads, G key/value heads (H unless grouped), C model width (Ck of
keys, Cv of values, Co of the output, all C by default), D head width (Dk for queries and keys, Dv for values).
"""

import functools
import math
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from regard.config import check_probability, head_widths, input_widths
from regard.errors import RegardError
from regard.model.cache import AttentionCache
from regard.model.masks import BiasedMask, Mask, PackedMask, check_mask, dense_mask
from regard.model.positions import Rotary, rotate

HAS_TRITON = find_spec("triton") is not None
"""Whether Triton is installed, as with PyTorch's CUDA builds for Linux. Looked up once: torch 2.11 cannot trace it."""
MAX_TILE_HEAD_WIDTH = 64
"""Maximum head width for `tile_attention`: larger tiles do not fit into registers."""
TILE_CAPABILITIES = {(8, 0), (9, 0), (10, 0)}
"""CUDA compute capabilities of the GPUs with enough registers for `tile_attention`: A100, H100 and H200, B200."""


def attention(
    q: Float[Tensor, "*B T Dk"],
    k: Float[Tensor, "*G S Dk"],
    v: Float[Tensor, "*G S Dv"],
    mask: Mask = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> tuple[Float[Tensor, "*B T Dv"], Float[Tensor, "*B T S"]]:
    """Scaled dot-product attention, softmax(q kᵀ / √d_k) v, and its weights before dropout.

    `scale` replaces the factor 1 / √d_k. A query that may attend to nothing has weights and output zero.
    """
    k, v = _repeat_heads(k, q), _repeat_heads(v, q)
    divisor = math.sqrt(q.size(-1)) if scale is None else 1 / scale
    scores = q / divisor @ k.transpose(-2, -1)  # [*B, T, S]; q scaled first: float16 would overflow
    if isinstance(mask, BiasedMask):
        scores, mask = scores + mask.bias, mask.allowed
    allowed = dense_mask(mask, scores)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)  # not -inf, which would give NaN
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
    scale: float | None = None,
) -> Float[Tensor, "*B T Dv"]:
    """The output of `attention` by fused kernels, which never store the weights. The mask decides the kernel."""
    grouped = _is_grouped(q, k)
    if isinstance(mask, PackedMask | BlockMask):
        if dropout:
            raise RegardError(f"attention dropout is not possible with packed sentences: set dropout={dropout} to 0")
        if isinstance(mask, BlockMask):
            return _flex_attention(q, k, v, mask, grouped, scale)
        if not grouped and can_use_tiles(q, v):
            from regard.model.tile_attention import tile_attention  # needs Triton, which only CUDA builds have

            return tile_attention(q, k, v, *mask, 1 / math.sqrt(q.size(-1)) if scale is None else scale)
        mask = mask.dense()
    fused = functools.partial(F.scaled_dot_product_attention, dropout_p=dropout, scale=scale, enable_gqa=grouped)
    if isinstance(mask, BiasedMask):
        output = fused(q, k, v, mask.combined)
        return output if mask.blind is None else output.masked_fill(mask.blind, 0.0)
    check_mask(mask, torch.Size([*q.shape[:-1], k.size(-2)]))
    causal, tensor = (True, None) if isinstance(mask, str) else (False, mask)
    if tensor is None or not q.is_cuda:
        return fused(q, k, v, tensor, is_causal=causal)
    # For a query that may attend to nothing, cuDNN's kernel returns the mean of all values, with NaN as its gradient.
    # Let such a query attend to everything, and set its output to zero.
    blind = ~tensor.any(-1, keepdim=True)  # [..., T, 1]
    return fused(q, k, v, tensor | blind).masked_fill(blind, 0.0)


def shared_attention(
    q: Float[Tensor, "*R H T Dk"],
    k: Float[Tensor, "*B G S Dk"],
    v: Float[Tensor, "*B G S Dv"],
    mask: Mask = None,
    dropout: float = 0.0,
    scale: float | None = None,
    attend: Callable[..., Tensor] | None = None,
) -> Float[Tensor, "*R H T Dv"]:
    """`fast_attention` for R rows of queries that share B ≤ R rows of keys: R/B adjacent rows use the same keys.

    This is how the hypotheses of a beam attend to their source. The mask is then the same for all of them,
    [B, 1, 1, S].
    """
    attend = attend or fast_attention
    if q.dim() != 4 or q.size(0) == k.size(0):  # len() would fix the number of rows in an exported graph
        return attend(q, k, v, mask, dropout, scale)
    rows, heads, t, width = q.shape
    merged = q.view(len(k), -1, heads, t, width).transpose(1, 2).flatten(2, 3)  # [B, H, R/B·T, Dk]
    output = attend(merged, k, v, mask, dropout, scale)  # [B, H, R/B·T, Dv]
    return output.view(len(k), heads, rows // len(k), t, -1).transpose(1, 2).flatten(0, 1)  # [R, H, T, Dv]


def split_heads(x: Float[Tensor, "*B T C"], heads: int) -> Float[Tensor, "*B {heads} T D"]:
    """Split each vector into `heads` parts, then move heads before positions: reshape, *then* transpose."""
    return x.reshape(*x.shape[:-1], heads, x.size(-1) // heads).transpose(-3, -2)  # [*B, T, H, D] → [*B, H, T, D]


def combine_heads(x: Float[Tensor, "*B H T D"]) -> Float[Tensor, "*B T H*D"]:
    """Concatenate the outputs of all heads: the inverse of `split_heads`."""
    return x.transpose(-3, -2).flatten(-2)  # [*B, T, H, D] → [*B, T, H·D]


class MultiHeadAttention(nn.Module):
    """Several attentions in parallel, each with its own projections of queries, keys and values.

    `d_k` and `d_v` are the head widths, by default d_model ÷ heads. With fewer `kv_heads` than `heads` (grouped-query
    attention), each key and value head serves heads ÷ kv_heads query heads. `dropout` applies to the weights. The
    scores are multiplied by `scale`, by default 1 / √d_k.

    Inputs and output have the width `d_model`. `kdim` and `vdim`, as in `nn.MultiheadAttention`, and `d_out` give keys,
    values and output a width of their own. `out_bias` says whether the output projection has a bias; by default, if the
    others do. `qk_norm` builds a norm from the width of a head; it is called once for queries and once for keys.
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
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        d_out: int | None = None,
        out_bias: bool | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        d_k, d_v, kv_heads = head_widths(d_model, heads, d_k, d_v, kv_heads)
        kdim, vdim, d_out = input_widths(d_model, kdim, vdim, d_out)
        self.heads, self.kv_heads, self.dropout, self.scale = heads, kv_heads, dropout, scale
        self.q = nn.Linear(d_model, heads * d_k, bias)
        self.k = nn.Linear(kdim, kv_heads * d_k, bias)
        self.v = nn.Linear(vdim, kv_heads * d_v, bias)
        self.out = nn.Linear(heads * d_v, d_out, bias if out_bias is None else out_bias)
        self.q_norm = nn.Identity() if qk_norm is None else qk_norm(d_k)
        self.k_norm = nn.Identity() if qk_norm is None else qk_norm(d_k)

    def forward(
        self,
        query: Float[Tensor, "*B T C"],
        key: Float[Tensor, "*B S Ck"] | None,
        value: Float[Tensor, "*B S Cv"] | None,
        mask: Mask = None,
        rotary: Rotary | None = None,
        cache: AttentionCache | None = None,
        *,
        return_weights: bool = False,
    ) -> Float[Tensor, "*B T Co"] | tuple[Float[Tensor, "*B T Co"], Float[Tensor, "*B H T K"]]:
        """Self-attention is `mha(x, x, x)`. A filled cache replaces key and value, which must then be None.

        K is the number of keys: S, or the length of the cache if there is one. A filled cache may have fewer rows than
        the query: then adjacent rows of the query share a row of the cache.
        """
        if isinstance(mask, Tensor) and mask.dim() == query.dim() == 3:
            raise RegardError(f"mask {list(mask.shape)} is ambiguous: pass mask[:, None] or mask[None]")
        q = split_heads(self.q(query), self.heads)  # [*B, H, T, Dk]
        q = self.q_norm(q) if rotary is None else rotate(self.q_norm(q), rotary)
        if cache is not None and cache.filled:
            if key is not None or value is not None:
                raise RegardError("a filled cache replaces key and value: pass None for both")
            k, v = cache.k, cache.v  # [*B, G, K, Dk], [*B, G, K, Dv]
            if return_weights and len(q) != len(k):
                k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
        elif key is None or value is None:
            raise RegardError("key and value may be None only with a filled cache")
        else:
            k, v = self.keys_and_values(key, value, rotary)  # [*B, G, S, Dk], [*B, G, S, Dv]
            k, v = (k, v) if cache is None else cache.put(k, v)
        dropout = self.dropout if self.training else 0.0
        if return_weights:
            output, weights = attention(q, k, v, mask, dropout, self.scale)  # [*B, H, T, Dv], [*B, H, T, K]
            return self.out(combine_heads(output)), weights
        output = shared_attention(q, k, v, mask, dropout, self.scale)  # [*B, H, T, Dv]
        return self.out(combine_heads(output))  # [*B, T, Co]

    def keys_and_values(
        self, key: Float[Tensor, "*B S Ck"], value: Float[Tensor, "*B S Cv"], rotary: Rotary | None = None
    ) -> tuple[Float[Tensor, "*B G S Dk"], Float[Tensor, "*B G S Dv"]]:
        """The keys, which queries are compared with, and the values, which they retrieve."""
        k = self.k_norm(split_heads(self.k(key), self.kv_heads))
        v = split_heads(self.v(value), self.kv_heads)
        return (k if rotary is None else rotate(k, rotary)), v


def _repeat_heads(x: Tensor, q: Tensor) -> Tensor:
    """For grouped heads, repeat each key or value head for the query heads that it serves."""
    return x.repeat_interleave(q.size(-3) // x.size(-3), dim=-3) if _is_grouped(q, x) else x


def _is_grouped(q: Tensor, k: Tensor) -> bool:
    """Whether k has fewer heads than q; both are [..., heads, positions, width]."""
    if q.dim() < 3 or q.size(-3) == k.size(-3):
        return False
    if k.size(-3) == 0 or q.size(-3) % k.size(-3):
        raise RegardError(
            f"queries {list(q.shape)} and keys {list(k.shape)}: {q.size(-3)} heads cannot share {k.size(-3)}"
        )
    return True


def can_use_tiles(q: Tensor, v: Tensor) -> bool:
    """Whether `tile_attention` supports this head width on this GPU."""
    narrow = max(q.size(-1), v.size(-1)) <= MAX_TILE_HEAD_WIDTH
    return narrow and torch.cuda.get_device_capability(q.device) in TILE_CAPABILITIES and HAS_TRITON


def _flex_attention(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, grouped: bool, scale: float | None) -> Tensor:
    """FlexAttention, compiled: uncompiled, it would store all scores."""
    if torch.compiler.is_compiling():  # it becomes part of the caller's graph
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=grouped, scale=scale)
    # Each dtype, width and kind of mask needs its own graph.
    with torch.compiler.config.patch(recompile_limit=64):  # type: ignore[attr-defined]
        return _compiled_flex_attention()(q, k, v, block_mask=mask, enable_gqa=grouped, scale=scale)


@functools.cache
def _compiled_flex_attention() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)
