"""The computation inside one head, step by step: vectors, scores, mask, weights and output.

Dimensions: T queries, S keys, H heads, Dk width of queries and keys, Dv width of values.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.decoding.attention_inputs import AttentionCall
from regard.decoding.attention_maps import ForwardPass
from regard.decoding.interventions import HeadName, attention_modules, check_head
from regard.errors import ModelError
from regard.model.attention import MultiHeadAttention
from regard.model.masks import BiasedMask, dense_mask

VECTOR_DIGITS = 5
"""Significant digits of the numbers in JSON."""


@dataclass(frozen=True)
class HeadVectors:
    """What one head computes from one text. The weights are softmax(dots · scale + bias) where `allowed`."""

    q: Float[Tensor, "T Dk"]
    k: Float[Tensor, "S Dk"]
    v: Float[Tensor, "S Dv"]
    dots: Float[Tensor, "T S"]
    """The dot product of each query with each key."""
    scale: float
    """What the dot products are multiplied by: 1 / √Dk, unless the model says otherwise."""
    bias: Float[Tensor, "T S"] | None
    """What is added to the scores, in a model that encodes positions in this way."""
    allowed: Bool[Tensor, "T S"]
    """Whether each query may attend to each key."""
    weights: Float[Tensor, "T S"]
    output: Float[Tensor, "T Dv"]
    """The sum of the values, weighted by the weights."""

    def to_json(self) -> dict[str, Any]:
        """Everything in types that `json.dumps` accepts."""
        names = ("q", "k", "v", "dots", "weights", "output")
        return {
            **{name: _rounded(getattr(self, name)) for name in names},
            "scale": self.scale,
            "bias": None if self.bias is None else _rounded(self.bias),
            "allowed": self.allowed.int().tolist(),
        }


def head_vectors(forward: ForwardPass, name: HeadName) -> HeadVectors:
    """What a head computes in this pass. A RegardError if the network has no such head."""
    modules = attention_modules(forward.network)
    check_head(modules, name)
    (call,) = _calls(forward, [modules[name.kind, name.layer]])
    with torch.inference_mode():
        return _computation(call, name.head)


def all_head_vectors(forward: ForwardPass) -> dict[HeadName, HeadVectors]:
    """What every head computes in this pass."""
    modules = attention_modules(forward.network)
    calls = _calls(forward, list(modules.values()))
    with torch.inference_mode():
        return {
            HeadName(kind, layer, head): _computation(call, head)
            for (kind, layer), call in zip(modules, calls, strict=True)
            for head in range(call.module.heads)
        }


def _calls(forward: ForwardPass, modules: Sequence[MultiHeadAttention]) -> list[AttentionCall]:
    """The call of each module in this pass."""
    calls: dict[nn.Module, AttentionCall] = {}

    def note(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        assert isinstance(module, MultiHeadAttention)
        calls.setdefault(module, AttentionCall.of(module, args, options))

    with ExitStack() as hooks:
        for module in modules:
            hooks.callback(module.register_forward_pre_hook(note, with_kwargs=True).remove)
        forward.run()
    return [calls[module] for module in modules]


def _computation(call: AttentionCall, head: int) -> HeadVectors:
    q, k, v = call.vectors()  # [1, H, T or S, Dk or Dv]
    weights = call.weights(q, k, v)  # [1, H, T, S]
    mask, bias = call.mask, None
    if isinstance(mask, BiasedMask):
        bias, mask = mask.bias.expand(weights.shape)[0, head].float(), mask.allowed
    allowed = dense_mask(mask, weights)
    sees = torch.ones_like(weights, dtype=torch.bool) if allowed is None else allowed.expand(weights.shape)
    scale = call.module.scale
    query, key, value, shares = (x[0, head].float() for x in (q, k, v, weights))
    return HeadVectors(
        q=query,
        k=key,
        v=value,
        dots=query @ key.T,
        scale=1 / math.sqrt(query.size(-1)) if scale is None else scale,
        bias=bias,
        allowed=sees[0, head],
        weights=shares,
        output=shares @ value,
    )


def _rounded(values: Float[Tensor, "N D"]) -> list[list[float]]:
    if not values.isfinite().all():  # JSON has no notation for NaN and infinity
        raise ModelError
    return [[float(f"{value:.{VECTOR_DIGITS}g}") for value in row] for row in values.tolist()]
