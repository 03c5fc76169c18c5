"""Reading and writing weights in safetensors files; every size is validated before anything is allocated.

A safetensors file consists of a length, a JSON header with the type, shape and offsets of each tensor, and the bytes.
The safetensors library trusts the numbers of the header and maps the file into memory; this module validates the
numbers and reads the bytes.
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
from regard.untrusted_files import (
    MAX_JSON_BYTES,
    is_pickle,
    is_regular_file,
    is_safe_relative_path,
    parse_json,
    read_json,
)

MAX_HEADER_BYTES = MAX_JSON_BYTES
"""Maximum size of a header; no supported model needs nearly as much."""

SAFETENSORS_DTYPES = {
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
"""Data types by their names in a header."""
WEIGHT_DTYPES = {"F64", "F32", "F16", "BF16"}
"""Data types of weights that are read, by their names in a header."""
WRITABLE_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Data types in which weights are written."""


@dataclass(frozen=True)
class TensorEntry:
    """The type, shape and position of one tensor in a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    """Position of its first byte in the file."""

    @property
    def size(self) -> int:
        """The number of bytes of the tensor in the file."""
        return math.prod(self.shape) * SAFETENSORS_DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Weights:
    """The tensors of a folder or file, by name.

    Tensors are read into memory and never mapped: later changes to the file have no effect, and a file that is
    truncated while it is read is an error. (A process that touches a mapped page that no longer exists is killed.)
    """

    where: Path
    entries: Mapping[str, TensorEntry]

    def read(self, name: str) -> Tensor:
        """Read one tensor, converted to float32."""
        entry = self.entries[name]
        with entry.file.open("rb") as file:
            file.seek(entry.offset)
            return _as_tensor(entry, _read(file, entry.size, entry.file))

    def read_all(self, sha256: str) -> dict[str, Tensor]:
        """Read all tensors of a single file in float32; raise a RegardError unless its bytes have this digest.

        The bytes that are used are the bytes that were verified, so a change between two reads cannot go unnoticed.
        """
        entries = sorted(self.entries.items(), key=lambda item: item[1].offset)
        (path,) = {entry.file for entry in self.entries.values()}
        sha, tensors = hashlib.sha256(), {}
        with path.open("rb") as file:
            sha.update(file.read(entries[0][1].offset))
            for name, entry in entries:  # there are no gaps: the header was validated
                content = _read(file, entry.size, path)
                sha.update(content.numpy().data)
                tensors[name] = _as_tensor(entry, content)
            sha.update(file.read(1))
        if sha.hexdigest() != sha256:
            raise RegardError(f"{path} is damaged: its SHA-256 differs from the manifest")
        return tensors


def _read(file: BinaryIO, size: int, path: Path) -> Tensor:
    """Read the next bytes of a file into a tensor, [size]."""
    content = torch.empty(size, dtype=torch.uint8)
    if size and file.readinto(content.numpy()) != size:  # type: ignore[attr-defined]  # BinaryIO lacks it
        raise RegardError(f"{path} is truncated: it was changed while it was read")
    return content


def _as_tensor(entry: TensorEntry, content: Tensor) -> Tensor:
    return content.view(SAFETENSORS_DTYPES[entry.dtype]).view(entry.shape).float()


def open_weights(folder: Path) -> Weights:
    """Open the weights of a folder: `model.safetensors`, or the files listed in `model.safetensors.index.json`."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if is_regular_file(single):
        return Weights(folder, read_header(single))
    if not is_regular_file(index):
        pickles = [file for file in sorted(folder.iterdir()) if file.is_file() and is_pickle(file)]
        if pickles:
            raise RegardError(pickle_refusal(_weights_first(pickles)[0]))
        raise RegardError(f"{folder} has no model.safetensors: weights are only read from safetensors and GGUF files")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise RegardError(f"{index} has no weight_map from names to files")
    files: dict[str, dict[str, TensorEntry]] = {}
    entries = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or not is_safe_relative_path(file) or "/" in file:
            raise RegardError(f"{index} lists the file {quoted(file)}: only files within the folder are read")
        if file not in files:
            header = read_header(folder / file)
            files[file] = {tensor: header[tensor] for tensor in header if weight_map.get(tensor) == file}
        if name not in files[file]:
            raise RegardError(f"{index} places {quoted(name)} in {file}, which has no such tensor")
        entries[name] = files[file][name]
    return Weights(folder, entries)


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Read and validate the header of a safetensors file; return its tensors by name."""
    if not is_regular_file(path):
        raise RegardError(f"{path} is missing")
    if is_pickle(path):
        raise RegardError(pickle_refusal(path))
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8 or length > MAX_HEADER_BYTES:
            raise RegardError(f"{path} is not a safetensors file, or truncated: header of {length:,} bytes in {size:,}")
        header = parse_json(file.read(length), path)
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise RegardError(f"{path}: __metadata__ must map names to strings")
    entries, spans = {}, []
    for name, description in header.items():
        entry, begin, end = _entry(path, name, description, 8 + length, size - 8 - length)
        entries[name] = entry
        spans.append((begin, end, name))
    reached = 0
    for begin, end, name in sorted(spans):
        if begin != reached:
            problem = f"starts at byte {begin:,} instead of {reached:,}: tensors overlap or leave a gap"
            raise RegardError(f"{path}: {quoted(name)} {problem}")
        reached = end
    if reached != size - 8 - length:
        raise RegardError(f"{path} is truncated or has extra bytes: {size - 8 - length:,} bytes for {reached:,}")
    return entries


def _entry(path: Path, name: str, description: object, start: int, room: int) -> tuple[TensorEntry, int, int]:
    """Validate one entry of a header: a known type, and a shape and offsets that match each other and the file, whose
    tensors occupy `room` bytes from `start` on."""
    what = f"{path}: {quoted(name)}"
    if not isinstance(description, dict) or set(description) != {"dtype", "shape", "data_offsets"}:
        raise RegardError(f"{what} must have exactly a dtype, a shape and data_offsets")
    dtype, shape, offsets = description["dtype"], description["shape"], description["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SAFETENSORS_DTYPES:
        raise RegardError(f"{what} has the unknown type {quoted(dtype)}")
    if not _whole_numbers(shape) or len(shape) > 8:
        raise RegardError(f"{what} has an impossible shape: {quoted(shape)}")
    if not _whole_numbers(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise RegardError(f"{what} is outside the file: {quoted(offsets)} of {room:,} bytes")
    size = offsets[1] - offsets[0]
    if math.prod(shape) * SAFETENSORS_DTYPES[dtype].itemsize != size:
        raise RegardError(f"{what} is {dtype} of shape {shape}, which does not take {size:,} bytes")
    return TensorEntry(path, dtype, tuple(shape), start + offsets[0]), offsets[0], offsets[1]


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**48 for number in value)


def round_weights(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """Convert tensors to one of `WRITABLE_DTYPES`; raise a RegardError if a number would become infinite."""
    return {name: _rounded(name, tensor, WRITABLE_DTYPES[dtype]) for name, tensor in tensors.items()}


def _rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    converted = tensor.to(dtype)
    if (overflowed := converted.isinf() & tensor.isfinite()).any():
        largest, maximum = float(tensor[overflowed].abs().max()), torch.finfo(dtype).max
        kind = next(name for name, writable in WRITABLE_DTYPES.items() if writable == dtype)
        raise RegardError(
            f"{name} contains {largest:.3g}, but the maximum of {kind} is {maximum:.3g}: choose another dtype"
        )
    return converted


def rounding_changes(tensors: Mapping[str, Tensor], dtype: str) -> bool:
    """Return whether conversion to one of `WRITABLE_DTYPES` changes any of the tensors."""
    return any(
        not torch.equal(tensor.to(WRITABLE_DTYPES[dtype]).to(tensor.dtype), tensor) for tensor in tensors.values()
    )


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 digest of weights and their names in float32, independent of device and file."""
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        sha.update(f"{name} {list(tensor.shape)}\n".encode())
        sha.update(tensor.detach().float().cpu().contiguous().numpy().data)
    return sha.hexdigest()


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, readable by everyone."""
    seen: set[int] = set()
    unshared = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        unshared[name] = tensor.clone() if memory in seen else tensor  # safetensors rejects shared memory
        seen.add(memory)
    save_file(unshared, path, {"format": "pt"})
    path.chmod(0o644)


def _weights_first(pickles: list[Path]) -> list[Path]:
    """Return the files that are named like weights, if any: a folder may also contain an optimizer's state."""
    return [file for file in pickles if file.name.startswith("pytorch_model")] or pickles


def pickle_refusal(path: Path) -> str:
    """Say why a pickle is not read, and give a command that converts it to safetensors without running its code."""
    parts = sorted(path.parent.glob("pytorch_model*.bin")) if path.name.startswith("pytorch_model-") else [path]
    convert = (
        "import sys, torch, safetensors.torch as s; "
        "s.save_file({n: x.contiguous().clone() for f in sys.argv[2:] "
        'for n, x in torch.load(f, "cpu", weights_only=True).items()}, sys.argv[1], {"format": "pt"})'
    )
    command = shlex.join(["python", "-c", convert, str(path.parent / "model.safetensors"), *map(str, parts)])
    return (
        f"{path} is a pickle, which can run arbitrary code when loaded; Regard never reads pickles. "
        f"To convert its tensors to safetensors:\n{command}"
    )
