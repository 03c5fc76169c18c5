"""Attention over short packed rows, on a GPU: each row and head is one tile, and only the result is written.

A row of at most 128 positions (`masks.MAX_TILE_ROW`) needs no loop over blocks of keys: its scores fit into the
registers of one program, also in the backward pass, where they are recomputed. Memory is read and written once, which
takes most of the time for sentences of about twenty tokens. Triton is part of PyTorch's CUDA builds. The kernels are
custom ops, so that torch.compile does not replace them: its own version takes three times as long (torch 2.11).

Dimensions: B rows, H heads, T queries, S keys, D head width (Dk for queries and keys, Dv for values).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

C = tl.constexpr  # sizes and strides are compile-time constants, so that loads can be vectorised


@torch.library.custom_op("regard::tile_attention", mutates_args=(), device_types="cuda")
def tile_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sentence: Tensor,
    limit: Tensor,
    key_sentence: Tensor,
    key_rank: Tensor,
    window: int,
    scale: float,
) -> Tensor:
    """softmax(scale · q kᵀ) v, [B, H, T, Dv], for a `masks.PackedMask`."""
    q, k, v = (_with_contiguous_heads(x) for x in (q, k, v))
    b, h = q.shape[:2]
    out = _output(q, k, v)
    sides = (sentence, limit, key_sentence, key_rank)
    _forward[(b, h)](q, k, v, out, *sides, scale, window, *_strides(q, k, v, out), **_sizes(q, k, v))
    return out


@torch.library.custom_op("regard::tile_attention_backward", mutates_args=(), device_types="cuda")
def _tile_attention_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sentence: Tensor,
    limit: Tensor,
    key_sentence: Tensor,
    key_rank: Tensor,
    window: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    gradient, q, k, v = (_with_contiguous_heads(x) for x in (gradient, q, k, v))
    b, h = q.shape[:2]
    dq, dk, dv = _outputs(gradient, q, k, v)
    sides = (sentence, limit, key_sentence, key_rank)
    tensors = (q, k, v, gradient, dq, dk, dv)
    _backward[(b, h)](*tensors, *sides, scale, window, *_strides(*tensors), **_sizes(q, k, v))
    return dq, dk, dv


@tile_attention.register_fake
def _output(q: Tensor, _k: Tensor, v: Tensor, *_options: Any) -> Tensor:
    b, h, t, _ = q.shape
    return q.new_empty(b, t, h, v.size(-1)).transpose(1, 2)  # in the layout that `combine_heads` needs


@_tile_attention_backward.register_fake
def _outputs(_gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_options: Any) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (x.new_empty(x.transpose(1, 2).shape).transpose(1, 2) for x in (q, k, v))
    return dq, dk, dv


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    *tensors, ctx.window, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _tile_attention_backward(gradient, *ctx.saved_tensors, ctx.window, ctx.scale)
    return (*gradients, None, None, None, None, None, None)  # the mask and the scale have none


tile_attention.register_autograd(_gradients, setup_context=_save_inputs)


def _with_contiguous_heads(x: Tensor) -> Tensor:
    """x with contiguous head vectors, as `split_heads` gives them."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:3]]


def _sizes(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Any]:
    """The sizes, and the tile sizes that hold them: powers of two, at least 16."""
    t, s, d_k, d_v = q.size(2), k.size(2), q.size(3), v.size(3)
    tiles = {name: max(16, triton.next_power_of_2(n)) for name, n in {"TT": t, "SS": s, "KK": d_k, "VV": d_v}.items()}
    warps = 4 if q.dtype != torch.float32 else 8  # without tensor cores, code for 4 takes minutes to compile
    return {"t": t, "s": s, "dk": d_k, "dv": d_v, **tiles, "num_warps": warps}


@triton.jit
def _load(x, row, head, sb: C, sh: C, st: C, n: C, d: C, NN: C, DD: C):
    """One head of one row as a tile [NN, DD], zero outside n × d."""
    i, j = tl.arange(0, NN)[:, None], tl.arange(0, DD)[None, :]
    return tl.load(x + row * sb + head * sh + i * st + j, mask=(i < n) & (j < d), other=0.0)


@triton.jit
def _store(x, tile, row, head, sb: C, sh: C, st: C, n: C, d: C, NN: C, DD: C):
    i, j = tl.arange(0, NN)[:, None], tl.arange(0, DD)[None, :]
    tl.store(x + row * sb + head * sh + i * st + j, tile.to(x.dtype.element_ty), mask=(i < n) & (j < d))


@triton.jit
def _weights(q, k, sentence, limit, key_sentence, key_rank, row, scale, window: C, t: C, s: C, TT: C, SS: C):
    """The attention weights of one tile, [TT, SS]; zeros for a query that sees nothing."""
    i, j = tl.arange(0, TT), tl.arange(0, SS)
    ours = tl.load(sentence + row * t + i, mask=i < t, other=-2)
    until = tl.load(limit + row * t + i, mask=i < t, other=-1)
    theirs = tl.load(key_sentence + row * s + j, mask=j < s, other=-1)
    rank = tl.load(key_rank + row * s + j, mask=j < s, other=0)
    distance = until[:, None] - rank[None, :]
    sees = (ours[:, None] == theirs[None, :]) & (distance >= 0) & (distance < window)
    scores = tl.where(sees, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    top = tl.max(scores, 1)
    powers = tl.exp(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(powers, 1)
    return powers / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def _forward(
    q, k, v, out, sentence, limit, key_sentence, key_rank, scale, window: C,
    qb: C, qh: C, qt: C, kb: C, kh: C, ks: C, vb: C, vh: C, vs: C, ob: C, oh: C, ot: C,
    t: C, s: C, dk: C, dv: C, TT: C, SS: C, KK: C, VV: C,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    queries = _load(q, row, head, qb, qh, qt, t, dk, TT, KK)
    keys = _load(k, row, head, kb, kh, ks, s, dk, SS, KK)
    values = _load(v, row, head, vb, vh, vs, s, dv, SS, VV)
    weights = _weights(queries, keys, sentence, limit, key_sentence, key_rank, row, scale, window, t, s, TT, SS)
    _store(out, tl.dot(weights.to(values.dtype), values, input_precision="ieee"), row, head, ob, oh, ot, t, dv, TT, VV)


@triton.jit
def _backward(
    q, k, v, gradient, dq, dk_, dv_, sentence, limit, key_sentence, key_rank, scale, window: C,
    qb: C, qh: C, qt: C, kb: C, kh: C, ks: C, vb: C, vh: C, vs: C, gb: C, gh: C, gt: C,
    dqb: C, dqh: C, dqt: C, dkb: C, dkh: C, dks: C, dvb: C, dvh: C, dvs: C,
    t: C, s: C, dk: C, dv: C, TT: C, SS: C, KK: C, VV: C,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    queries = _load(q, row, head, qb, qh, qt, t, dk, TT, KK)
    keys = _load(k, row, head, kb, kh, ks, s, dk, SS, KK)
    values = _load(v, row, head, vb, vh, vs, s, dv, SS, VV)
    g = _load(gradient, row, head, gb, gh, gt, t, dv, TT, VV)
    weights = _weights(queries, keys, sentence, limit, key_sentence, key_rank, row, scale, window, t, s, TT, SS)
    _store(
        dv_, tl.dot(tl.trans(weights).to(g.dtype), g, input_precision="ieee"), row, head, dvb, dvh, dvs, s, dv, SS, VV
    )
    d_weights = tl.dot(g, tl.trans(values), input_precision="ieee")  # [TT, SS]
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None]) * scale
    d_scores = d_scores.to(queries.dtype)
    _store(dq, tl.dot(d_scores, keys, input_precision="ieee"), row, head, dqb, dqh, dqt, t, dk, TT, KK)
    _store(dk_, tl.dot(tl.trans(d_scores), queries, input_precision="ieee"), row, head, dkb, dkh, dks, s, dk, SS, KK)
