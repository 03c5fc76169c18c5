"""A copy of a network for decoding only: fewer and larger matrix products, in the type that the device computes best.

Queries, keys and values are computed by one product. On a CPU, weights are laid out once in oneDNN's format: in
bfloat16 where the processor multiplies it natively, or in int8 if asked for; sums, norms and attention stay in float32.
A compiled copy also has its weights in the format of the C++ sources, which run whole searches.
On a GPU everything is bfloat16, and searches are recorded as CUDA graphs.

Dimensions: R rows, T new tokens, S keys, H heads, G key/value heads, D head width, C model width, V outputs.
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
from regard.decoding.cpp_library import CompilerError
from regard.decoding.cpu_engine import CpuEngine, why_not_compiled
from regard.decoding.cuda_graph_decoding import RecordedSearches
from regard.decoding.decoding_state import SearchEngine
from regard.decoding.joined_weights import WeightAndBias, join_weights
from regard.decoding.own_network import check_regards_own
from regard.errors import RegardError
from regard.model.attention import (
    HAS_TRITON,
    MultiHeadAttention,
    combine_heads,
    fast_attention,
    shared_attention,
    split_heads,
)
from regard.model.cache import AttentionCache
from regard.model.layers import ACTIVATIONS, FeedForward, Layer
from regard.model.masks import BiasedMask, Mask
from regard.model.positions import Rotary, rotate
from regard.model.transformer import Decoder, EncoderDecoder, Hidden, Network, Transformer

Precision = Literal["auto", "float32", "bfloat16", "int8"]

ONEDNN_ACTIVATIONS = {
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu-tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
}
"""oneDNN's names for the activations of `regard.model.layers`."""
MAX_PLAIN_SCORES = 4096
"""Queries × keys up to which plain matrix products are faster than a fused kernel."""
MAX_KERNEL_KEYS, MAX_KERNEL_WIDTH = 1024, 256
"""Maximum number of keys and head width for `step_attention`: more keys need more than one program per head."""


class FastCopy(Transformer):
    """What both fast copies share: the original's modules, and an output layer and recorded searches of their own."""

    def __init__(self, network: Decoder | EncoderDecoder) -> None:
        nn.Module.__init__(self)  # not Transformer's, which would make new weights
        self.config = network.config
        for name, module in deepcopy(network).named_children():
            self.add_module(name, module)
        self.output_bias = None if network.output_bias is None else nn.Parameter(network.output_bias.detach().clone())
        self.packed_output: nn.Module | None = None
        """The output layer in oneDNN's format; None to use the original's."""
        self.recorded_searches: RecordedSearches | None = None
        """Searches recorded as CUDA graphs; None to run every step."""
        self.search_engine: SearchEngine | None = None
        """Runs the searches that it supports; None to run all of them in PyTorch."""
        self.eval().requires_grad_(False)

    def head(self, hidden: Hidden, lengths: Tensor | None = None) -> Tensor:
        """Logits over the vocabulary, [R, T, V]."""
        if self.packed_output is None:
            return super().head(hidden, lengths)
        return cast("Tensor", self.packed_output(self.transform(hidden)))


class FastDecoder(FastCopy, Decoder):
    """A decoder's fast copy."""


class FastEncoderDecoder(FastCopy, EncoderDecoder):
    """An encoder–decoder's fast copy."""


def make_copy(network: Decoder | EncoderDecoder) -> FastDecoder | FastEncoderDecoder:
    """A fast copy with the original's layers, which `make_fast_copy` then replaces."""
    return FastDecoder(network) if isinstance(network, Decoder) else FastEncoderDecoder(network)


def make_fast_copy(
    network: Decoder | EncoderDecoder, precision: Precision = "auto", compiled: bool = False
) -> FastDecoder | FastEncoderDecoder:
    """A copy of the network for decoding, on the same device; `auto` is bfloat16 where the device supports it well.

    `int8`, on a CPU, is faster and rounds more: measure what it costs. `compiled` runs searches in C++ on a CPU (see
    `regard.decoding.cpu_engine`), and on a GPU compiles the step of each shape, which takes time and pays off for long
    inputs. The copy cannot be trained, saved or watched.
    """
    check_type("precision", precision, Precision)
    if network.config.classes:
        raise RegardError("a model with a classification head has nothing to decode")
    check_not_copy(network, "copy")
    check_regards_own(network, "quick()")
    dtype = _dtype(network.device, precision)
    copy = make_copy(network)
    if network.device.type == "cpu":
        copy = copy.float()
        copy.packed_output = _linear([(network.output_weight, network.output_bias)], dtype, packed=True)
    else:
        copy = copy.to(dtype)
    for layer in (module for module in copy.modules() if isinstance(module, Layer)):
        _replace_layers(layer, network.config.activation, dtype)
    if network.device.type == "cuda":
        copy.recorded_searches = RecordedSearches(compiled)
    elif compiled:
        copy.search_engine = _cpu_engine(network, dtype)
    return copy


def _cpu_engine(network: Decoder | EncoderDecoder, dtype: torch.dtype) -> CpuEngine | None:
    """The engine in C++, or None with a warning that says why there is none."""
    reason = why_not_compiled(network.config)
    if reason is not None:
        warnings.warn(f"compiled=True does not cover {reason}: the copy is not compiled", stacklevel=4)
        return None
    try:
        return CpuEngine(network, dtype)
    except CompilerError as error:
        warnings.warn(f"{error}. The copy is not compiled.", stacklevel=4)
        return None


def is_fast_copy(network: Network) -> bool:
    """Whether a network is a copy for decoding."""
    return isinstance(network, FastCopy)


def check_not_copy(network: Network, action: str) -> None:
    """Raise a RegardError for an action that needs the original network, not a copy for decoding."""
    if is_fast_copy(network):
        raise RegardError(f"this is a copy made for decoding: {action} the model that it was made from")


def _dtype(device: torch.device, precision: Precision) -> torch.dtype:
    if precision == "int8" and device.type != "cpu":
        raise RegardError(f"precision='int8' runs only on a CPU, but this network is on {device}")
    if precision != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}[precision]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    native = device.type == "cpu" and torch.cpu.get_capabilities().get("avx512_bf16", False)
    return torch.bfloat16 if native else torch.float32


def _replace_layers(layer: Layer, activation: str, dtype: torch.dtype) -> None:
    """Replace the linear layers of a Transformer layer, in place."""
    feed_forward = layer.feed_forward
    packed = feed_forward.up.weight.device.type == "cpu"
    layer.attention = cast("MultiHeadAttention", FusedAttention(layer.attention, dtype, packed, cross=False))
    if layer.cross_attention is not None:
        fused = FusedAttention(layer.cross_attention, dtype, packed, cross=True)
        layer.cross_attention = cast("MultiHeadAttention", fused)
    if packed and feed_forward.gate is None:
        layer.feed_forward = cast("FeedForward", PackedFeedForward(feed_forward, activation, dtype))
    else:
        for name in ("up", "gate", "down"):
            linear = getattr(feed_forward, name)
            if linear is not None:
                setattr(feed_forward, name, _linear([(linear.weight, linear.bias)], dtype, packed))


class PackedLinear(nn.Module):
    """Several linear layers as one product, in oneDNN's format; its output is float32."""

    def __init__(
        self,
        layers: Sequence[WeightAndBias],
        dtype: torch.dtype,
        activation: tuple[str, str] = ("none", ""),
    ) -> None:
        super().__init__()
        self.dtype, self.activation = dtype, activation
        weight, bias = join_weights(layers)
        self.bias = None if bias is None else bias.to(dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous())

    def forward(self, x: Float[Tensor, "*B Cin"]) -> Float[Tensor, "*B Cout"]:
        """x times the weights, plus the bias."""
        return self.raw(x).float()

    def raw(self, x: Tensor) -> Tensor:
        """The same in the type of the weights, followed by the activation if there is one."""
        name, kind = self.activation
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.weight, self.bias, name, [], kind)
        return y


class QuantisedLinear(nn.Module):
    """Several linear layers as one product in int8: a scale for each output, and one for the whole input."""

    def __init__(self, layers: Sequence[WeightAndBias], activation: str = "none") -> None:
        super().__init__()
        weight, bias = join_weights(layers)
        scales = weight.float().abs().amax(1).clamp(min=1e-12).double() / 127  # [Cout]
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch 2.13 deprecates these tensors, but has nothing as fast instead
            warnings.simplefilter("ignore", UserWarning)
            quantised = torch.quantize_per_channel(weight.float(), scales, zeros, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(quantised, None if bias is None else bias.float())
        self.activation = ACTIVATIONS[activation] if activation != "none" else nn.Identity()

    def forward(self, x: Float[Tensor, "*B Cin"]) -> Float[Tensor, "*B Cout"]:
        """x times the weights, plus the bias, followed by the activation if there is one."""
        return self.activation(torch.ops.quantized.linear_dynamic(x, self.packed))

    raw = forward


class PackedFeedForward(nn.Module):
    """`FeedForward` as two products, with the activation inside the first."""

    def __init__(self, feed_forward: FeedForward, activation: str, dtype: torch.dtype) -> None:
        super().__init__()
        up, down = ([(linear.weight, linear.bias)] for linear in (feed_forward.up, feed_forward.down))
        self.up: PackedLinear | QuantisedLinear
        self.down: PackedLinear | QuantisedLinear
        if dtype == torch.int8:
            self.up, self.down = QuantisedLinear(up, activation), QuantisedLinear(down)
        else:
            self.up, self.down = PackedLinear(up, dtype, ONEDNN_ACTIVATIONS[activation]), PackedLinear(down, dtype)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """down(activation(up(x)))."""
        return cast("Tensor", self.down(self.up.raw(x)))


class JoinedLinear(nn.Module):
    """Several linear layers as one product, for a GPU."""

    def __init__(self, layers: Sequence[WeightAndBias], dtype: torch.dtype) -> None:
        super().__init__()
        weight, bias = join_weights(layers)
        self.weight, self.bias = weight.to(dtype), None if bias is None else bias.to(dtype)

    def forward(self, x: Float[Tensor, "*B Cin"]) -> Float[Tensor, "*B Cout"]:
        """x times the weights, plus the bias."""
        if self.bias is not None and torch.compiler.is_compiling() and x.numel() == x.size(-1):
            return F.linear(x, self.weight) + self.bias  # one row: a sum that the compiler fuses with what follows
        return F.linear(x, self.weight, self.bias)


class FusedAttention(nn.Module):
    """`MultiHeadAttention` with one product for all projections of the same vectors: queries, keys and values, or in
    cross-attention keys and values."""

    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype, packed: bool, cross: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.cross, self.scale = attention.heads, attention.kv_heads, cross, attention.scale
        q, k, v, out = (
            (linear.weight, linear.bias) for linear in (attention.q, attention.k, attention.v, attention.out)
        )
        self.widths = [len(q[0]), len(k[0]), len(v[0])]
        self.q_norm, self.k_norm = attention.q_norm, attention.k_norm
        self.out = _linear([out], dtype, packed)
        if cross:
            self.q, self.kv = _linear([q], dtype, packed), _linear([k, v], dtype, packed)
        else:
            self.qkv = _linear([q, k, v], dtype, packed)

    def forward(
        self,
        query: Float[Tensor, "R T C"],
        key: Tensor | None,
        value: Tensor | None,  # noqa: ARG002  # the same tensor as the key, as in all Transformers
        mask: Mask = None,
        rotary: Rotary | None = None,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "R T C"]:
        """As `MultiHeadAttention`."""
        if self.cross:
            q = self.q_norm(split_heads(self.q(query), self.heads))
            k, v = (cache.k, cache.v) if cache is not None else self.keys_and_values(cast("Tensor", key))
        else:
            parts = self.qkv(query).split(self.widths, -1)  # [R, T, H·Dk], [R, T, G·Dk], [R, T, G·Dv]
            q, k, v = (
                split_heads(x, n) for x, n in zip(parts, (self.heads, self.kv_heads, self.kv_heads), strict=True)
            )
            q, k = self.q_norm(q), self.k_norm(k)
            q, k = (q, k) if rotary is None else (rotate(q, rotary), rotate(k, rotary))
        if cache is not None and runs_in_one_kernel(q, cache.k, mask):
            output = self._in_one_kernel(q, k, v, mask, cache)  # [R, H, 1, Dv]
        else:
            k, v = (k, v) if cache is None or self.cross else cache.put(k, v)
            output = shared_attention(q, k, v, mask, scale=self.scale, attend=plain_attention)  # [R, H, T, Dv]
        return cast("Tensor", self.out(combine_heads(output)))

    def _in_one_kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, cache: AttentionCache) -> Tensor:
        """Attention to the cache, to which new keys and values are added unless it is that of a source."""
        from regard.decoding.step_attention import extending_step_attention, step_attention  # needs Triton

        scale = 1 / math.sqrt(q.size(-1)) if self.scale is None else self.scale
        allowed = cast("Tensor | None", mask)
        output: Tensor
        if cache.positions is None:
            output = step_attention(q, cache.k, cache.v, allowed, scale)
        else:
            buffers = (cache.k, cache.v, cache.positions, cache.owners)
            output = extending_step_attention(q, k, v, *buffers, allowed, scale)
        return output

    def keys_and_values(
        self,
        key: Float[Tensor, "R S C"],
        value: Tensor | None = None,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "R G S Dk"], Float[Tensor, "R G S Dv"]]:
        """The keys and values of all heads."""
        k, v = self.kv(key).split(self.widths[1:], -1)
        k, v = self.k_norm(split_heads(k, self.kv_heads)), split_heads(v, self.kv_heads)  # [R, G, S, Dk], [R, G, S, Dv]
        return k.contiguous(), v.contiguous()


def _linear(layers: Sequence[WeightAndBias], dtype: torch.dtype, packed: bool) -> nn.Module:
    if packed:
        return QuantisedLinear(layers) if dtype == torch.int8 else PackedLinear(layers, dtype)
    return JoinedLinear(layers, dtype)


def runs_in_one_kernel(q: Float[Tensor, "R H T Dk"], k: Float[Tensor, "B G S Dk"], mask: Mask) -> bool:
    """Whether `step_attention` computes this attention: one query per row, on a GPU, over a cache of usual length."""
    supported = q.is_cuda and HAS_TRITON and q.size(2) == 1 and q.size(3) <= MAX_KERNEL_WIDTH
    is_plain = mask is None or (isinstance(mask, Tensor) and mask.dim() == 4 and mask.size(1) == 1)
    return supported and is_plain and k.size(2) <= MAX_KERNEL_KEYS


def plain_attention(
    q: Float[Tensor, "R H T Dk"],
    k: Float[Tensor, "R G S Dk"],
    v: Float[Tensor, "R G S Dv"],
    mask: Mask = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Float[Tensor, "R H T Dv"]:
    """Attention by two matrix products: faster than a fused kernel where there are few queries."""
    if q.size(-2) * k.size(-2) > MAX_PLAIN_SCORES or not (mask is None or isinstance(mask, Tensor | BiasedMask)):
        return fast_attention(q, k, v, mask, dropout, scale)
    divisor = math.sqrt(q.size(-1)) if scale is None else 1 / scale
    if torch.compiler.is_compiling() and q.size(1) == k.size(1):
        # Sums of products, which the compiler fuses into one kernel.
        scores = _hide((q[..., None, :].float() * k[:, :, None].float()).sum(-1) / divisor, mask)  # [R, H, T, S]
        return (scores.softmax(-1)[..., None] * v[:, :, None].float()).sum(-2).to(q.dtype)  # [R, H, T, Dv]
    rows, heads, t, width = q.shape
    groups, s = k.size(1), k.size(2)
    q = (q / divisor).reshape(rows, groups, -1, width)  # [R, G, H/G·T, Dk]
    scores = q @ k.transpose(-2, -1)  # [R, G, H/G·T, S]
    if mask is not None:
        scores = _hide(scores.view(rows, heads, t, s), mask).view(rows, groups, -1, s)
    return (scores.softmax(-1) @ v).view(rows, heads, t, -1)


def _hide(scores: Float[Tensor, "R H T S"], mask: Tensor | BiasedMask | None) -> Float[Tensor, "R H T S"]:
    """Minus infinity where a mask hides a key, and its bias elsewhere. Every query sees a key when decoding."""
    if mask is None:
        return scores
    return scores + mask.combined if isinstance(mask, BiasedMask) else scores.masked_fill(~mask, -torch.inf)
