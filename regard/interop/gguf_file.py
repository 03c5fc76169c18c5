"""Loading GGUF files, the format of llama.cpp, for models with the Llama architecture. Weights are dequantised.

Dimensions: H heads, D width of a head, C model width.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import ModelConfig, SpecialIds
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.gguf_header import GgufFile, SettingValue, gguf_package, open_gguf, short_repr
from regard.interop.gguf_tokenizer import read_tokenizer, token_id
from regard.interop.weight_rules import heads_in_halves
from regard.storage.model_folder import assign_weights, build_empty, check_tensors
from regard.storage.weights import TensorEntry, Weights

MODULE_NAMES = {"token_embd": "embedding.tokens", "output_norm": "decoder.norm", "output": "output"}
"""Regard's name of each module outside the layers, by its name in GGUF."""
LAYER_MODULE_NAMES = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.q",
    "attn_k": "attention.k",
    "attn_v": "attention.v",
    "attn_output": "attention.out",
    "ffn_norm": "feed_forward_norm",
    "ffn_gate": "feed_forward.gate",
    "ffn_up": "feed_forward.up",
    "ffn_down": "feed_forward.down",
}
"""Regard's name of each module inside a layer, by its name in GGUF."""
CONFIG_SETTINGS = {
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base"),
}
"""Settings that determine the ModelConfig."""
IGNORED_SETTINGS = {"tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned"}
"""Settings without influence on the model."""
NEUTRAL_VALUES: dict[str, tuple[SettingValue, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scale_linear": (1.0,),
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
}
"""Settings that are accepted only with these values. Any setting that is listed nowhere here is refused."""


def load_gguf(path: Path) -> Model:
    """Load a GGUF file as an ordinary Regard decoder in float32, with its tokenizer and special ids.

    Supported are little-endian files of versions 2 and 3 with the architecture llama, and every type of weights that
    `gguf` can dequantise. Any other file raises RegardError before memory is allocated for weights.
    """
    with _naming_file_in_errors(path):
        file = open_gguf(path)
        config = _config(file)
    weights = Weights(path, {name: TensorEntry(path, "F32", tensor.shape) for name, tensor in file.tensors.items()})
    network = build_empty(config, weights)
    shapes = {_gguf_name(name): tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    # A file may contain only some biases of attention or of the feed-forward network; the others are zero.
    check_tensors(weights, {name: shapes[name] for name in shapes if name in file.tensors or not name.endswith("bias")})
    with _naming_file_in_errors(path):
        tokenizer, special = read_tokenizer(file, config.vocab_size), _special_ids(file)
        special.check(config)
    state = {name: _weight(file, _gguf_name(name), shapes[_gguf_name(name)], config) for name in network.state_dict()}
    assign_weights(network, state)
    return Model(network, tokenizer, special, {"origin": _origin(file)})


@contextmanager
def _naming_file_in_errors(path: Path) -> Iterator[None]:
    """Prefix error messages with the path of the file."""
    try:
        yield
    except ValueError as error:
        raise RegardError(f"{path}: {error}") from error


def _config(file: GgufFile) -> ModelConfig:
    """Return the config of the decoder that the settings describe."""
    _check_supported(file)
    if "token_embd.weight" not in file.tensors:
        raise RegardError("the tensor token_embd.weight is missing")
    vocab_size = file.tensors["token_embd.weight"].shape[0]
    if (stated_size := file.get("llama.vocab_size", int)) not in (None, vocab_size):
        raise RegardError(f"llama.vocab_size is {stated_size}, but there are {vocab_size} embeddings")
    pad = token_id(file, "padding")
    base = file.get("llama.rope.freq_base", float)
    biases = [name for name in file.tensors if name.endswith(".bias")]
    bias, attention_bias = (any(part in name for name in biases) for part in (".ffn_", ".attn_"))
    config = ModelConfig(
        kind="decoder",
        vocab_size=vocab_size,
        pad=None if pad == vocab_size - 1 else pad,  # a trailing pad would not be an output in Regard
        d_model=file.need("llama.embedding_length", int),
        heads=file.need("llama.attention.head_count", int),
        kv_heads=file.get("llama.attention.head_count_kv", int),
        d_k=file.get("llama.attention.key_length", int),
        d_v=file.get("llama.attention.value_length", int),
        layers=file.need("llama.block_count", int),
        d_ff=file.need("llama.feed_forward_length", int),
        activation="swiglu",
        bias=bias,
        attention_bias=None if attention_bias is bias else attention_bias,
        norm="pre",
        norm_kind="rms",
        norm_eps=file.need("llama.attention.layer_norm_rms_epsilon", float),
        positions="rotary",
        max_length=file.need("llama.context_length", int),
        rotary_base=10_000.0 if base is None else base,
        scale_embeddings=False,
        tied="output.weight" not in file.tensors,
        dropout=0.0,
    )
    rotated, (d_k, _, _) = file.get("llama.rope.dimension_count", int), config.widths
    if rotated not in (None, d_k):
        raise RegardError(
            f"llama.rope.dimension_count is {rotated}, but heads are {d_k} wide: Regard rotates complete heads"
        )
    return config


def _check_supported(file: GgufFile) -> None:
    """Raise RegardError for a setting or tensor that Regard's decoder does not support."""
    if file.get("general.type", str) not in (None, "model"):
        raise RegardError(f"general.type is {short_repr(file.settings['general.type'])}, but Regard reads only 'model'")
    if file.get("split.count", int) not in (None, 0, 1):
        raise RegardError("the model is split into several files: merge them first with llama-gguf-split --merge")
    if "rope_freqs.weight" in file.tensors:
        raise RegardError("scaled rotary positions (rope_freqs.weight) are not supported")
    for name, value in file.settings.items():
        key = name.removeprefix("llama.")
        if key == name or key in CONFIG_SETTINGS | IGNORED_SETTINGS:
            continue
        if isinstance(value, list | np.ndarray) or value not in NEUTRAL_VALUES.get(key, ()):
            raise RegardError(f"{short_repr(name)}={short_repr(value)} is not supported")


def _gguf_name(ours: str) -> str:
    """Return the GGUF name of one of our tensors."""
    module, part = ours.rsplit(".", 1)
    layer = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", module)
    names = LAYER_MODULE_NAMES if layer else MODULE_NAMES
    gguf_name = {our_name: their_name for their_name, our_name in names.items()}[layer[2] if layer else module]
    return f"blk.{layer[1]}.{gguf_name}.{part}" if layer else f"{gguf_name}.{part}"


def _weight(file: GgufFile, name: str, shape: tuple[int, ...], config: ModelConfig) -> Float[Tensor, "..."]:
    """Read one tensor in float32, in Regard's order."""
    if name not in file.tensors:  # a bias
        return torch.zeros(shape)
    tensor = file.tensors[name]
    raw = file.read(name).reshape(*tensor.shape[:-1], -1)
    with np.errstate(all="ignore"):  # an infinite scale is not an error of loading
        weight = torch.tensor(gguf_package().quants.dequantize(raw, tensor.kind))
    _, _, groups = config.widths
    heads = {"attn_q": config.heads, "attn_k": groups}.get(name.split(".")[-2])
    # llama.cpp rotates adjacent dimensions of a head.
    return weight if heads is None else heads_in_halves(weight, heads)


def _origin(file: GgufFile) -> dict[str, Any]:
    """Return the origin of the model as recorded in the file."""
    values = {key: file.settings.get(f"general.{key}") for key in ("name", "organization", "license")}
    types = sorted({tensor.kind.name for tensor in file.tensors.values()})
    return {"file": file.path.name, "types": types} | {
        key: text for key, text in values.items() if isinstance(text, str)
    }


def _special_ids(file: GgufFile) -> SpecialIds:
    """Return the ids that end a text or a turn of a dialogue."""
    ends = [token_id(file, role) for role in ("eos", "eot")]
    return SpecialIds(end=tuple(dict.fromkeys(id_ for id_ in ends if id_ is not None)))
