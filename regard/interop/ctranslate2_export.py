"""A model for CTranslate2, which runs Transformers fast on CPUs and GPUs: its own specification, filled from ours.

What it computes is what Regard computes, or the export is refused. But it has ways of its own: positions end with
max_length, since it takes them as a table (rotary ones go on); one token alone ends a text, the first of several; the
probability of what is suppressed goes to the other ids; a source without text is translated to nothing, unseen; and of
an encoder there are the last layer's vectors alone, without a head over the vocabulary.

Dimensions: V ids, C model width, H heads, D a head's width and E what it is widened to, N numbers of any shape.
"""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.weight_rules import NEVER
from regard.model.attention import MultiHeadAttention
from regard.model.layers import FeedForward, Stack
from regard.model.positions import sinusoids
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Network
from regard.storage.weights import FLOATS, rounded

DTYPES = (*FLOATS, "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
"""how CTranslate2 can store weights"""

Numbers = Float32[np.ndarray, "*N"]


def export_ctranslate2(stored: Model, folder: Path, dtype: str = "float32") -> None:
    """Write what `ctranslate2.Translator`, `Generator` or `Encoder` loads, and the tokenizer's files, into a folder
    that is there and empty; a ValueError says what CTranslate2 cannot do."""
    if dtype not in DTYPES:
        raise RegardError(f"dtype={dtype!r} is no type of CTranslate2's: choose from {', '.join(DTYPES)}")
    check(stored)
    if dtype in FLOATS:
        rounded(stored.network.state_dict(), dtype)  # what it cannot hold is an error
    spec = specification(stored)
    spec.config.layer_norm_epsilon = stored.config.norm_eps
    spec.validate()
    spec.optimize(quantization=dtype)
    spec.save(str(folder))
    if stored.tokenizer is not None:
        stored.tokenizer.save(folder)


def check(stored: Model) -> None:
    """A ValueError that names what CTranslate2 cannot do exactly."""
    config = stored.config
    if config.classes:
        raise RegardError(f"classes={config.classes}: CTranslate2 has no head per sequence")
    if config.kind == "encoder":
        return
    if config.prefix:
        raise RegardError("prefix=True: in CTranslate2 no token of a decoder sees a later one")
    if config.output_transform:
        raise RegardError("output_transform=True: CTranslate2 has nothing between the last layer and the output")
    if end_id(stored) is None:
        raise RegardError("special.end names no id that the model can say: CTranslate2 must know what ends a text")
    stored.special.check(config)


def end_id(stored: Model) -> int | None:
    """The first of the ids that end a text which the model can say."""
    special = stored.special
    return next((id_ for id_ in special.end if id_ < stored.config.outputs and id_ not in special.suppressed), None)


def specification(stored: Model) -> Any:
    """CTranslate2's description of the model, with its weights."""
    specs, network, config = _ctranslate2_specs(), stored.network, stored.config
    shape = options(config)
    words = vocabulary(stored)
    if isinstance(network, EncoderDecoder):
        encoder = specs.TransformerEncoderSpec(config.layers, **shape)
        decoder = specs.TransformerDecoderSpec(config.decoder_depth, **shape)
        spec = specs.TransformerSpec(encoder, decoder)
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
    elif isinstance(network, Decoder):
        decoder = specs.TransformerDecoderSpec(config.layers, with_encoder_attention=False, **shape)
        spec = specs.TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(words)
    else:
        spec = specs.TransformerEncoderModelSpec(specs.TransformerEncoderSpec(config.layers, **shape))
        spec.register_vocabulary(words)
    name_special_tokens(spec.config, stored, words)
    if isinstance(network, Encoder | EncoderDecoder):
        fill_embedding(spec.encoder, spec.encoder.embeddings[0], network, len(words))
        fill_stack(spec.encoder, network.encoder)
    if isinstance(network, Decoder | EncoderDecoder):
        fill_embedding(spec.decoder, spec.decoder.embeddings, network, len(words))
        fill_stack(spec.decoder, network.decoder)
        fill_output(spec.decoder.projection, network, len(words), stored.special.suppressed)
    return spec


def options(config: ModelConfig) -> dict[str, Any]:
    """What the specifications of encoder and decoder must know before they have weights."""
    activations = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}
    d_k, d_v, kv_heads = config.widths
    rotary = {"rotary_dim": d_k, "rotary_interleave": False, "rotary_base": config.rotary_base}
    return {
        "num_heads": config.heads,
        "num_heads_kv": kv_heads,
        "head_dim": max(d_k, d_v),
        "pre_norm": config.norm == "pre",
        "rms_norm": config.norm_kind == "rms",
        "layernorm_embedding": config.embedding_norm,
        "activation": _ctranslate2_specs().Activation[activations[config.activation]],
        "ffn_glu": config.activation == "swiglu",
    } | (rotary if config.positions == "rotary" else {})


def vocabulary(stored: Model) -> list[str]:
    """Each id's token. A decoder's last <pad> is left out: it is neither read nor said."""
    config, tokenizer = stored.config, stored.tokenizer
    size = config.outputs if config.kind == "decoder" else config.vocab_size
    words = [f"<id{id_}>" if tokenizer is None else tokenizer.token(id_) for id_ in range(size)]
    if len(set(words)) < size:
        twice = next(word for word, count in Counter(words).items() if count > 1)
        raise RegardError(f"the tokenizer spells two ids {twice!r}: CTranslate2 tells ids apart by their tokens")
    return words


def name_special_tokens(told: Any, stored: Model, words: list[str]) -> None:
    """The tokens that CTranslate2 asks for by name; where the model has none of a kind, one that does no harm."""
    start, end, tokenizer = stored.special.start, end_id(stored), stored.tokenizer

    def known(*ids: int | None) -> str:
        return words[next(id_ for id_ in (*ids, 0) if id_ is not None and id_ < len(words))]

    before = () if tokenizer is None else tokenizer.before[:1]
    told.eos_token = known(end)
    told.bos_token = known(*before, start, end)
    told.unk_token = next((word for word in ("<unk>", "[UNK]") if word in words), known(stored.config.pad_id, end))
    if stored.config.kind == "encoder-decoder":
        told.decoder_start_token = known(start)


def fill_embedding(spec: Any, tokens: Any, network: Network, size: int) -> None:
    """The vectors of the first `size` ids, their scale, and a table of positions; zeros where the model has none,
    since CTranslate2 would put sinusoids of its own there."""
    config, embedding = network.config, network.embedding
    tokens.weight = numbers(embedding.tokens.weight[:size])
    spec.scale_embeddings = config.scale_embeddings
    if config.embedding_norm:
        fill_norm(spec.layernorm_embedding, embedding.norm)
    if config.positions == "sinusoidal":
        spec.position_encodings.encodings = numbers(sinusoids(torch.arange(config.max_length), config.d_model))
    elif config.positions == "none":
        spec.position_encodings.encodings = np.zeros((config.max_length, config.d_model), np.float32)
    elif embedding.positions is not None:
        spec.position_encodings.encodings = numbers(embedding.positions.weight)


def fill_stack(spec: Any, stack: Stack) -> None:
    """The layers and, of pre-norm ones, the norm behind them."""
    for theirs, ours in zip(spec.layer, stack.layers, strict=True):
        fill_attention(theirs.self_attention, ours.attention, ours.attention_norm)
        if ours.cross_attention is not None:
            fill_attention(theirs.attention, ours.cross_attention, ours.cross_attention_norm, cross=True)
        fill_feed_forward(theirs.ffn, ours.feed_forward)
        fill_norm(theirs.ffn.layer_norm, ours.feed_forward_norm)
    if not isinstance(stack.norm, nn.Identity):
        fill_norm(spec.layer_norm, stack.norm)


def fill_attention(spec: Any, ours: MultiHeadAttention, norm: nn.Module | None, cross: bool = False) -> None:
    """Queries, keys and values in one matrix, or for a source that others look at, queries apart.

    CTranslate2 has one width for them all: the narrower get zeros behind each head's own, which change no product.
    """
    d_k = ours.q.out_features // ours.heads
    width = max(d_k, ours.v.out_features // ours.kv_heads)
    linears = ((ours.q, ours.heads), (ours.k, ours.kv_heads), (ours.v, ours.kv_heads))
    weights = [widen(linear.weight, heads, width) for linear, heads in linears]  # [H·D, C] each
    biases = [widen(linear.bias, heads, width) for linear, heads in linears if linear.bias is not None]  # three or none
    for i, part in enumerate((slice(0, 1), slice(1, 3)) if cross else (slice(0, 3),)):
        spec.linear[i].weight = numbers(torch.cat(weights[part]))
        if biases:
            spec.linear[i].bias = numbers(torch.cat(biases[part]))
    spec.linear[-1].weight = numbers(widen(ours.out.weight.T, ours.heads, width).T)
    if ours.out.bias is not None:
        spec.linear[-1].bias = numbers(ours.out.bias)
    spec.queries_scale = 1 / math.sqrt(d_k)
    fill_norm(spec.layer_norm, norm)


def widen(rows: Float[Tensor, "HD *C"], heads: int, width: int) -> Float[Tensor, "HE *C"]:
    """Zero rows behind those of each head, so that each has `width` of them."""
    each = rows.reshape(heads, -1, *rows.shape[1:])  # [H, D, *C]
    return F.pad(each, (0, 0) * (each.dim() - 2) + (0, width - each.size(1))).flatten(0, 1)


def fill_feed_forward(spec: Any, ours: FeedForward) -> None:
    """With a gate, it is the one that goes through the activation."""
    fill_linear(spec.linear_0, ours.up if ours.gate is None else ours.gate)
    fill_linear(spec.linear_1, ours.down)
    if ours.gate is not None:
        fill_linear(spec.linear_0_noact, ours.up)


def fill_output(spec: Any, network: Decoder | EncoderDecoder, size: int, suppressed: tuple[int, ...]) -> None:
    """The output layer over `size` ids; a <pad> without output and what is suppressed get a bias that silences them."""
    config = network.config
    # Tied, it is the embedding with all its rows, so that the file holds them once.
    ours = network.embedding.tokens.weight if config.tied else network.output_weight  # [V, C]
    bias = torch.zeros(size)
    if network.output_bias is not None:
        bias[: config.outputs] = network.output_bias.detach()
    unsaid = [*range(config.outputs, size), *(id_ for id_ in suppressed if id_ < size)]
    bias[unsaid] = NEVER
    spec.weight = numbers(F.pad(ours[:size], (0, 0, 0, max(0, size - len(ours)))))
    if config.output_bias or unsaid:
        spec.bias = numbers(bias)


def fill_linear(spec: Any, ours: nn.Linear) -> None:
    """A matrix and, where there is one, its bias."""
    spec.weight = numbers(ours.weight)
    if ours.bias is not None:
        spec.bias = numbers(ours.bias)


def fill_norm(spec: Any, ours: nn.Module | None) -> None:
    """LayerNorm or RMSNorm."""
    if isinstance(ours, nn.LayerNorm | nn.RMSNorm):
        spec.gamma = numbers(ours.weight)
    if isinstance(ours, nn.LayerNorm):
        spec.beta = numbers(ours.bias)


def numbers(tensor: Tensor) -> Numbers:
    """A copy in float32: CTranslate2 quantises in place what it is given."""
    return tensor.detach().to("cpu", torch.float32, copy=True).numpy()


def _ctranslate2_specs() -> Any:
    try:
        from ctranslate2 import specs  # type: ignore[import-untyped]
    except ImportError:
        raise RegardError("exporting to CTranslate2 needs a package: pip install 'regard[interop]'") from None
    return specs
