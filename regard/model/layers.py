"""The layers of a Transformer: attention and feed-forward, each with a residual connection and normalisation.

Dimensions: B batch, T target length, S source length, C model width.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.errors import RegardError
from regard.model.attention import MultiHeadAttention
from regard.model.cache import AttentionCache
from regard.model.masks import Mask, PlainMask, biased_mask
from regard.model.positions import Rotary
from regard.model.score_bias import score_bias

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,  # applied to the gate, as in geglu-tanh
    "geglu-tanh": partial(F.gelu, approximate="tanh"),
}


class Dropout(nn.Dropout):
    """`nn.Dropout`, three times as fast on a CPU: four elements share one random number of 64 bits."""

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """In training, set each element to 0 with probability p, and scale the others by 1 ÷ (1 - p)."""
        supported = self.training and 0 < self.p < 0.999 and x.device.type == "cpu"  # 16 bits resolve no more
        if not supported or torch.compiler.is_compiling():
            return super().forward(x)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        random = draws.view(torch.int16)[: x.numel()].view(x.shape)
        return x * (random >= round(self.p * 2**16) - 2**15) * (1 / (1 - self.p))


class FeedForward(nn.Module):
    """The position-wise feed-forward network: expand to d_ff, apply the activation, project back to d_model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, config.bias)
        self.gate = nn.Linear(config.d_model, config.d_ff, config.bias) if config.is_gated else None
        self.down = nn.Linear(config.d_ff, config.d_model, config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.feed_forward_dropout)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """down(activation(up(x))), or with a gate down(activation(gate(x)) · up(x))."""
        if self.gate is None:
            return self.down(self.dropout(self.activation(self.up(x))))
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))


class Layer(nn.Module):
    """The paper's encoder layer and, with `cross`, its decoder layer.

    Self-attention, cross-attention if there is any, then feed-forward, each with a residual connection. With a causal
    mask and without `cross`, it is the layer of GPT-2 and Llama.
    """

    def __init__(self, config: ModelConfig, cross: bool = False) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.dropout = Dropout(config.dropout)
        self.attention = multi_head_attention(config)
        self.attention_norm = norm(config)
        self.cross_attention = multi_head_attention(config) if cross else None
        self.cross_attention_norm = norm(config) if cross else None
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = norm(config)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: Mask = None,
        rotary: Rotary | None = None,
        memory: Float[Tensor, "B S C"] | None = None,
        memory_mask: Mask = None,
        cache: tuple[AttentionCache | None, AttentionCache | None] = (None, None),
    ) -> Float[Tensor, "B T C"]:
        """`memory` is the encoder's output; it may be None if its cache is filled."""
        self_cache, cross_cache = cache
        x = self.residual(x, self.attention_norm, lambda y: self.attention(y, y, y, mask, rotary, self_cache))
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            cross = self.cross_attention
            x = self.residual(
                x, self.cross_attention_norm, lambda y: cross(y, memory, memory, memory_mask, cache=cross_cache)
            )
        return self.residual(x, self.feed_forward_norm, self.feed_forward)

    def residual(self, x: Tensor, normalise: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x + sublayer(x), normalised after the sum (post-norm, the paper) or before the sub-layer (pre-norm)."""
        if self.pre_norm:
            return x + self.dropout(sublayer(normalise(x)))
        return normalise(x + self.dropout(sublayer(x)))

    def residual_outputs(self) -> list[nn.Linear]:
        """The linear layers whose output is added to the residual, one for each sub-layer."""
        cross = [] if self.cross_attention is None else [self.cross_attention.out]
        return [self.attention.out, *cross, self.feed_forward.down]


class Stack(nn.Module):
    """A stack of layers. Pre-norm layers do not normalise their output, so a final norm usually follows them. The bias
    on the scores, if positions are encoded by one, is the same in all layers."""

    def __init__(self, config: ModelConfig, layers: int, cross: bool = False) -> None:
        super().__init__()
        self.layers: Sequence[Layer] = nn.ModuleList(Layer(config, cross) for _ in range(layers))  # type: ignore[assignment]
        self.norm = norm(config) if config.has_final_norm else nn.Identity()
        causal = (cross or config.kind == "decoder") and not config.prefix
        self.score_bias = score_bias(config, causal)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: PlainMask = None,
        rotary: Rotary | None = None,
        memory: Float[Tensor, "B S C"] | None = None,
        memory_mask: PlainMask = None,
        cache: list[tuple[AttentionCache, AttentionCache | None]] | None = None,
        positions: Int[Tensor, "B T"] | Int[Tensor, " T"] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Apply all layers; each has its own part of the cache. A bias on the scores is computed from the positions."""
        self_mask: Mask = mask
        if self.score_bias is not None:
            if positions is None:
                raise RegardError("a stack with a bias on the scores needs the positions of its tokens")
            keys = positions if cache is None else torch.arange(cache[0][0].length, device=x.device)
            self_mask = biased_mask(mask, self.score_bias(positions, keys, x.dtype), len(x))
        for i, layer in enumerate(self.layers):
            x = layer(x, self_mask, rotary, memory, memory_mask, (None, None) if cache is None else cache[i])
        return self.norm(x)


def multi_head_attention(config: ModelConfig) -> MultiHeadAttention:
    """The multi-head attention that a config describes."""
    return MultiHeadAttention(
        config.d_model,
        config.heads,
        config.d_k,
        config.d_v,
        config.kv_heads,
        config.attention_dropout,
        config.projection_bias,
        out_bias=config.out_projection_bias,
        qk_norm=partial(norm, config) if config.qk_norm else None,
        scale=config.attention_scale,
    )


def norm(config: ModelConfig, width: int | None = None) -> nn.LayerNorm | nn.RMSNorm:
    """LayerNorm or RMSNorm over the model's width, or another one."""
    kind = nn.RMSNorm if config.norm_kind == "rms" else nn.LayerNorm
    return kind(config.d_model if width is None else width, eps=config.norm_eps)
