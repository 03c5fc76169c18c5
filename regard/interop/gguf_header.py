"""Reading the header of a GGUF file; every number is validated before it is used.

A GGUF file contains the number of tensors and settings, the settings, the name, shape, type and offset of each tensor,
and the data. The package `gguf` defines the types and dequantises, but its reader does not validate the file.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, TypeVar

import numpy as np
from jaxtyping import UInt8

from regard.errors import RegardError
from regard.formatting import shorten
from regard.rounding import round_up
from regard.untrusted_files import is_regular_file

MAX_HEADER_BYTES = 64_000_000
"""Maximum size of a header. A large vocabulary takes 15 million bytes."""
MAX_SETTINGS, MAX_TENSORS = 10_000, 100_000
"""Limits far above the counts of the largest models."""

SettingValue = str | bool | int | float | list[str] | np.ndarray
"""The value of a setting; numeric arrays are numpy arrays."""
T = TypeVar("T")
V = TypeVar("V")

STRING_TYPE, ARRAY_TYPE = 8, 9
NUMBER_DTYPES = {
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
"""The numpy type of each numeric setting type, by its number in the file."""


def gguf_package() -> ModuleType:
    """Import the package `gguf`; raise RegardError with the command to install it if it is missing."""
    try:
        import gguf
    except ImportError as error:
        raise RegardError("reading GGUF files requires the package gguf: pip install 'regard[interop]'") from error
    return gguf


@dataclass(frozen=True)
class TensorInfo:
    """The type, shape and position of a tensor in a file."""

    kind: IntEnum
    shape: tuple[int, ...]
    offset: int
    """Position in the file, in bytes."""
    size: int
    """Size in bytes."""

    @property
    def end(self) -> int:
        """Position of the first byte after the tensor."""
        return self.offset + self.size


@dataclass(frozen=True)
class GgufFile:
    """The settings of a file and the positions of its tensors, whose data is not read yet."""

    path: Path
    settings: dict[str, SettingValue]
    tensors: dict[str, TensorInfo]

    def read(self, name: str) -> UInt8[np.ndarray, " bytes"]:
        """Read the data of a tensor. It is copied rather than mapped, so later changes of the file have no effect."""
        tensor = self.tensors[name]
        with self.path.open("rb") as file:
            file.seek(tensor.offset)
            content = file.read(tensor.size)
        if len(content) != tensor.size:
            raise RegardError(f"{self.path} is truncated: it changed while it was being read")
        return np.frombuffer(content, np.uint8)

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return a setting, or None if it is missing; raise RegardError if it has another type."""
        value = self.settings.get(key)
        if value is not None and type(value) is not kind:
            raise RegardError(f"{key} has type {type(value).__name__}: expected {kind.__name__}")
        return value

    def need(self, key: str, kind: type[T]) -> T:
        """Return a required setting."""
        value = self.get(key, kind)
        if value is None:
            raise RegardError(f"the setting {key} is missing")
        return value


class _HeaderReader:
    """Reads the header of a file piece by piece, never beyond its end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.position = file, size, 0

    def take(self, count: int) -> UInt8[np.ndarray, " count"]:
        start, self.position = self.position, self.position + count
        if self.position > self.size:
            raise RegardError(f"the file is truncated: {count:,} bytes are expected at byte {start:,} of {self.size:,}")
        if self.position > MAX_HEADER_BYTES:
            raise RegardError(f"the header is longer than {MAX_HEADER_BYTES:,} bytes")
        content = self.file.read(count)
        if len(content) != count:
            raise RegardError("the file is truncated: it changed while it was being read")
        return np.frombuffer(content, np.uint8)

    def number(self, form: str) -> int:
        return int(struct.unpack(f"<{form}", self.take(struct.calcsize(form)).tobytes())[0])

    def text(self) -> str:
        start = self.position
        try:
            return self.take(self.number("Q")).tobytes().decode()
        except UnicodeDecodeError:
            raise RegardError(f"the string at byte {start:,} is not UTF-8") from None

    def numbers(self, kind: int, count: int) -> np.ndarray:
        if kind not in NUMBER_DTYPES:
            raise RegardError(f"a setting before byte {self.position:,} has the unknown type {kind}")
        dtype = np.dtype(NUMBER_DTYPES[kind])
        return self.take(count * dtype.itemsize).view(dtype)

    def value(self) -> SettingValue:
        """Read the type of a setting, then its value."""
        kind = self.number("I")
        if kind == STRING_TYPE:
            return self.text()
        if kind != ARRAY_TYPE:
            return self.numbers(kind, 1)[0].item()  # type: ignore[no-any-return]
        inner, count = self.number("I"), self.number("Q")
        if inner == ARRAY_TYPE:
            raise RegardError(f"the array before byte {self.position:,} contains arrays, which Regard does not support")
        if inner != STRING_TYPE:
            return self.numbers(inner, count)
        if count * 8 > self.size - self.position:  # each string is preceded by its length
            raise RegardError(
                f"the file is truncated: {count:,} strings are expected at byte {self.position:,} of {self.size:,}"
            )
        return [self.text() for _ in range(count)]

    def tensor(self) -> tuple[tuple[int, ...], int, int]:
        """Read the shape of a tensor, outermost dimension first, its type and its offset."""
        dimensions = self.number("I")
        if not 1 <= dimensions <= 4:
            raise RegardError(f"a tensor has {dimensions:,} dimensions, but should have 1 to 4")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        return shape[::-1], self.number("I"), self.number("Q")


def open_gguf(path: Path) -> GgufFile:
    """Read and validate the header of a file, but none of its weights."""
    if not is_regular_file(path):
        raise RegardError("no such file")
    if path.stat().st_size < 24:
        raise RegardError(f"not a GGUF file: it has {path.stat().st_size} bytes, fewer than the 24 of a header")
    with path.open("rb") as file:
        return _parsed(path, _HeaderReader(file, path.stat().st_size))


def _parsed(path: Path, header: _HeaderReader) -> GgufFile:
    tensor_count, setting_count = _read_counts(header)
    settings: dict[str, SettingValue] = {}
    for _ in range(setting_count):
        _add_unique(settings, header.text(), header.value, "setting")
    architecture = settings.get("general.architecture")
    if not isinstance(architecture, str) or architecture != "llama":
        raise RegardError(f"general.architecture is {short_repr(architecture)}, but Regard reads only 'llama'")
    tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(tensor_count):
        _add_unique(tensors, header.text(), header.tensor, "tensor")
    return GgufFile(path, settings, _locate(tensors, header.position, _alignment(settings), header.size))


def _read_counts(header: _HeaderReader) -> tuple[int, int]:
    """Read the number of tensors and of settings."""
    if (magic := header.take(4).tobytes()) != b"GGUF":
        raise RegardError(f"not a GGUF file: it begins with {magic!r}")
    version = header.number("I")
    if version & 0xFFFF == 0:
        raise RegardError("the file is big-endian: convert it to little-endian with gguf-convert-endian")
    if version not in (2, 3):
        raise RegardError(f"GGUF version {version} is not supported; Regard reads versions 2 and 3")
    tensors, settings = header.number("Q"), header.number("Q")
    if tensors > MAX_TENSORS or settings > MAX_SETTINGS:
        raise RegardError(
            f"{tensors:,} tensors and {settings:,} settings exceed the limits of {MAX_TENSORS:,} and {MAX_SETTINGS:,}"
        )
    return tensors, settings


def _add_unique(values: dict[str, V], name: str, read: Callable[[], V], what: str) -> None:
    """Read a named value. A duplicate is refused, because readers differ in which one they use."""
    if name in values:
        raise RegardError(f"the {what} {short_repr(name)} is given twice")
    values[name] = read()


def _alignment(settings: dict[str, SettingValue]) -> int:
    alignment = settings.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise RegardError(f"general.alignment is {short_repr(alignment)}, but should be a power of two")
    return alignment


def _locate(
    tensors: dict[str, tuple[tuple[int, ...], int, int]], header_size: int, alignment: int, file_size: int
) -> dict[str, TensorInfo]:
    """Check the types and offsets of the tensors: they must not overlap and must end within the file."""
    data_start = round_up(header_size, alignment)
    located: dict[str, TensorInfo] = {}
    for name, (shape, kind, offset) in tensors.items():
        quantization = _quantization_type(name, kind)
        block, block_bytes = gguf_package().GGML_QUANT_SIZES[quantization]
        if 0 in shape or shape[-1] % block:
            raise RegardError(
                f"{short_repr(name)} has the impossible shape {list(shape)}, in blocks of {block} ({quantization.name})"
            )
        located[name] = TensorInfo(quantization, shape, data_start + offset, math.prod(shape) // block * block_bytes)
        if located[name].end > file_size:
            raise RegardError(
                f"the file is truncated: {short_repr(name)}, {quantization.name} {list(shape)}, ends at byte "
                f"{located[name].end:,} of {file_size:,}"
            )
    by_offset = sorted(located, key=lambda name: located[name].offset)
    for name, following in pairwise(by_offset):
        if located[following].offset < located[name].end:
            raise RegardError(f"{short_repr(name)} and {short_repr(following)} overlap")
    return located


def _quantization_type(name: str, number: int) -> IntEnum:
    """Return the type of a tensor; raise RegardError if `gguf` cannot dequantise a block of zeros of that type."""
    gguf = gguf_package()
    try:
        kind: IntEnum = gguf.GGMLQuantizationType(number)
        gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise RegardError(f"{short_repr(name)} has a type that cannot be dequantised: {error}") from None
    return kind


def short_repr(value: object) -> str:
    """Return a value for an error message, shortened if it is long."""
    return shorten(repr(value[:80] if isinstance(value, str | list | np.ndarray) else value), 100)
