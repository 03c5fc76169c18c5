"""Exporting a model to CTranslate2, an engine that runs Transformers fast on CPUs and GPUs.

The exported model computes what Regard computes, or the export is refused. CTranslate2 differs in these respects:

- Positions are a table of max_length rows, so longer texts are not possible, except with rotary positions.
- One token ends a text: the first of `special.end`.
- The probability of suppressed ids is redistributed to the other ids.
- An empty source is translated to an empty text without running the model.
- An encoder returns only the vectors of the last layer, without a head over the vocabulary.

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
from regard.data.tokenizer import Tokenizer
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.weight_rules import SUPPRESSED_BIAS
from regard.model.attention import MultiHeadAttention
from regard.model.embedding import Embedding
from regard.model.layers import FeedForward, Stack
from regard.model.positions import sinusoids
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.storage.weights import WRITABLE_DTYPES, round_weights

CTRANSLATE2_DTYPES = (*WRITABLE_DTYPES, "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
"""Types in which CTranslate2 stores weights."""

Array = Float32[np.ndarray, "*N"]


def export_ctranslate2(model: Model, folder: Path, dtype: str = "float32") -> None:
    """Write the files that `ctranslate2.Translator`, `Generator` or `Encoder` loads, and the tokenizer's.

    The folder must exist and be empty. A model that CTranslate2 cannot represent raises RegardError.
    """
    if dtype not in CTRANSLATE2_DTYPES:
        raise RegardError(f"CTranslate2 has no dtype {dtype!r}; choose from {', '.join(CTRANSLATE2_DTYPES)}")
    check_supported(model)
    if dtype in WRITABLE_DTYPES:
        round_weights(model.network.state_dict(), dtype)  # raises an error for values out of range
    spec = specification(model)
    spec.config.layer_norm_epsilon = model.config.norm_eps
    spec.validate()
    spec.optimize(quantization=dtype)
    spec.save(str(folder))
    if model.tokenizer is not None:
        model.tokenizer.save(folder)


SUPPORTED_POSITIONS = ("sinusoidal", "learned", "rotary", "none")
SUPPORTED_NORMS = ("layer", "rms")
"""Kinds that are converted. A kind added to `ModelConfig` is refused until it is listed here."""
UNCONVERTED_SETTINGS = {
    "rotary_scaling": None,
    "rotary_pairs": "halves",
    "qk_norm": False,
    "window": None,
    "attention_scale": None,
}
"""Settings that are not converted, and the only value that each may have."""


def check_supported(model: Model) -> None:
    """Raise RegardError if CTranslate2 cannot compute exactly what the model computes."""
    config = model.config
    if config.positions not in SUPPORTED_POSITIONS:
        raise RegardError(f"positions={config.positions}: CTranslate2 has no such positions")
    if config.norm_kind not in SUPPORTED_NORMS:
        raise RegardError(f"norm_kind={config.norm_kind}: CTranslate2 has no such norm")
    for name, default in UNCONVERTED_SETTINGS.items():
        value = getattr(config, name)
        if value != default:
            raise RegardError(f"{name}={value!r}: Regard does not convert this to CTranslate2")
    if not config.has_usual_final_norm:
        raise RegardError(f"norm={config.norm}, final_norm={config.final_norm}: CTranslate2 has no such stack")
    if config.classes:
        raise RegardError(f"classes={config.classes}: CTranslate2 has no classification heads")
    if config.kind == "encoder":
        return
    if config.prefix:
        raise RegardError("prefix=True: in CTranslate2, no token of a decoder can attend to a later one")
    if config.output_transform:
        raise RegardError("output_transform=True: CTranslate2 has no layer between the last one and the output")
    if model.special.first is not None:
        raise RegardError(
            f"every target begins with id {model.special.first} (special.first), which CTranslate2 takes as the "
            "target_prefix of each call: export the model before `for_languages`"
        )
    if end_id(model) is None:
        raise RegardError("special.end contains no id that the model can generate, and CTranslate2 requires one")
    model.special.check(config)


def end_id(model: Model) -> int | None:
    """Return the first id of `special.end` that the model can generate, or None."""
    special = model.special
    return next((id_ for id_ in special.end if id_ < model.config.outputs and id_ not in special.suppressed), None)


def specification(model: Model) -> Any:
    """Return CTranslate2's description of the model, with its weights."""
    specs, network, config = _ctranslate2_specs(), model.network, model.config
    layer_options = spec_options(config)
    source_tokens, tokens = vocabularies(model)
    if isinstance(network, EncoderDecoder):
        encoder = specs.TransformerEncoderSpec(config.layers, **layer_options)
        decoder = specs.TransformerDecoderSpec(config.decoder_depth, **layer_options)
        spec = specs.TransformerSpec(encoder, decoder)
        spec.register_source_vocabulary(source_tokens)
        spec.register_target_vocabulary(tokens)
    elif isinstance(network, Decoder):
        decoder = specs.TransformerDecoderSpec(config.layers, with_encoder_attention=False, **layer_options)
        spec = specs.TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(tokens)
    else:
        spec = specs.TransformerEncoderModelSpec(specs.TransformerEncoderSpec(config.layers, **layer_options))
        spec.register_vocabulary(tokens)
    name_special_tokens(spec.config, model, source_tokens, tokens)
    if isinstance(network, Encoder | EncoderDecoder):
        fill_embedding(spec.encoder, spec.encoder.embeddings[0], config, network.embedding, len(source_tokens))
        fill_stack(spec.encoder, network.encoder)
    if isinstance(network, Decoder | EncoderDecoder):
        fill_embedding(spec.decoder, spec.decoder.embeddings, config, network.output_embedding, len(tokens))
        fill_stack(spec.decoder, network.decoder)
        fill_output(spec.decoder.projection, network, len(tokens), model.special.suppressed)
    return spec


def spec_options(config: ModelConfig) -> dict[str, Any]:
    """Return the options of the encoder and decoder specifications."""
    activations = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}
    activations |= {"swiglu": "SWISH", "geglu-tanh": "GELUTanh"}
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
        "ffn_glu": config.is_gated,
    } | (rotary if config.positions == "rotary" else {})


def vocabularies(model: Model) -> tuple[list[str], list[str]]:
    """Return the token of each id that is read and of each id that is written: the same unless they are separate.

    A decoder's trailing <pad>, which it never reads or generates, is omitted.
    """
    config, tokenizer = model.config, model.tokenizer
    if config.target_vocab_size is None:
        tokens = vocabulary(tokenizer, config.outputs if config.kind == "decoder" else config.vocab_size)
        return tokens, tokens
    sides = (None, None) if tokenizer is None else (tokenizer.source_side, tokenizer.target_side)
    return vocabulary(sides[0], config.vocab_size), vocabulary(sides[1], config.target_vocab_size)


def vocabulary(tokenizer: Tokenizer | None, size: int) -> list[str]:
    """Return the tokens of the first `size` ids."""
    tokens = [f"<id{id_}>" if tokenizer is None else tokenizer.token(id_) for id_ in range(size)]
    if len(set(tokens)) < size:
        duplicate = next(word for word, count in Counter(tokens).items() if count > 1)
        raise RegardError(
            f"the tokenizer has several ids for {duplicate!r}, but CTranslate2 identifies ids by their tokens"
        )
    return tokens


def name_special_tokens(ct2_config: Any, model: Model, source_tokens: list[str], tokens: list[str]) -> None:
    """Set the special tokens that CTranslate2 requires; where the model has none, use a token without effect."""
    start, end, tokenizer = model.special.start, end_id(model), model.tokenizer

    def first_token(*ids: int | None) -> str:
        return tokens[next(id_ for id_ in (*ids, 0) if id_ is not None and id_ < len(tokens))]

    before = [] if tokenizer is None else [source_tokens[id_] for id_ in tokenizer.before if id_ < len(source_tokens)]
    ct2_config.eos_token = first_token(end)
    ct2_config.bos_token = before[0] if before else first_token(start, end)
    ct2_config.unk_token = next(
        (word for word in ("<unk>", "[UNK]") if word in tokens), first_token(model.config.output_pad_id, end)
    )
    if model.config.kind == "encoder-decoder":
        ct2_config.decoder_start_token = first_token(start)


def fill_embedding(spec: Any, tokens: Any, config: ModelConfig, embedding: Embedding, size: int) -> None:
    """Fill the embeddings of the first `size` ids and the table of positions.

    A model without positions gets a table of zeros, because CTranslate2 would otherwise use sinusoids.
    """
    tokens.weight = float32_array(embedding.tokens.weight[:size])
    spec.scale_embeddings = config.scale_embeddings
    if config.embedding_norm:
        fill_norm(spec.layernorm_embedding, embedding.norm)
    if config.positions == "sinusoidal":
        spec.position_encodings.encodings = float32_array(
            sinusoids(torch.arange(config.max_length), config.d_model, fairseq=config.sinusoids == "fairseq")
        )
    elif config.positions == "none":
        spec.position_encodings.encodings = np.zeros((config.max_length, config.d_model), np.float32)
    elif embedding.positions is not None:
        spec.position_encodings.encodings = float32_array(embedding.positions.weight)


def fill_stack(spec: Any, stack: Stack) -> None:
    """Fill the layers and, for a pre-norm model, the final norm."""
    for theirs, ours in zip(spec.layer, stack.layers, strict=True):
        fill_attention(theirs.self_attention, ours.attention, ours.attention_norm)
        if ours.cross_attention is not None:
            fill_attention(theirs.attention, ours.cross_attention, ours.cross_attention_norm, cross=True)
        fill_feed_forward(theirs.ffn, ours.feed_forward)
        fill_norm(theirs.ffn.layer_norm, ours.feed_forward_norm)
    if not isinstance(stack.norm, nn.Identity):
        fill_norm(spec.layer_norm, stack.norm)


def fill_attention(spec: Any, ours: MultiHeadAttention, norm: nn.Module | None, cross: bool = False) -> None:
    """Fill an attention layer: queries, keys and values in one matrix; the queries of cross-attention are separate.

    CTranslate2 has one width for all of them: narrower heads are padded with zeros, which change no product.
    """
    d_k = ours.q.out_features // ours.heads
    width = max(d_k, ours.v.out_features // ours.kv_heads)
    linears = ((ours.q, ours.heads), (ours.k, ours.kv_heads), (ours.v, ours.kv_heads))
    weights = [widen(linear.weight, heads, width) for linear, heads in linears]  # three of [H·D, C]
    biases = [widen(linear.bias, heads, width) for linear, heads in linears if linear.bias is not None]  # three or none
    for i, part in enumerate((slice(0, 1), slice(1, 3)) if cross else (slice(0, 3),)):
        spec.linear[i].weight = float32_array(torch.cat(weights[part]))
        if biases:
            spec.linear[i].bias = float32_array(torch.cat(biases[part]))
    spec.linear[-1].weight = float32_array(widen(ours.out.weight.T, ours.heads, width).T)
    if ours.out.bias is not None:
        spec.linear[-1].bias = float32_array(ours.out.bias)
    spec.queries_scale = 1 / math.sqrt(d_k)
    fill_norm(spec.layer_norm, norm)


def widen(rows: Float[Tensor, "HD *C"], heads: int, width: int) -> Float[Tensor, "HE *C"]:
    """Append zero rows to those of each head, so that each head has `width` rows."""
    by_head = rows.reshape(heads, -1, *rows.shape[1:])  # [H, D, *C]
    return F.pad(by_head, (0, 0) * (by_head.dim() - 2) + (0, width - by_head.size(1))).flatten(0, 1)


def fill_feed_forward(spec: Any, ours: FeedForward) -> None:
    """Fill a feed-forward network. If it has a gate, the activation applies to the gate."""
    fill_linear(spec.linear_0, ours.up if ours.gate is None else ours.gate)
    fill_linear(spec.linear_1, ours.down)
    if ours.gate is not None:
        fill_linear(spec.linear_0_noact, ours.up)


def fill_output(spec: Any, network: Decoder | EncoderDecoder, size: int, suppressed: tuple[int, ...]) -> None:
    """Fill the output layer over `size` ids; the bias suppresses ids that must never be generated."""
    config = network.config
    # A tied output layer is the embedding with all its rows, so the file stores them once.
    ours = network.output_embedding.tokens.weight if config.tied else network.output_weight  # [V, C]
    bias = torch.zeros(size)
    if network.output_bias is not None:
        bias[: config.outputs] = network.output_bias.detach()
    never_generated = [*range(config.outputs, size), *(id_ for id_ in suppressed if id_ < size)]
    bias[never_generated] = SUPPRESSED_BIAS
    spec.weight = float32_array(F.pad(ours[:size], (0, 0, 0, max(0, size - len(ours)))))
    if config.output_bias or never_generated:
        spec.bias = float32_array(bias)


def fill_linear(spec: Any, ours: nn.Linear) -> None:
    """Fill a linear layer and its bias, if it has one."""
    spec.weight = float32_array(ours.weight)
    if ours.bias is not None:
        spec.bias = float32_array(ours.bias)


def fill_norm(spec: Any, ours: nn.Module | None) -> None:
    """Fill a LayerNorm or RMSNorm."""
    if isinstance(ours, nn.LayerNorm | nn.RMSNorm):
        spec.gamma = float32_array(ours.weight)
    if isinstance(ours, nn.LayerNorm):
        spec.beta = float32_array(ours.bias)


def float32_array(tensor: Tensor) -> Array:
    """Return a copy in float32, because CTranslate2 quantises arrays in place."""
    return tensor.detach().to("cpu", torch.float32, copy=True).numpy()


def _ctranslate2_specs() -> Any:
    try:
        from ctranslate2 import specs  # type: ignore[import-untyped]
    except ImportError:
        raise RegardError("exporting to CTranslate2 requires a package: pip install 'regard[interop]'") from None
    return specs
