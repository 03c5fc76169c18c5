"""GGUF files of Llama's shape, the form in which llama.cpp keeps models: read with suspicion, and dequantised.

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
from regard.interop.gguf_header import GgufFile, Value, open_gguf, package, short
from regard.interop.gguf_tokenizer import read_tokenizer, token_id
from regard.storage.model_folder import check_names, empty, fill
from regard.storage.weights import Entry, Weights

PLACES = {"token_embd": "embedding.tokens", "output_norm": "decoder.norm", "output": "output"}
PLACES_IN_LAYER = {
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
"""what is whose: their module, our module"""
READ = {
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base"),
}
"""settings of the architecture that make the config"""
IGNORED = {"tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned"}
NEUTRAL: dict[str, tuple[Value, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scale_linear": (1.0,),
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
}
"""settings that are no obstacle while they have such a value; those that stand nowhere here are refused"""


def load_gguf(path: Path) -> Model:
    """The model of a GGUF file as an ordinary Regard decoder in float32, with its tokenizer and special ids.

    Little-endian files of versions 2 and 3, architecture llama, any type of weights that `gguf` can dequantise. All
    else is a ValueError that names the file and what is wrong, before memory is taken for weights.
    """
    with _named(path):
        file = open_gguf(path)
        config = _config(file)
    weights = Weights(path, {name: Entry(path, "F32", each.shape) for name, each in file.tensors.items()})
    network = empty(config, weights)
    shapes = {_theirs(name): tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    # A file may hold some biases of attention (or of the feed-forward network) and not others: zeros stand for those.
    check_names(weights, {name: shapes[name] for name in shapes if name in file.tensors or not name.endswith("bias")})
    with _named(path):
        tokenizer, special = read_tokenizer(file, config.vocab_size), _special_ids(file)
        special.check(config)
    state = {name: _weight(file, _theirs(name), shapes[_theirs(name)], config) for name in network.state_dict()}
    fill(network, state)
    return Model(network, tokenizer, special, {"origin": _origin(file)})


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A mistake that is found within is told with the file's name."""
    try:
        yield
    except ValueError as error:
        raise RegardError(f"{path}: {error}") from error


def _config(file: GgufFile) -> ModelConfig:
    """The decoder that the settings describe."""
    _refuse_what_it_has_not(file)
    if "token_embd.weight" not in file.tensors:
        raise RegardError("it lacks the tensor token_embd.weight")
    vocab_size = file.tensors["token_embd.weight"].shape[0]
    if (told := file.get("llama.vocab_size", int)) not in (None, vocab_size):
        raise RegardError(f"llama.vocab_size is {told}, and there are {vocab_size} embeddings")
    pad = token_id(file, "padding")
    base = file.get("llama.rope.freq_base", float)
    biases = [name for name in file.tensors if name.endswith(".bias")]
    bias, attention_bias = (any(part in name for name in biases) for part in (".ffn_", ".attn_"))
    config = ModelConfig(
        kind="decoder",
        vocab_size=vocab_size,
        pad=None if pad == vocab_size - 1 else pad,  # as the last id it would be no output, and here it is one
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
    turned, (d_k, _, _) = file.get("llama.rope.dimension_count", int), config.widths
    if turned not in (None, d_k):
        raise RegardError(f"llama.rope.dimension_count is {turned}, and heads are {d_k} wide: Regard turns them whole")
    return config


def _refuse_what_it_has_not(file: GgufFile) -> None:
    """A ValueError for a setting or a tensor that would make it another model than Regard's."""
    if file.get("general.type", str) not in (None, "model"):
        raise RegardError(f"its general.type is {short(file.settings['general.type'])}, and Regard reads 'model' alone")
    if file.get("split.count", int) not in (None, 0, 1):
        raise RegardError("one part of a model in several files: join them first (llama-gguf-split --merge)")
    if "rope_freqs.weight" in file.tensors:
        raise RegardError("its rotary positions are scaled (rope_freqs.weight), and Regard's are not")
    for name, value in file.settings.items():
        key = name.removeprefix("llama.")
        if key == name or key in READ | IGNORED:
            continue
        if isinstance(value, list | np.ndarray) or value not in NEUTRAL.get(key, ()):
            raise RegardError(f"{short(name)} is {short(value)}: Regard's model has no such part")


def _theirs(ours: str) -> str:
    """Their name of one of our tensors."""
    module, part = ours.rsplit(".", 1)
    layer = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", module)
    places = PLACES_IN_LAYER if layer else PLACES
    theirs = {place: name for name, place in places.items()}[layer[2] if layer else module]
    return f"blk.{layer[1]}.{theirs}.{part}" if layer else f"{theirs}.{part}"


def _weight(file: GgufFile, name: str, shape: tuple[int, ...], config: ModelConfig) -> Float[Tensor, "..."]:
    """One tensor in float32, as our model has it."""
    if name not in file.tensors:  # a bias
        return torch.zeros(shape)
    tensor = file.tensors[name]
    raw = file.read(name).reshape(*tensor.shape[:-1], -1)
    with np.errstate(all="ignore"):  # a scale may be infinite, which is for those who use the model to see
        weight = torch.tensor(package().quants.dequantize(raw, tensor.kind))
    _, _, groups = config.widths
    heads = {"attn_q": config.heads, "attn_k": groups}.get(name.split(".")[-2])
    return weight if heads is None else _in_halves(weight, heads)


def _in_halves(weight: Float[Tensor, "HD *C"], heads: int) -> Float[Tensor, "HD *C"]:
    """llama.cpp turns neighbouring dimensions of a head, Regard one of its first half with one of its second:
    the rows that make queries and keys are put in our order."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])  # [H, D / 2, 2, *C]
    return pairs.transpose(1, 2).reshape(weight.shape)  # [H, 2, D / 2, *C] → [HD, *C]


def _origin(file: GgufFile) -> dict[str, Any]:
    """Where the model is from, as far as the file says."""
    told = {key: file.settings.get(f"general.{key}") for key in ("name", "organization", "license")}
    types = sorted({tensor.kind.name for tensor in file.tensors.values()})
    return {"file": file.path.name, "types": types} | {key: text for key, text in told.items() if isinstance(text, str)}


def _special_ids(file: GgufFile) -> SpecialIds:
    """What ends a text, and a turn of a dialogue."""
    ends = [token_id(file, role) for role in ("eos", "eot")]
    return SpecialIds(end=tuple(dict.fromkeys(id_ for id_ in ends if id_ is not None)))
