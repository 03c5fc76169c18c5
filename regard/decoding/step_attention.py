"""Attention of one query per row over the cache, on a GPU: one kernel instead of four.

A program computes one head of one row. It reads each key and each value once, from the row that holds it (see
`regard.model.cache.Cache.owners`), so that a beam is never copied. Triton is part of PyTorch's CUDA builds.

Dimensions: R rows of queries, B rows of keys, of which R/B adjacent queries share each, H heads, G key/value heads,
S keys, D head width (Dk for queries and keys, Dv for values).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_WARPS = 4
"""Maximum number of warps of a program if there are enough programs for the GPU. A few programs use four times as many
instead, and thus load more keys at once."""
ENOUGH_PROGRAMS = 256
TILE_PER_WARP = 2048
"""Number of elements of a tile of keys for which a warp has registers."""
C = tl.constexpr


@torch.library.custom_op("regard::step_attention", mutates_args=(), device_types="cuda")
def step_attention(q: Tensor, k: Tensor, v: Tensor, owners: Tensor | None, mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scale · q kᵀ) v, [R, H, 1, Dv], for q [R, H, 1, Dk], k [B, G, S, Dk] and v [B, G, S, Dv].

    `mask` broadcasts to [B, 1, 1, S]; `owners` [B, S] names the row that holds each key and value. Every query must see
    a key.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    rows, heads = q.shape[:2]
    keys, d_k, d_v = k.size(2), k.size(3), v.size(3)
    out: Tensor = _output(q, k, v, owners, mask, scale)
    widest = triton.next_power_of_2(max(d_k, d_v))
    warps = MAX_WARPS if rows * heads >= ENOUGH_PROGRAMS else 4 * MAX_WARPS
    block = max(16, min(triton.next_power_of_2(keys), warps * TILE_PER_WARP // widest))
    strides = [x.stride(i) for x in (q, k, v) for i in range(2)]
    strides += [k.stride(2), v.stride(2), 0 if owners is None else owners.stride(0)]
    mask_strides = (0, 0) if mask is None else (mask.stride(0) if mask.size(0) > 1 else 0, mask.stride(-1))
    _attend[(rows, heads)](
        q, k, v, owners, mask, out, scale, keys, rows // len(k), heads // k.size(1), *strides, *mask_strides,
        d_k, d_v, block, triton.next_power_of_2(d_k), triton.next_power_of_2(d_v),
        num_warps=max(1, min(warps, block * widest // TILE_PER_WARP)),
    )  # fmt: skip
    return out


@step_attention.register_fake
def _output(
    q: Tensor,
    k: Tensor,  # noqa: ARG001
    v: Tensor,
    owners: Tensor | None,  # noqa: ARG001
    mask: Tensor | None,  # noqa: ARG001
    scale: float,  # noqa: ARG001
) -> Tensor:
    return q.new_empty(q.size(0), q.size(1), 1, v.size(3))


@triton.jit
def _attend(
    q, k, v, owners, mask, out, scale, keys, sharing: C, grouped: C,
    qr: C, qh: C, kr: C, kh: C, vr: C, vh: C, ks: C, vs: C, owners_r, mask_r, mask_s: C,
    dk: C, dv: C, BLOCK: C, KK: C, VV: C,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key_row, key_head = row // sharing, head // grouped
    i, j = tl.arange(0, KK), tl.arange(0, VV)
    query = tl.load(q + row * qr + head * qh + i, mask=i < dk, other=0.0).to(tl.float32) * scale  # [KK]
    top, total, output = -1e30, 0.0, tl.zeros([VV], tl.float32)
    for begin in range(0, keys, BLOCK):
        position = begin + tl.arange(0, BLOCK)
        seen = position < keys
        if mask is not None:
            seen &= tl.load(mask + key_row * mask_r + position * mask_s, mask=seen, other=0) != 0
        holder = key_row
        if owners is not None:
            holder = tl.load(owners + key_row * owners_r + position, mask=seen, other=0)
        at = position.to(tl.int64)
        key_at = holder * kr + key_head * kh + at * ks  # [BLOCK]
        value_at = holder * vr + key_head * vh + at * vs
        key = tl.load(k + key_at[:, None] + i[None, :], mask=seen[:, None] & (i < dk)[None, :], other=0.0)
        value = tl.load(v + value_at[:, None] + j[None, :], mask=seen[:, None] & (j < dv)[None, :], other=0.0)
        scores = tl.where(seen, tl.sum(key.to(tl.float32) * query[None, :], 1), -1e30)  # [BLOCK]
        new_top = tl.maximum(top, tl.max(scores, 0))
        powers = tl.where(seen, tl.exp(scores - new_top), 0.0)
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(powers, 0)
        output = output * shrink + tl.sum(powers[:, None] * value.to(tl.float32), 0)
        top = new_top
    tl.store(out + (row * tl.num_programs(1) + head) * dv + j, (output / total).to(out.dtype.element_ty), mask=j < dv)
