"""GGUF files of Llama's shape, the form in which llama.cpp keeps models: read with suspicion, and dequantised.

A file of this kind is: how many tensors and settings there are; the settings; each tensor's name, shape, type and
place; the bytes. The package `gguf` knows the types and takes quantisation back, but its reader believes what a file
says, so that the header is read here and each number checked before it is used.

Dimensions: H heads, D width of a head, C model width.
"""

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine
from torch import Tensor

from regard.config import ModelConfig, SpecialIds
from regard.files import is_there, shorten
from regard.store import Stored, check_names, empty, fill
from regard.text.tokenizer import Tokenizer
from regard.weights import Entry, Weights

MAX_HEADER = 64_000_000
"""bytes of a header: a large vocabulary takes fifteen million"""
MAX_SETTINGS, MAX_TENSORS = 10_000, 100_000
"""many times what the largest models have"""

Value = str | bool | int | float | list[str] | np.ndarray
"""one setting; an array of numbers stays where it is in the file"""
T = TypeVar("T")

TEXT, ARRAY = 8, 9
NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""the types of settings by the file's own numbers, as numpy writes them"""

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

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""types of tokens"""
ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token", "mask": "mask_token"}
"""what a GGUF file and a tokenizer's settings call the same token"""

WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS_AND_NUMBERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS = {
    "default": (r"[\p{P}$+<=>^~|]+", WORDS, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (WORDS,),
    "gpt2": (WORDS,),
    "smollm": (r"\p{N}", WORDS),
    "llama-bpe": (WORDS_AND_NUMBERS,),
}
"""where byte-level BPE cuts a text, by `tokenizer.ggml.pre`: each pattern cuts what the one before it left"""


def load_gguf(path: Path) -> Stored:
    """The model of a GGUF file as an ordinary Regard decoder in float32, with its tokenizer and special ids.

    Little-endian files of versions 2 and 3, architecture llama, any type of weights that `gguf` can dequantise. All
    else is a ValueError that names the file and what is wrong, before memory is taken for weights.
    """
    with _named(path):
        file = _open(path)
        config = _config(file)
    weights = Weights(path, {name: Entry(path, "F32", each.shape) for name, each in file.tensors.items()})
    network = empty(config, weights)
    shapes = {_theirs(name): tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    # Their models may have some biases and not others; ours has all or none, and a bias of zeros is none.
    check_names(weights, {name: shapes[name] for name in shapes if name in file.tensors or not name.endswith("bias")})
    with _named(path):
        tokenizer, special = _tokenizer(file, config.vocab_size), _special_ids(file)
        special.check(config)
    state = {name: _weight(file, _theirs(name), shapes[_theirs(name)], config) for name in network.state_dict()}
    fill(network, state)
    return Stored(network, tokenizer, special, {"origin": _origin(file)})


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A mistake that is found within is told with the file's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _package() -> ModuleType:
    try:
        import gguf
    except ImportError as error:
        raise ValueError("a GGUF file is read with the package gguf: pip install 'regard[interop]'") from error
    return gguf


@dataclass(frozen=True)
class _Tensor:
    kind: IntEnum
    shape: tuple[int, ...]
    offset: int
    size: int
    """bytes"""


@dataclass(frozen=True)
class _File:
    path: Path
    settings: dict[str, Value]
    tensors: dict[str, _Tensor]
    data: UInt8[np.ndarray, " bytes"]

    def get(self, key: str, kind: type[T]) -> T | None:
        """A setting, which must be of this type if it is there."""
        value = self.settings.get(key)
        if value is not None and type(value) is not kind:
            raise ValueError(f"{key} is a {type(value).__name__}, and should be a {kind.__name__}")
        return value

    def need(self, key: str, kind: type[T]) -> T:
        """A setting that must be there."""
        value = self.get(key, kind)
        if value is None:
            raise ValueError(f"it lacks the setting {key}")
        return value


class _Header:
    """A file's beginning, taken piece by piece and never beyond its end."""

    def __init__(self, data: UInt8[np.ndarray, " bytes"]) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> UInt8[np.ndarray, " taken"]:
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise ValueError(f"cut short: {count:,} bytes are wanted at byte {start:,} of {len(self.data):,}")
        if self.at > MAX_HEADER:
            raise ValueError(f"its header goes on beyond {MAX_HEADER:,} bytes")
        return self.data[start : self.at]

    def number(self, form: str) -> int:
        return int(struct.unpack(f"<{form}", self.take(struct.calcsize(form)).tobytes())[0])

    def text(self) -> str:
        start = self.at
        try:
            return self.take(self.number("Q")).tobytes().decode()
        except UnicodeDecodeError:
            raise ValueError(f"the text at byte {start:,} is not UTF-8") from None

    def numbers(self, kind: int, count: int) -> np.ndarray:
        if kind not in NUMBERS:
            raise ValueError(f"a setting before byte {self.at:,} is of the unknown type {kind}")
        dtype = np.dtype(NUMBERS[kind])
        return self.take(count * dtype.itemsize).view(dtype)

    def value(self) -> Value:
        """A setting's type, then the setting."""
        kind = self.number("I")
        if kind == TEXT:
            return self.text()
        if kind != ARRAY:
            return self.numbers(kind, 1)[0].item()  # type: ignore[no-any-return]
        inner, count = self.number("I"), self.number("Q")
        if inner == ARRAY:
            raise ValueError(
                f"there are arrays in the array before byte {self.at:,}, which no setting of a model needs"
            )
        if inner != TEXT:
            return self.numbers(inner, count)
        if count * 8 > len(self.data) - self.at:  # each has its length before it
            raise ValueError(f"cut short: {count:,} texts are wanted at byte {self.at:,} of {len(self.data):,}")
        return [self.text() for _ in range(count)]

    def tensor(self) -> tuple[tuple[int, ...], int, int]:
        """A tensor's shape, outermost dimension first; its type; its place."""
        dimensions = self.number("I")
        if not 1 <= dimensions <= 4:
            raise ValueError(f"a tensor has {dimensions:,} dimensions: 1 to 4 are possible")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        return shape[::-1], self.number("I"), self.number("Q")


def _open(path: Path) -> _File:
    """A file whose every number has been checked, and none of whose weights has been read."""
    if not is_there(path):
        raise ValueError("there is no such file")
    if path.stat().st_size < 24:
        raise ValueError(f"no GGUF file: it has {path.stat().st_size} bytes, and a header alone has 24")
    data = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    header = _Header(data)
    tensors, settings = _beginning(header)
    told: dict[str, Value] = {}
    for _ in range(settings):
        _once(told, header.text(), header.value, "setting")
    architecture = told.get("general.architecture")
    if not isinstance(architecture, str) or architecture != "llama":
        raise ValueError(f"its general.architecture is {_short(architecture)}, and Regard reads 'llama' alone")
    listed: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(tensors):
        _once(listed, header.text(), header.tensor, "tensor")
    return _File(path, told, _placed(listed, header.at, _alignment(told), len(data)), data)


def _beginning(header: _Header) -> tuple[int, int]:
    """The number of tensors and of settings."""
    if (magic := header.take(4).tobytes()) != b"GGUF":
        raise ValueError(f"no GGUF file: it begins with {magic!r}")
    version = header.number("I")
    if version & 0xFFFF == 0:
        raise ValueError("a big-endian file: Regard reads little-endian ones alone (gguf-convert-endian turns it)")
    if version not in (2, 3):
        raise ValueError(f"GGUF of version {version}, and Regard reads 2 and 3")
    tensors, settings = header.number("Q"), header.number("Q")
    if tensors > MAX_TENSORS or settings > MAX_SETTINGS:
        raise ValueError(
            f"{tensors:,} tensors and {settings:,} settings: {MAX_TENSORS:,} and {MAX_SETTINGS:,} are the most"
        )
    return tensors, settings


V = TypeVar("V")


def _once(into: dict[str, V], name: str, read: Callable[[], V], what: str) -> None:
    """Put in what comes next under its name; one given twice is refused, because readers differ in which they take."""
    if name in into:
        raise ValueError(f"the {what} {_short(name)} is given twice")
    into[name] = read()


def _alignment(told: dict[str, Value]) -> int:
    alignment = told.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise ValueError(f"its general.alignment is {_short(alignment)}, and should be a power of two")
    return alignment


def _placed(
    listed: dict[str, tuple[tuple[int, ...], int, int]], header: int, alignment: int, size: int
) -> dict[str, _Tensor]:
    """The tensors with their places in the file: known types, one behind the other, all of them within."""
    begin = -(-header // alignment) * alignment
    placed = {}
    for name, (shape, kind, offset) in listed.items():
        known = _type(name, kind)
        block, bytes_ = _package().GGML_QUANT_SIZES[known]
        if 0 in shape or shape[-1] % block:
            raise ValueError(
                f"{_short(name)} has no possible shape: {list(shape)}, in blocks of {block} ({known.name})"
            )
        placed[name] = _Tensor(known, shape, begin + offset, math.prod(shape) // block * bytes_)
        if placed[name].offset + placed[name].size > size:
            raise ValueError(
                f"cut short: {_short(name)}, {known.name} {list(shape)}, ends at byte "
                f"{placed[name].offset + placed[name].size:,} of {size:,}"
            )
    order = sorted(placed, key=lambda name: placed[name].offset)
    for before, name in pairwise(order):
        if placed[name].offset < placed[before].offset + placed[before].size:
            raise ValueError(f"{_short(before)} and {_short(name)} overlap")
    return placed


def _type(name: str, number: int) -> IntEnum:
    """A type of weights that `gguf` can dequantise: it is tried with one block of zeros."""
    gguf = _package()
    try:
        kind: IntEnum = gguf.GGMLQuantizationType(number)
        gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise ValueError(f"{_short(name)} is of a type that cannot be dequantised: {error}") from None
    return kind


def _short(value: object) -> str:
    """A value in a message, however long it is."""
    return shorten(repr(value[:80] if isinstance(value, str | list | np.ndarray) else value), 100)


def _config(file: _File) -> ModelConfig:
    """The decoder that the settings describe."""
    _refuse_what_it_has_not(file)
    if "token_embd.weight" not in file.tensors:
        raise ValueError("it lacks the tensor token_embd.weight")
    vocab_size = file.tensors["token_embd.weight"].shape[0]
    if (told := file.get("llama.vocab_size", int)) not in (None, vocab_size):
        raise ValueError(f"llama.vocab_size is {told}, and there are {vocab_size} embeddings")
    pad = _id(file, "padding")
    base = file.get("llama.rope.freq_base", float)
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
        bias=any(name.endswith(".bias") for name in file.tensors),
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
        raise ValueError(f"llama.rope.dimension_count is {turned}, and heads are {d_k} wide: Regard turns them whole")
    return config


def _refuse_what_it_has_not(file: _File) -> None:
    """A ValueError for a setting or a tensor that would make it another model than Regard's."""
    if file.get("general.type", str) not in (None, "model"):
        raise ValueError(f"its general.type is {_short(file.settings['general.type'])}, and Regard reads 'model' alone")
    if file.get("split.count", int) not in (None, 0, 1):
        raise ValueError("one part of a model in several files: join them first (llama-gguf-split --merge)")
    if "rope_freqs.weight" in file.tensors:
        raise ValueError("its rotary positions are scaled (rope_freqs.weight), and Regard's are not")
    for name, value in file.settings.items():
        key = name.removeprefix("llama.")
        if key == name or key in READ | IGNORED:
            continue
        if isinstance(value, list | np.ndarray) or value not in NEUTRAL.get(key, ()):
            raise ValueError(f"{_short(name)} is {_short(value)}: Regard's model has no such part")


def _theirs(ours: str) -> str:
    """Their name of one of our tensors."""
    module, part = ours.rsplit(".", 1)
    layer = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", module)
    places = PLACES_IN_LAYER if layer else PLACES
    theirs = {place: name for name, place in places.items()}[layer[2] if layer else module]
    return f"blk.{layer[1]}.{theirs}.{part}" if layer else f"{theirs}.{part}"


def _weight(file: _File, name: str, shape: tuple[int, ...], config: ModelConfig) -> Float[Tensor, "..."]:
    """One tensor in float32, as our model has it."""
    if name not in file.tensors:  # a bias
        return torch.zeros(shape)
    tensor = file.tensors[name]
    raw = file.data[tensor.offset : tensor.offset + tensor.size].reshape(*tensor.shape[:-1], -1)
    with np.errstate(all="ignore"):  # a scale may be infinite, which is for those who use the model to see
        weight = torch.tensor(_package().quants.dequantize(raw, tensor.kind))
    _, _, groups = config.widths
    heads = {"attn_q": config.heads, "attn_k": groups}.get(name.split(".")[-2])
    return weight if heads is None else _in_halves(weight, heads)


def _in_halves(weight: Float[Tensor, "HD *C"], heads: int) -> Float[Tensor, "HD *C"]:
    """llama.cpp turns neighbouring dimensions of a head, Regard one of its first half with one of its second:
    the rows that make queries and keys are put in our order."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])  # [H, D / 2, 2, *C]
    return pairs.transpose(1, 2).reshape(weight.shape)  # [H, 2, D / 2, *C] → [HD, *C]


def _origin(file: _File) -> dict[str, Any]:
    """Where the model is from, as far as the file says."""
    told = {key: file.settings.get(f"general.{key}") for key in ("name", "organization", "license")}
    types = sorted({tensor.kind.name for tensor in file.tensors.values()})
    return {"file": file.path.name, "types": types} | {key: text for key, text in told.items() if isinstance(text, str)}


def _special_ids(file: _File) -> SpecialIds:
    """What ends a text, and a turn of a dialogue."""
    ends = [_id(file, role) for role in ("eos", "eot")]
    return SpecialIds(end=tuple(dict.fromkeys(id_ for id_ in ends if id_ is not None)))


def _id(file: _File, role: str) -> int | None:
    """A special token's id; SentencePiece's first three if nothing is said."""
    usual = {"unknown": 0, "bos": 1, "eos": 2} if file.get("tokenizer.ggml.model", str) == "llama" else {}
    told = file.get(f"tokenizer.ggml.{role}_token_id", int)
    id_, vocab_size = usual.get(role) if told is None else told, file.tensors["token_embd.weight"].shape[0]
    if id_ is not None and not 0 <= id_ < vocab_size:
        raise ValueError(f"the id {id_} of its {role} token is outside the vocabulary of {vocab_size} ids")
    return id_


def _tokenizer(file: _File, vocab_size: int) -> Tokenizer | None:
    """The tokenizer that the settings describe, if they do."""
    kind = file.get("tokenizer.ggml.model", str)
    if kind is None:
        return None
    if kind not in ("gpt2", "llama"):
        raise ValueError(f"tokenizer.ggml.model is {_short(kind)}: Regard reads gpt2 and llama")
    tokens, types = _vocabulary(file, vocab_size)
    # What a file does not say, llama.cpp decides by the kind of tokenizer.
    before = _around(file, "bos", usual=kind == "llama" or file.get("tokenizer.ggml.pre", str) == "llama-bpe")
    after = _around(file, "eos", usual=False)
    try:
        engine = _byte_level(file, tokens) if kind == "gpt2" else _sentence_piece(file, tokens, types)
        engine.add_tokens(_added(tokens, types))
        tokenizer = Tokenizer(engine, _settings(file, tokens))
        return tokenizer.frame(before, after) if before or after else tokenizer
    except BaseException as error:  # the library raises nothing narrower, and panics beside Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | ValueError):
            raise
        raise ValueError(f"its tokenizer cannot be made: {error}") from error


def _added(tokens: list[str], types: Sequence[int]) -> list[AddedToken]:
    """The tokens that are found whole in a text, or only by their ids."""
    return [
        AddedToken(token, special=type_ != USER_DEFINED, normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in (CONTROL, UNKNOWN, USER_DEFINED)
    ]


def _around(file: _File, role: str, usual: bool) -> tuple[int, ...]:
    """The special id on one side of every text, where there is to be one."""
    told = file.get(f"tokenizer.ggml.add_{role}_token", bool)
    if not (usual if told is None else told):
        return ()
    id_ = _id(file, role)
    if id_ is None:
        raise ValueError(f"every text is to have a {role} token, and there is no tokenizer.ggml.{role}_token_id")
    return (id_,)


def _settings(file: _File, tokens: list[str]) -> dict[str, Any]:
    """What a `tokenizer_config.json` would hold."""
    ids = {name: _id(file, role) for role, name in ROLES.items()}
    template = file.get("tokenizer.chat_template", str)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: tokens[id_] for name, id_ in ids.items() if id_ is not None},
        "clean_up_tokenization_spaces": False,
        **({} if template is None else {"chat_template": template}),
    }


def _vocabulary(file: _File, vocab_size: int) -> tuple[list[str], Sequence[int]]:
    """The tokens and their types."""
    tokens = file.need("tokenizer.ggml.tokens", list)
    types = file.get("tokenizer.ggml.token_type", np.ndarray)
    if len(tokens) != vocab_size or (types is not None and len(types) != vocab_size):
        told = "no" if types is None else len(types)
        raise ValueError(f"{len(tokens):,} tokens with {told} types, and the model has {vocab_size:,} embeddings")
    token, times = Counter(tokens).most_common(1)[0]
    if times > 1:
        raise ValueError(f"the token {_short(token)} is there {times:,} times")
    return tokens, [NORMAL] * vocab_size if types is None else types.tolist()


def _byte_level(file: _File, tokens: list[str]) -> Engine:
    """GPT-2's way: cut, write bytes as characters, merge in the order in which merges were learnt."""
    pre = file.get("tokenizer.ggml.pre", str) or "default"
    if pre not in CUTS:
        raise ValueError(f"tokenizer.ggml.pre is {_short(pre)}: Regard knows {', '.join(CUTS)}")
    if file.get("tokenizer.ggml.add_space_prefix", bool):
        raise ValueError(
            "tokenizer.ggml.add_space_prefix is set for byte-level BPE, which Regard and llama.cpp have not"
        )
    merges = file.need("tokenizer.ggml.merges", list)
    if wrong := [merge for merge in merges if merge.count(" ") != 1]:
        raise ValueError(f"a merge is of two tokens, and {_short(wrong[0])} is not")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    engine = Engine(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre == "llama-bpe"))
    cuts = [pre_tokenizers.Split(Regex(cut), "isolated") for cut in CUTS[pre]]
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    engine.decoder = decoders.ByteLevel()
    return engine


def _sentence_piece(file: _File, tokens: list[str], types: Sequence[int]) -> Engine:
    """SentencePiece's BPE: spaces are ▁, any two pieces merge if they make one, those of the best score first."""
    scores = file.need("tokenizer.ggml.scores", np.ndarray)
    if len(scores) != len(tokens) or not np.isfinite(scores).all():
        raise ValueError(f"{len(scores):,} scores, some perhaps not finite, for {len(tokens):,} tokens")
    pieces = {tokens[i]: (-score, i) for i, score in enumerate(scores.tolist()) if types[i] == NORMAL}
    vocabulary, unknown = {token: i for i, token in enumerate(tokens)}, tokens[_id(file, "unknown") or 0]
    model = models.BPE(vocab=vocabulary, merges=_merges(pieces), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    engine = Engine(model)
    prefix = file.get("tokenizer.ggml.add_space_prefix", bool) is not False
    spaces = normalizers.Replace(" ", "▁")
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces] if prefix else [spaces])
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    engine.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)] if prefix else back)
    return engine


def _merges(pieces: dict[str, tuple[float, int]]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, by the made piece's rank, then by the others'."""
    if sum(len(piece) ** 2 for piece in pieces) > 10**9:
        raise ValueError("its tokens are too long to be words")
    found = [
        (rank, pieces[piece[:cut]][1], pieces[piece[cut:]][1], piece[:cut], piece[cut:])
        for piece, rank in pieces.items()
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    return [(left, right) for *_, left, right in sorted(found)]
