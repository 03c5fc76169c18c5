"""A copy of a network made for decoding alone: fewer and larger matrix products, in the type that the device does best.

Queries, keys and values are one product. On a CPU, weights are laid out once as the library wants them, in bfloat16
where the processor multiplies it, or in int8 if asked for; sums, norms and attention stay in float32. On a GPU all is
bfloat16.

Dimensions: R rows, T new tokens, S keys, H heads, G key/value heads, D a head's width, C model width.
"""

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_type
from regard.decoding.cuda_graph_decoding import Loops
from regard.errors import RegardError
from regard.model.attention import MultiHeadAttention, combine_heads, fast_attention, shared_attention, split_heads
from regard.model.cache import KeyValues
from regard.model.layers import ACTIVATIONS as MODEL_ACTIVATIONS
from regard.model.layers import FeedForward, Layer
from regard.model.masks import Mask
from regard.model.positions import Rotary, rotate
from regard.model.transformer import Decoder, EncoderDecoder

Precision = Literal["auto", "float32", "bfloat16", "int8"]

ACTIVATIONS = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh"), "silu": ("swish", "")}
"""what oneDNN calls them"""
SHORT = 4096
"""queries × keys up to which plain matrix products are quicker than a fused kernel"""


def quick(
    network: Decoder | EncoderDecoder, precision: Precision = "auto", compiled: bool = False
) -> Decoder | EncoderDecoder:
    """A copy of the network for decoding, where the network is; `auto` takes bfloat16 where the device has it.

    `int8`, on a CPU, is quicker and rounds more: measure what it costs. `compiled`, on a GPU: each shape's step is
    compiled, which takes a while and pays for long inputs. The copy cannot be trained, saved or watched.
    """
    check_type("precision", precision, Precision)
    if network.config.classes:
        raise RegardError("a model with a head per sequence has nothing to decode")
    network.check_whole("copy")
    device = network.device
    dtype = _dtype(device, precision)
    weight, bias = network.output_weight, network.output_bias
    copy = deepcopy(network).eval().requires_grad_(False)
    if device.type == "cpu":
        copy = copy.float()
        copy.quick_output = _linear([(weight, bias)], dtype, packed=True)
    else:
        copy = copy.to(dtype)
    for layer in (module for module in copy.modules() if isinstance(module, Layer)):
        _refit(layer, network.config.activation, dtype)
    if device.type == "cuda":
        copy.loops = Loops(compiled)
    return copy


def _dtype(device: torch.device, precision: Precision) -> torch.dtype:
    if precision == "int8" and device.type != "cpu":
        raise RegardError(f"precision='int8' is for a CPU, and this network is on {device}")
    if precision != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}[precision]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    good = device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if good else torch.float32


def _refit(layer: Layer, activation: str, dtype: torch.dtype) -> None:
    """Replace a layer's linear parts, in place."""
    feed_forward = layer.feed_forward
    packed = feed_forward.up.weight.device.type == "cpu"
    layer.attention = cast("MultiHeadAttention", FusedAttention(layer.attention, dtype, packed, cross=False))
    if layer.cross_attention is not None:
        fused = FusedAttention(layer.cross_attention, dtype, packed, cross=True)
        layer.cross_attention = cast("MultiHeadAttention", fused)
    if packed and feed_forward.gate is None:
        layer.feed_forward = cast("FeedForward", PackedFeedForward(feed_forward, activation, dtype))
    elif packed:
        for name in ("up", "gate", "down"):
            linear = getattr(feed_forward, name)
            setattr(feed_forward, name, _linear([(linear.weight, linear.bias)], dtype, packed))


class Packed(nn.Module):
    """Linear layers side by side, as one product, in the layout of oneDNN; what comes out is float32 again."""

    def __init__(
        self,
        layers: Sequence[tuple[Tensor, Tensor | None]],
        dtype: torch.dtype,
        activation: tuple[str, str] = ("none", ""),
    ) -> None:
        super().__init__()
        self.dtype, self.activation = dtype, activation
        weight, bias = _joined(layers)
        self.bias = None if bias is None else bias.to(dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous())

    def forward(self, x: Float[Tensor, "*B Cin"]) -> Float[Tensor, "*B Cout"]:
        """x times the weights, plus the bias."""
        return self.raw(x).float()

    def raw(self, x: Tensor) -> Tensor:
        """The same in the type of the weights, with the activation if there is one."""
        name, kind = self.activation
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.weight, self.bias, name, [], kind)
        return y


class Quantised(nn.Module):
    """Linear layers side by side, as one product of int8: a scale for each output, and one for the whole input."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor | None]], activation: str = "none") -> None:
        super().__init__()
        weight, bias = _joined(layers)
        scales = weight.float().abs().amax(1).clamp(min=1e-12).double() / 127  # [Cout]
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch 2.13 says that these tensors will go, and has nothing as quick instead
            warnings.simplefilter("ignore", UserWarning)
            whole = torch.quantize_per_channel(weight.float(), scales, zeros, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(whole, None if bias is None else bias.float())
        self.activation = MODEL_ACTIVATIONS[activation] if activation != "none" else nn.Identity()

    def forward(self, x: Float[Tensor, "*B Cin"]) -> Float[Tensor, "*B Cout"]:
        """x times the weights, plus the bias, through the activation if there is one."""
        return self.activation(torch.ops.quantized.linear_dynamic(x, self.packed))

    raw = forward


class PackedFeedForward(nn.Module):
    """`FeedForward` as two products, the non-linearity within the first."""

    def __init__(self, feed_forward: FeedForward, activation: str, dtype: torch.dtype) -> None:
        super().__init__()
        up, down = ([(each.weight, each.bias)] for each in (feed_forward.up, feed_forward.down))
        whole = dtype == torch.int8
        self.up = Quantised(up, activation) if whole else Packed(up, dtype, ACTIVATIONS[activation])
        self.down = Quantised(down) if whole else Packed(down, dtype)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """down(activation(up(x)))."""
        return cast("Tensor", self.down(self.up.raw(x)))


def _joined(layers: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """One matrix and one bias for all; zeros stand for a bias that one of them lacks and another has."""
    joined = torch.cat([weight.detach() for weight, _ in layers])
    if all(bias is None for _, bias in layers):
        return joined, None
    biases = [weight.new_zeros(len(weight)) if bias is None else bias.detach() for weight, bias in layers]
    return joined, torch.cat(biases)


class Joined(nn.Module):
    """Linear layers side by side, as one product, for a GPU."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor | None]], dtype: torch.dtype) -> None:
        super().__init__()
        weight, bias = _joined(layers)
        self.weight, self.bias = weight.to(dtype), None if bias is None else bias.to(dtype)

    def forward(self, x: Float[Tensor, "*B Cin"]) -> Float[Tensor, "*B Cout"]:
        """x times the weights, plus the bias."""
        return F.linear(x, self.weight, self.bias)


class FusedAttention(nn.Module):
    """`MultiHeadAttention` with one product for what comes from the same vectors: all three, or in cross-attention
    keys and values."""

    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype, packed: bool, cross: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.cross = attention.heads, attention.kv_heads, cross
        q, k, v, out = ((each.weight, each.bias) for each in (attention.q, attention.k, attention.v, attention.out))
        self.widths = [len(q[0]), len(k[0]), len(v[0])]
        self.out = _linear([out], dtype, packed)
        if cross:
            self.q, self.kv = _linear([q], dtype, packed), _linear([k, v], dtype, packed)
        else:
            self.qkv = _linear([q, k, v], dtype, packed)

    def forward(
        self,
        query: Float[Tensor, "R T C"],
        key: Tensor | None,
        value: Tensor | None,  # noqa: ARG002  # the same as the key: this is a model's attention
        mask: Mask = None,
        rotary: Rotary | None = None,
        cache: KeyValues | None = None,
    ) -> Float[Tensor, "R T C"]:
        """As `MultiHeadAttention`."""
        if self.cross:
            q = split_heads(self.q(query), self.heads)
            k, v = (cache.k, cache.v) if cache is not None else self.keys_and_values(cast("Tensor", key))
        else:
            parts = self.qkv(query).split(self.widths, -1)  # [R, T, H·Dk], [R, T, G·Dk], [R, T, G·Dv]
            q, k, v = (
                split_heads(x, n) for x, n in zip(parts, (self.heads, self.kv_heads, self.kv_heads), strict=True)
            )
            q, k = (q, k) if rotary is None else (rotate(q, rotary), rotate(k, rotary))
            k, v = (k, v) if cache is None else cache.put(k, v)
        return cast("Tensor", self.out(combine_heads(shared_attention(q, k, v, mask, attend=plain_attention))))

    def keys_and_values(
        self,
        key: Float[Tensor, "R S C"],
        value: Tensor | None = None,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "R G S Dk"], Float[Tensor, "R G S Dv"]]:
        """What queries are compared with and what they take away."""
        k, v = self.kv(key).split(self.widths[1:], -1)
        return split_heads(k, self.kv_heads).contiguous(), split_heads(v, self.kv_heads).contiguous()


def _linear(layers: Sequence[tuple[Tensor, Tensor | None]], dtype: torch.dtype, packed: bool) -> nn.Module:
    if packed:
        return Quantised(layers) if dtype == torch.int8 else Packed(layers, dtype)
    return Joined(layers, dtype)


def plain_attention(
    q: Float[Tensor, "R H T Dk"],
    k: Float[Tensor, "R G S Dk"],
    v: Float[Tensor, "R G S Dv"],
    mask: Mask = None,
    dropout: float = 0.0,
) -> Float[Tensor, "R H T Dv"]:
    """Attention by two matrix products: quicker than a fused kernel where there are few queries."""
    if q.size(-2) * k.size(-2) > SHORT or not (mask is None or isinstance(mask, Tensor)):
        return fast_attention(q, k, v, mask, dropout)
    if torch.compiler.is_compiling() and q.size(1) == k.size(1):  # sums of products, which become one kernel
        scores = (q[..., None, :].float() * k[:, :, None].float()).sum(-1) / math.sqrt(q.size(-1))  # [R, H, T, S]
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return (scores.softmax(-1)[..., None] * v[:, :, None].float()).sum(-2).to(q.dtype)  # [R, H, T, Dv]
    rows, heads, t, width = q.shape
    groups, s = k.size(1), k.size(2)
    q = (q / math.sqrt(width)).reshape(rows, groups, -1, width)  # [R, G, H/G·T, Dk]
    scores = q @ k.transpose(-2, -1)  # [R, G, H/G·T, S]
    if mask is not None:
        scores = scores.view(rows, heads, t, s).masked_fill(~mask, -torch.inf).view(rows, groups, -1, s)
    return (scores.softmax(-1) @ v).view(rows, heads, t, -1)
