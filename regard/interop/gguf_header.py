"""The header of a GGUF file, read with suspicion: each number is checked before it is used.

A file of this kind is: how many tensors and settings there are; the settings; each tensor's name, shape, type and
place; the bytes. The package `gguf` knows the types and takes quantisation back, but its reader believes what a file
says.
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
from regard.untrusted_files import is_there

MAX_HEADER = 64_000_000
"""bytes of a header: a large vocabulary takes fifteen million"""
MAX_SETTINGS, MAX_TENSORS = 10_000, 100_000
"""many times what the largest models have"""

Value = str | bool | int | float | list[str] | np.ndarray
"""one setting; an array of numbers is numpy's"""
T = TypeVar("T")
V = TypeVar("V")

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


def package() -> ModuleType:
    """The package `gguf`, or a ValueError that says how to have it."""
    try:
        import gguf
    except ImportError as error:
        raise RegardError("a GGUF file is read with the package gguf: pip install 'regard[interop]'") from error
    return gguf


@dataclass(frozen=True)
class Listed:
    """A tensor's type, shape and place."""

    kind: IntEnum
    shape: tuple[int, ...]
    offset: int
    size: int
    """bytes"""


@dataclass(frozen=True)
class GgufFile:
    """What a file holds: its settings, and where its tensors are, none of which has been read."""

    path: Path
    settings: dict[str, Value]
    tensors: dict[str, Listed]

    def read(self, name: str) -> UInt8[np.ndarray, " bytes"]:
        """The bytes of a tensor, read and not mapped: a file that is cut or changed later changes nothing."""
        tensor = self.tensors[name]
        with self.path.open("rb") as file:
            file.seek(tensor.offset)
            content = file.read(tensor.size)
        if len(content) != tensor.size:
            raise RegardError(f"{self.path} is cut short: it was changed while it was read")
        return np.frombuffer(content, np.uint8)

    def get(self, key: str, kind: type[T]) -> T | None:
        """A setting, which must be of this type if it is there."""
        value = self.settings.get(key)
        if value is not None and type(value) is not kind:
            raise RegardError(f"{key} is a {type(value).__name__}, and should be a {kind.__name__}")
        return value

    def need(self, key: str, kind: type[T]) -> T:
        """A setting that must be there."""
        value = self.get(key, kind)
        if value is None:
            raise RegardError(f"it lacks the setting {key}")
        return value


class _Header:
    """A file's beginning, taken piece by piece and never beyond its end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.at = file, size, 0

    def take(self, count: int) -> UInt8[np.ndarray, " taken"]:
        start, self.at = self.at, self.at + count
        if self.at > self.size:
            raise RegardError(f"cut short: {count:,} bytes are wanted at byte {start:,} of {self.size:,}")
        if self.at > MAX_HEADER:
            raise RegardError(f"its header goes on beyond {MAX_HEADER:,} bytes")
        content = self.file.read(count)
        if len(content) != count:
            raise RegardError("cut short: it was changed while it was read")
        return np.frombuffer(content, np.uint8)

    def number(self, form: str) -> int:
        return int(struct.unpack(f"<{form}", self.take(struct.calcsize(form)).tobytes())[0])

    def text(self) -> str:
        start = self.at
        try:
            return self.take(self.number("Q")).tobytes().decode()
        except UnicodeDecodeError:
            raise RegardError(f"the text at byte {start:,} is not UTF-8") from None

    def numbers(self, kind: int, count: int) -> np.ndarray:
        if kind not in NUMBERS:
            raise RegardError(f"a setting before byte {self.at:,} is of the unknown type {kind}")
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
            raise RegardError(
                f"there are arrays in the array before byte {self.at:,}, which no setting of a model needs"
            )
        if inner != TEXT:
            return self.numbers(inner, count)
        if count * 8 > self.size - self.at:  # each has its length before it
            raise RegardError(f"cut short: {count:,} texts are wanted at byte {self.at:,} of {self.size:,}")
        return [self.text() for _ in range(count)]

    def tensor(self) -> tuple[tuple[int, ...], int, int]:
        """A tensor's shape, outermost dimension first; its type; its place."""
        dimensions = self.number("I")
        if not 1 <= dimensions <= 4:
            raise RegardError(f"a tensor has {dimensions:,} dimensions: 1 to 4 are possible")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        return shape[::-1], self.number("I"), self.number("Q")


def open_gguf(path: Path) -> GgufFile:
    """A file whose every number has been checked, and none of whose weights has been read."""
    if not is_there(path):
        raise RegardError("there is no such file")
    if path.stat().st_size < 24:
        raise RegardError(f"no GGUF file: it has {path.stat().st_size} bytes, and a header alone has 24")
    with path.open("rb") as file:
        return _parsed(path, _Header(file, path.stat().st_size))


def _parsed(path: Path, header: _Header) -> GgufFile:
    tensors, settings = _beginning(header)
    told: dict[str, Value] = {}
    for _ in range(settings):
        _once(told, header.text(), header.value, "setting")
    architecture = told.get("general.architecture")
    if not isinstance(architecture, str) or architecture != "llama":
        raise RegardError(f"its general.architecture is {short(architecture)}, and Regard reads 'llama' alone")
    listed: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(tensors):
        _once(listed, header.text(), header.tensor, "tensor")
    return GgufFile(path, told, _placed(listed, header.at, _alignment(told), header.size))


def _beginning(header: _Header) -> tuple[int, int]:
    """The number of tensors and of settings."""
    if (magic := header.take(4).tobytes()) != b"GGUF":
        raise RegardError(f"no GGUF file: it begins with {magic!r}")
    version = header.number("I")
    if version & 0xFFFF == 0:
        raise RegardError("a big-endian file: Regard reads little-endian ones alone (gguf-convert-endian turns it)")
    if version not in (2, 3):
        raise RegardError(f"GGUF of version {version}, and Regard reads 2 and 3")
    tensors, settings = header.number("Q"), header.number("Q")
    if tensors > MAX_TENSORS or settings > MAX_SETTINGS:
        raise RegardError(
            f"{tensors:,} tensors and {settings:,} settings: {MAX_TENSORS:,} and {MAX_SETTINGS:,} are the most"
        )
    return tensors, settings


def _once(into: dict[str, V], name: str, read: Callable[[], V], what: str) -> None:
    """Put in what comes next under its name; one given twice is refused, because readers differ in which they take."""
    if name in into:
        raise RegardError(f"the {what} {short(name)} is given twice")
    into[name] = read()


def _alignment(told: dict[str, Value]) -> int:
    alignment = told.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise RegardError(f"its general.alignment is {short(alignment)}, and should be a power of two")
    return alignment


def _placed(
    listed: dict[str, tuple[tuple[int, ...], int, int]], header: int, alignment: int, size: int
) -> dict[str, Listed]:
    """The tensors with their places in the file: known types, one behind the other, all of them within."""
    begin = -(-header // alignment) * alignment
    placed = {}
    for name, (shape, kind, offset) in listed.items():
        known = _type(name, kind)
        block, bytes_ = package().GGML_QUANT_SIZES[known]
        if 0 in shape or shape[-1] % block:
            raise RegardError(
                f"{short(name)} has no possible shape: {list(shape)}, in blocks of {block} ({known.name})"
            )
        placed[name] = Listed(known, shape, begin + offset, math.prod(shape) // block * bytes_)
        if placed[name].offset + placed[name].size > size:
            raise RegardError(
                f"cut short: {short(name)}, {known.name} {list(shape)}, ends at byte "
                f"{placed[name].offset + placed[name].size:,} of {size:,}"
            )
    order = sorted(placed, key=lambda name: placed[name].offset)
    for before, name in pairwise(order):
        if placed[name].offset < placed[before].offset + placed[before].size:
            raise RegardError(f"{short(before)} and {short(name)} overlap")
    return placed


def _type(name: str, number: int) -> IntEnum:
    """A type of weights that `gguf` can dequantise: it is tried with one block of zeros."""
    gguf = package()
    try:
        kind: IntEnum = gguf.GGMLQuantizationType(number)
        gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise RegardError(f"{short(name)} is of a type that cannot be dequantised: {error}") from None
    return kind


def short(value: object) -> str:
    """A value in a message, however long it is."""
    return shorten(repr(value[:80] if isinstance(value, str | list | np.ndarray) else value), 100)
