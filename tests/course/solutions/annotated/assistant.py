"""A Transformer as an assistant writes it: types, long names, residual connections written out in each layer."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn


def clones(module: nn.Module, N: int) -> nn.ModuleList:
    """Create N identical layers with independent parameters."""
    return nn.ModuleList(copy.deepcopy(module) for _ in range(N))


def subsequent_mask(size: int) -> Tensor:
    """Mask out subsequent positions."""
    positions = torch.arange(size)
    allowed = positions[None, :] <= positions[:, None]
    return allowed.unsqueeze(0)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Module | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute scaled dot-product attention."""
    scale = query.size(-1) ** -0.5
    attention_scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * scale
    if mask is not None:
        attention_scores = torch.where(mask.bool(), attention_scores, torch.finfo(attention_scores.dtype).min)
    attention_weights = torch.softmax(attention_scores, dim=-1)
    dropped = attention_weights if dropout is None else dropout(attention_weights)
    context = torch.einsum("bhqk,bhkd->bhqd", dropped, value)
    return context, attention_weights


class MultiHeadedAttention(nn.Module):
    """Multi-head attention."""

    def __init__(self, h: int, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.num_heads = h
        self.head_dim = d_model // h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
        self.dropout = nn.Dropout(dropout)
        self.attn: Tensor | None = None

    def _split_heads(self, tensor: Tensor) -> Tensor:
        batch_size, sequence_length, _ = tensor.shape
        tensor = tensor.reshape(batch_size, sequence_length, self.num_heads, self.head_dim)
        return tensor.permute(0, 2, 1, 3)

    def _merge_heads(self, tensor: Tensor) -> Tensor:
        batch_size, _, sequence_length, _ = tensor.shape
        return tensor.permute(0, 2, 1, 3).reshape(batch_size, sequence_length, -1)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            mask = mask[:, None]
        projected_query, projected_key, projected_value = (
            self._split_heads(linear(tensor)) for linear, tensor in zip(self.linears, (query, key, value))
        )
        context, self.attn = attention(projected_query, projected_key, projected_value, mask, self.dropout)
        return self.linears[-1](self._merge_heads(context))


class PositionwiseFeedForward(nn.Module):
    """Two-layer feed-forward network."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.activation = nn.ReLU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class Embeddings(nn.Module):
    """Token embeddings."""

    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x: Tensor) -> Tensor:
        return self.lut(x) * self.d_model**0.5


class PositionalEncoding(nn.Module):
    """Sinusoidal positional encoding."""

    def __init__(self, d_model: int, dropout: float, max_len: int = 5000) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        positions = torch.arange(max_len, dtype=torch.float32)
        exponents = torch.arange(0, d_model, 2, dtype=torch.float32) / d_model
        angles = positions[:, None] / (10000.0**exponents)[None, :]
        encoding = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        self.register_buffer("pe", encoding)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.pe[: x.shape[1]].to(x.dtype))


class LayerNorm(nn.Module):
    """Layer normalization."""

    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centered = x - x.mean(dim=-1, keepdim=True)
        return self.a_2 * centered / (x.std(dim=-1, keepdim=True) + self.eps) + self.b_2


class SublayerConnection(nn.Module):
    """Pre-norm residual connection."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    """Encoder layer."""

    def __init__(self, size: int, self_attn: nn.Module, feed_forward: nn.Module, dropout: float) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 2)
        self.size = size

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, mask)

        attended = self.sublayer[0](x, attend)
        return self.sublayer[1](attended, self.feed_forward)


class Encoder(nn.Module):
    """Encoder."""

    def __init__(self, layer: EncoderLayer, N: int) -> None:
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        hidden_states = x
        for encoder_layer in self.layers:
            hidden_states = encoder_layer(hidden_states, mask)
        return self.norm(hidden_states)


class DecoderLayer(nn.Module):
    """Decoder layer."""

    def __init__(
        self, size: int, self_attn: nn.Module, src_attn: nn.Module, feed_forward: nn.Module, dropout: float
    ) -> None:
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout), 3)

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        def attend_to_target(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, tgt_mask)

        def attend_to_source(y: Tensor) -> Tensor:
            return self.src_attn(y, memory, memory, src_mask)

        x = self.sublayer[0](x, attend_to_target)
        x = self.sublayer[1](x, attend_to_source)
        return self.sublayer[2](x, self.feed_forward)


class Decoder(nn.Module):
    """Decoder."""

    def __init__(self, layer: DecoderLayer, N: int) -> None:
        super().__init__()
        self.layers = clones(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        hidden_states = x
        for decoder_layer in self.layers:
            hidden_states = decoder_layer(hidden_states, memory, src_mask, tgt_mask)
        return self.norm(hidden_states)


class Generator(nn.Module):
    """Output projection."""

    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.proj(x), dim=-1)


class EncoderDecoder(nn.Module):
    """Encoder-decoder model."""

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        src_embed: nn.Module,
        tgt_embed: nn.Module,
        generator: nn.Module,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed = src_embed, tgt_embed
        self.generator = generator

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


def make_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,
    d_model: int = 512,
    d_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
) -> EncoderDecoder:
    """Build the model."""
    attention_module = MultiHeadedAttention(h, d_model, dropout)
    feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
    positional_encoding = PositionalEncoding(d_model, dropout)
    model = EncoderDecoder(
        encoder=Encoder(
            EncoderLayer(d_model, copy.deepcopy(attention_module), copy.deepcopy(feed_forward), dropout), N
        ),
        decoder=Decoder(
            DecoderLayer(
                d_model,
                copy.deepcopy(attention_module),
                copy.deepcopy(attention_module),
                copy.deepcopy(feed_forward),
                dropout,
            ),
            N,
        ),
        src_embed=nn.Sequential(Embeddings(d_model, src_vocab), copy.deepcopy(positional_encoding)),
        tgt_embed=nn.Sequential(Embeddings(d_model, tgt_vocab), copy.deepcopy(positional_encoding)),
        generator=Generator(d_model, tgt_vocab),
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model
