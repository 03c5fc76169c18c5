"""Weights in safetensors files, read with suspicion: every size is checked before anything is allocated.

A file of this kind is a length, a JSON header that names each tensor with its type, shape and place, and the bytes.
The library for such files trusts the header's numbers to fit each other, and maps the file into memory; here the
numbers are checked, and the bytes are read.
"""

import hashlib
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import RegardError
from regard.formatting import quoted
from regard.untrusted_files import MAX_JSON, is_there, parse_json, stays_within
from regard.untrusted_files import is_pickle as is_pickle  # for those who read weights
from regard.untrusted_files import read_json as read_json

MAX_HEADER = MAX_JSON
"""bytes of a header: far more than any model of our shapes needs"""

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""Types of numbers by the names that a header gives them."""
REAL = {"F64", "F32", "F16", "BF16"}
"""types that weights may have"""
FLOATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""the types in which weights are written"""


@dataclass(frozen=True)
class Entry:
    """One tensor of a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    """Position of its first byte in the file."""

    @property
    def size(self) -> int:
        """Its number of bytes in the file."""
        return math.prod(self.shape) * TYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Weights:
    """The tensors of a folder or file, by name.

    Tensors are read into memory of their own and never mapped: a file that is changed or cut later changes nothing, and
    one that is cut meanwhile is an error. (A process that touches a mapped page which is no longer there is killed.)
    """

    where: Path
    entries: Mapping[str, Entry]

    def read(self, name: str) -> Tensor:
        """The tensor, in float32 whatever the file holds: a model has one type."""
        entry = self.entries[name]
        with entry.file.open("rb") as file:
            file.seek(entry.offset)
            return _as_tensor(entry, _read(file, entry.size, entry.file))

    def read_all(self, sha256: str) -> dict[str, Tensor]:
        """All tensors of a single file, as `read`; a ValueError unless the bytes that were read have this digest.

        What is used is what was verified: a file that changes between two readings is noticed.
        """
        entries = sorted(self.entries.items(), key=lambda item: item[1].offset)
        (path,) = {entry.file for entry in self.entries.values()}
        found, tensors = hashlib.sha256(), {}
        with path.open("rb") as file:
            found.update(file.read(entries[0][1].offset))
            for name, entry in entries:  # without holes between them, or the header would have been refused
                content = _read(file, entry.size, path)
                found.update(content.numpy().data)
                tensors[name] = _as_tensor(entry, content)
            found.update(file.read(1))
        if found.hexdigest() != sha256:
            raise RegardError(f"{path} is damaged: its SHA-256 is not the manifest's")
        return tensors


def _read(file: BinaryIO, size: int, path: Path) -> Tensor:
    """The next bytes of a file, in memory that a tensor can own: [size]."""
    content = torch.empty(size, dtype=torch.uint8)
    if size and file.readinto(content.numpy()) != size:  # type: ignore[attr-defined]  # a file has it
        raise RegardError(f"{path} is cut short: it was changed while it was read")
    return content


def _as_tensor(entry: Entry, content: Tensor) -> Tensor:
    return content.view(TYPES[entry.dtype]).view(entry.shape).float()


def open_weights(folder: Path) -> Weights:
    """The weights of a folder: `model.safetensors`, or the files that `model.safetensors.index.json` names."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if is_there(single):
        return Weights(folder, read_header(single))
    if not is_there(index):
        pickles = [file for file in sorted(folder.iterdir()) if file.is_file() and is_pickle(file)]
        if pickles:
            raise RegardError(pickle_refusal(_weights_first(pickles)[0]))
        raise RegardError(f"{folder} has no model.safetensors: weights are read from safetensors and GGUF files alone")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise RegardError(f"{index} has no weight_map from names to files")
    files: dict[str, dict[str, Entry]] = {}
    entries = {}
    for name, file in places.items():
        if not isinstance(file, str) or not stays_within(file) or "/" in file:
            raise RegardError(f"{index} names the file {quoted(file)}: only names within the folder are read")
        if file not in files:
            held = read_header(folder / file)
            files[file] = {each: held[each] for each in held if places.get(each) == file}  # keeps no others
        if name not in files[file]:
            raise RegardError(f"{index} places {quoted(name)} in {file}, which has no such tensor")
        entries[name] = files[file][name]
    return Weights(folder, entries)


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors that a safetensors file holds, after every number of its header has been checked."""
    if not is_there(path):
        raise RegardError(f"{path} is missing")
    if is_pickle(path):
        raise RegardError(pickle_refusal(path))
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8 or length > MAX_HEADER:
            raise RegardError(f"{path} is no safetensors file, or cut short: a header of {length:,} bytes in {size:,}")
        header = parse_json(file.read(length), path)
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise RegardError(f"{path}: its __metadata__ must be texts by name")
    entries, spans = {}, []
    for name, told in header.items():
        entry, begin, end = _entry(path, name, told, 8 + length, size - 8 - length)
        entries[name] = entry
        spans.append((begin, end, name))
    reached = 0
    for begin, end, name in sorted(spans):
        if begin != reached:
            told = f"starts at byte {begin:,} and not at {reached:,}: overlap, or a hole"
            raise RegardError(f"{path}: {quoted(name)} {told}")
        reached = end
    if reached != size - 8 - length:
        raise RegardError(
            f"{path} is cut short or has more than its tensors: {size - 8 - length:,} bytes for {reached:,}"
        )
    return entries


def _entry(path: Path, name: str, told: object, start: int, room: int) -> tuple[Entry, int, int]:
    """One line of a header: its type known, its shape and place whole numbers that fit each other and the file, whose
    tensors lie in `room` bytes from `start` on."""
    what = f"{path}: {quoted(name)}"
    if not isinstance(told, dict) or set(told) != {"dtype", "shape", "data_offsets"}:
        raise RegardError(f"{what} must have a dtype, a shape and data_offsets, and nothing else")
    dtype, shape, offsets = told["dtype"], told["shape"], told["data_offsets"]
    if not isinstance(dtype, str) or dtype not in TYPES:
        raise RegardError(f"{what} has the unknown type {quoted(dtype)}")
    if not _whole_numbers(shape) or len(shape) > 8:
        raise RegardError(f"{what} has no possible shape: {quoted(shape)}")
    if not _whole_numbers(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise RegardError(f"{what} lies outside the file: {quoted(offsets)} of {room:,} bytes")
    held = offsets[1] - offsets[0]
    if math.prod(shape) * TYPES[dtype].itemsize != held:
        raise RegardError(f"{what} is {dtype} of shape {shape}, which does not take {held:,} bytes")
    return Entry(path, dtype, tuple(shape), start + offsets[0]), offsets[0], offsets[1]


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**48 for number in value)


def rounded(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """The tensors in one of `FLOATS`; a ValueError names one that would become infinite in it."""
    return {name: _rounded(name, tensor, FLOATS[dtype]) for name, tensor in tensors.items()}


def _rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    found = tensor.to(dtype)
    if (lost := found.isinf() & tensor.isfinite()).any():
        largest, most = float(tensor[lost].abs().max()), torch.finfo(dtype).max
        kind = next(name for name, each in FLOATS.items() if each == dtype)
        raise RegardError(f"{name} holds {largest:.3g}, and {kind} at most {most:.3g}: choose another dtype")
    return found


def rounds(tensors: Mapping[str, Tensor], dtype: str) -> bool:
    """Whether one of `FLOATS` changes any of the tensors."""
    return any(not torch.equal(tensor.to(FLOATS[dtype]).to(tensor.dtype), tensor) for tensor in tensors.values())


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of weights with their names, in float32 as they are loaded: whatever device or file holds them."""
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {list(tensor.shape)}\n".encode())
        found.update(tensor.detach().float().cpu().contiguous().numpy().data)
    return found.hexdigest()


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


def _weights_first(pickles: list[Path]) -> list[Path]:
    """The files with the usual name of weights, if there are any: an optimizer's state may lie beside them."""
    return [file for file in pickles if file.name.startswith("pytorch_model")] or pickles


def pickle_refusal(path: Path) -> str:
    """Why a pickle is not read, and the command that writes its tensors in another form, running no code of its own."""
    parts = sorted(path.parent.glob("pytorch_model*.bin")) if path.name.startswith("pytorch_model-") else [path]
    convert = (
        "import sys, torch, safetensors.torch as s; "
        "s.save_file({n: x.contiguous().clone() for f in sys.argv[2:] "
        'for n, x in torch.load(f, "cpu", weights_only=True).items()}, sys.argv[1], {"format": "pt"})'
    )
    command = shlex.join(["python", "-c", convert, str(path.parent / "model.safetensors"), *map(str, parts)])
    return (
        f"{path} is a pickle, which can run any code when it is read, and Regard reads none. "
        f"To have its tensors as safetensors:\n{command}"
    )
