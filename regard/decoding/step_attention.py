"""Attention of one query per row over the cache, on a GPU: one kernel, which also writes the new key and value.

A program computes one head of one row. It reads each key and each value once, from the row that holds it (see
`regard.model.cache.Cache.owners`), so that a beam is never copied. Triton is part of PyTorch's CUDA builds. The kernel
is a custom op, because the compiler would replace it by five kernels, which take three times as long (torch 2.11).

Dimensions: R rows of queries, B rows of keys, of which R/B adjacent queries share each, H heads, G key/value heads,
S keys, D head width (Dk for queries and keys, Dv for values).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_WARPS = 4
"""Maximum number of warps of a program if there are enough programs for the GPU. A few programs use four times as many
instead, and thus load more keys at once."""
ENOUGH_PROGRAMS = 256
"""Number of programs that keep a GPU busy: about two for each of its multiprocessors."""
TILE_PER_WARP = 2048
"""Number of elements of a tile of keys for which a warp has registers."""
C = tl.constexpr


@torch.library.custom_op("regard::step_attention", mutates_args=(), device_types="cuda")
def step_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scale · q kᵀ) v, [R, H, 1, Dv], for q [R, H, 1, Dk], k [B, G, S, Dk] and v [B, G, S, Dv].

    `mask` broadcasts to [B, 1, 1, S]. Every query must see a key.
    """
    return _launch(q, None, None, k, v, None, None, mask, scale)


@torch.library.custom_op("regard::extending_step_attention", mutates_args=("k", "v"), device_types="cuda")
def extending_step_attention(
    q: Tensor,
    new_k: Tensor,
    new_v: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    owners: Tensor | None,
    mask: Tensor | None,
    scale: float,
) -> Tensor:
    """The same over a cache that is first extended: `new_k` [R, G, 1, Dk] and `new_v` [R, G, 1, Dv] are written to the
    `positions` [R, 1] of their rows, which their queries must see. `owners` [R, S] names the row that holds each key
    and value; those at `positions` must be a row's own."""
    return _launch(q, new_k, new_v, k, v, positions, owners, mask, scale)


def _output(q: Tensor, v: Tensor) -> Tensor:
    return q.new_empty(q.size(0), q.size(1), 1, v.size(3))


@step_attention.register_fake
def _step_output(q: Tensor, _k: Tensor, v: Tensor, *_options: Any) -> Tensor:
    return _output(q, v)


@extending_step_attention.register_fake
def _extending_step_output(q: Tensor, _new_k: Tensor, _new_v: Tensor, _k: Tensor, v: Tensor, *_options: Any) -> Tensor:
    return _output(q, v)


def _launch(
    q: Tensor,
    new_k: Tensor | None,
    new_v: Tensor | None,
    k: Tensor,
    v: Tensor,
    positions: Tensor | None,
    owners: Tensor | None,
    mask: Tensor | None,
    scale: float,
) -> Tensor:
    q = _with_contiguous_heads(q)
    if new_k is None or new_v is None:  # the cache is only read, so that it may be a copy
        k, v = _with_contiguous_heads(k), _with_contiguous_heads(v)
    else:
        new_k, new_v = _with_contiguous_heads(new_k), _with_contiguous_heads(new_v)
    rows, heads = q.shape[:2]
    keys, d_k, d_v = k.size(2), k.size(3), v.size(3)
    widest = triton.next_power_of_2(max(d_k, d_v))
    warps = MAX_WARPS if rows * heads >= ENOUGH_PROGRAMS else 4 * MAX_WARPS
    block = max(16, min(triton.next_power_of_2(keys), warps * TILE_PER_WARP // widest))
    out = _output(q, v)
    with torch.cuda.device(q.device):  # Triton launches on the current device
        _attend[(rows, heads)](
            q, new_k, new_v, k, v, positions, owners, mask, out, scale, keys, rows // len(k), heads // k.size(1),
            *_strides(q, 2), *_strides(new_k, 2), *_strides(new_v, 2), *_strides(k, 3), *_strides(v, 3),
            *_strides(positions, 1), *_strides(owners, 1), 0 if mask is None or len(mask) == 1 else mask.stride(0),
            0 if mask is None else mask.stride(-1), d_k, d_v, block,
            triton.next_power_of_2(d_k), triton.next_power_of_2(d_v),
            num_warps=max(1, min(warps, block * widest // TILE_PER_WARP)),
        )  # fmt: skip
    return out


def _with_contiguous_heads(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(x: Tensor | None, count: int) -> tuple[int, ...]:
    return (0,) * count if x is None else x.stride()[:count]


@triton.jit
def _attend(
    q, new_k, new_v, k, v, positions, owners, mask, out, scale, keys, sharing: C, grouped: C,
    qr, qh: C, nkr, nkh: C, nvr, nvh: C, kr, kh, ks: C, vr, vh, vs: C, positions_r: C, owners_r, mask_r, mask_s: C,
    dk: C, dv: C, BLOCK: C, KK: C, VV: C,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key_row, key_head = row // sharing, head // grouped
    i, j = tl.arange(0, KK), tl.arange(0, VV)
    query = tl.load(q + row * qr + head * qh + i, mask=i < dk, other=0.0).to(tl.float32) * scale  # [KK]
    if new_k is not None:
        now = tl.load(positions + row * positions_r)
        latest_key = tl.load(new_k + row * nkr + key_head * nkh + i, mask=i < dk, other=0.0).to(k.dtype.element_ty)
        latest_value = tl.load(new_v + row * nvr + key_head * nvh + j, mask=j < dv, other=0.0).to(v.dtype.element_ty)
        if head % grouped == 0:
            tl.store(k + row * kr + key_head * kh + now * ks + i, latest_key, mask=i < dk)
            tl.store(v + row * vr + key_head * vh + now * vs + j, latest_value, mask=j < dv)
    top, total, output = -1e30, 0.0, tl.zeros([VV], tl.float32)
    for begin in range(0, keys, BLOCK):
        position = (begin + tl.arange(0, BLOCK)).to(tl.int64)
        seen = position < keys
        if mask is not None:
            seen &= tl.load(mask + key_row * mask_r + position * mask_s, mask=seen, other=0) != 0
        holder = key_row
        if owners is not None:
            holder = tl.load(owners + row * owners_r + position, mask=seen, other=0)
        key_at = holder * kr + key_head * kh + position * ks  # [BLOCK]
        value_at = holder * vr + key_head * vh + position * vs
        key = tl.load(k + key_at[:, None] + i[None, :], mask=seen[:, None] & (i < dk)[None, :], other=0.0)
        value = tl.load(v + value_at[:, None] + j[None, :], mask=seen[:, None] & (j < dv)[None, :], other=0.0)
        if new_k is not None:  # the store above may not have arrived
            key = tl.where((position == now)[:, None], latest_key[None, :], key)
            value = tl.where((position == now)[:, None], latest_value[None, :], value)
        scores = tl.where(seen, tl.sum(key.to(tl.float32) * query[None, :], 1), -1e30)  # [BLOCK]
        new_top = tl.maximum(top, tl.max(scores, 0))
        powers = tl.where(seen, tl.exp(scores - new_top), 0.0)
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(powers, 0)
        output = output * shrink + tl.sum(powers[:, None] * value.to(tl.float32), 0)
        top = new_top
    tl.store(out + (row * tl.num_programs(1) + head) * dv + j, (output / total).to(out.dtype.element_ty), mask=j < dv)
