"""Weights in safetensors files, read with suspicion: every size is checked before anything is allocated.

A file of this kind is a length, a JSON header that names each tensor with its type, shape and place, and the bytes.
The library that reads it trusts the header's numbers to fit each other; here they are made to.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

MAX_HEADER = 100_000_000
"""bytes of a header: the format's own limit"""
MAX_JSON = 64_000_000
"""bytes of a JSON file: a large vocabulary takes ten million"""

DTYPES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "U16": 2,
    "U32": 4,
    "U64": 8,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
"""bytes of one number of each type"""
REAL = {"F64", "F32", "F16", "BF16"}
"""types that weights may have"""


@dataclass(frozen=True)
class Entry:
    """One tensor of a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Weights:
    """The tensors of a folder or file, by name; read one at a time."""

    where: Path
    entries: Mapping[str, Entry]

    @cached_property
    def _open(self) -> dict[Path, Any]:
        return {}

    def read(self, name: str) -> Tensor:
        """The tensor, in float32 unless it is float64."""
        entry = self.entries[name]
        if entry.file not in self._open:
            self._open[entry.file] = safe_open(entry.file, framework="pt")
        tensor: Tensor = self._open[entry.file].get_tensor(name)
        return tensor if tensor.dtype == torch.float64 else tensor.float()


def open_weights(folder: Path) -> Weights:
    """The weights of a folder: `model.safetensors`, or the files that `model.safetensors.index.json` names."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if single.is_file():
        return Weights(folder, read_header(single))
    if not index.is_file():
        pickles = [file for file in sorted(folder.iterdir()) if file.is_file() and is_pickle(file)]
        if pickles:
            raise ValueError(pickle_refusal(pickles[0]))
        raise ValueError(f"{folder} has no model.safetensors: weights are read from safetensors and GGUF files alone")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index} has no weight_map from names to files")
    files = {}
    for file in sorted({str(name) for name in places.values()}):
        if Path(file).name != file or file in ("", ".", "..") or "\\" in file or not file.isprintable():
            raise ValueError(f"{index} names the file {file!r}: only names within the folder are read")
        files[file] = read_header(folder / file)
    entries = {}
    for name, file in places.items():
        if name not in files[str(file)]:
            raise ValueError(f"{index} places {name!r} in {file}, which has no such tensor")
        entries[name] = files[str(file)][name]
    return Weights(folder, entries)


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors that a safetensors file holds, after every number of its header has been checked."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    if is_pickle(path):
        raise ValueError(pickle_refusal(path))
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8 or length > MAX_HEADER:
            raise ValueError(f"{path} is no safetensors file, or cut short: a header of {length:,} bytes in {size:,}")
        header = parse_json(file.read(length), path)
    header.pop("__metadata__", None)
    entries, spans = {}, []
    for name, told in header.items():
        entry, begin, end = _entry(path, name, told, size - 8 - length)
        entries[name] = entry
        spans.append((begin, end, name))
    reached = 0
    for begin, end, name in sorted(spans):
        if begin != reached:
            raise ValueError(f"{path}: {name!r} starts at byte {begin:,} and not at {reached:,}: overlap, or a hole")
        reached = end
    if reached != size - 8 - length:
        raise ValueError(
            f"{path} is cut short or has more than its tensors: {size - 8 - length:,} bytes for {reached:,}"
        )
    return entries


def _entry(path: Path, name: str, told: object, room: int) -> tuple[Entry, int, int]:
    """One line of a header: its type known, its shape and place whole numbers that fit each other and the file."""
    if not isinstance(told, dict) or set(told) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{path}: {name!r} must have a dtype, a shape and data_offsets, and nothing else")
    dtype, shape, offsets = told["dtype"], told["shape"], told["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{path}: {name!r} has the unknown type {dtype!r}")
    if not _whole_numbers(shape) or len(shape) > 8:
        raise ValueError(f"{path}: {name!r} has no possible shape: {str(shape)[:80]}")
    if not _whole_numbers(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise ValueError(f"{path}: {name!r} lies outside the file: {str(offsets)[:80]} of {room:,} bytes")
    if math.prod(shape) * DTYPES[dtype] != offsets[1] - offsets[0]:
        held = offsets[1] - offsets[0]
        raise ValueError(f"{path}: {name!r} is {dtype} of shape {shape}, which does not take {held:,} bytes")
    return Entry(path, dtype, tuple(shape)), offsets[0], offsets[1]


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**48 for number in value)


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file that the group may read."""
    seen: set[int] = set()
    held = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        held[name] = tensor.clone() if memory in seen else tensor  # safetensors refuses tensors that share memory
        seen.add(memory)
    save_file(held, path, {"format": "pt"})
    path.chmod(0o644)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object, of a size and depth that one may expect."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    size = path.stat().st_size
    if size > MAX_JSON:
        raise ValueError(f"{path} has {size:,} bytes: {MAX_JSON:,} are the most that is read")
    return parse_json(path.read_bytes(), path)


def parse_json(text: bytes, path: Path) -> dict[str, Any]:
    """The object that the text holds; a name given twice is refused, because readers differ in which they take."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is given twice")
        return found

    try:
        value = json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be what it should be") from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, and should hold names and values")
    return value


def is_pickle(path: Path) -> bool:
    """Whether a file's content, whatever its name, is what torch or Python pickles: a zip, a tar or a bare pickle."""
    with path.open("rb") as file:
        start = file.read(265)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size:  # a safetensors header
        return False
    archive = start[:4] in (b"PK\x03\x04", b"PK\x05\x06") or start[257:262] == b"ustar"
    return archive or re.match(rb"\x80[\x02-\x05]|\([dl]p|c[\w.]+\n\w+\n", start) is not None


def pickle_refusal(path: Path) -> str:
    """Why a pickle is not read, and how the class that its config names writes it in another form."""
    folder, name = path.parent, "AutoModel"
    if (folder / "config.json").is_file():
        named = str(read_json(folder / "config.json").get("architectures") or name)
        name = next(iter(re.findall(r"\w+", named)), name)
    convert = f"from transformers import {name} as M; M.from_pretrained('{folder}').save_pretrained('{folder}')"
    return (
        f"{path} is a pickle, which can run any code when it is read, and Regard reads none. "
        f'If you trust it, convert it: python -c "{convert}"'
    )
