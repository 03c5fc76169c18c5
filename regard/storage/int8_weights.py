"""Weights in int8: each matrix as integers from -127 to 127, with one scale per output channel.

A matrix `NAME` is stored as two tensors: `NAME` in int8, and `NAME_scale` in float32 with a number for each row. A row
is an output channel of a linear layer or the embedding of a token. Its weights are its integers times its scale.
Vectors (biases, norms) stay in float32.

Dimensions: O output channels, I input channels.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from regard.errors import RegardError
from regard.storage.weights import Weights, round_weights

INT8 = "int8"
MAX_CODE = 127
"""Largest integer that stands for a weight; -128 is not used, so that the range is symmetric."""
SCALE_BITS = 16
"""Significant bits of a scale. Its product with any 8-bit integer is then exact in float32, which has 24 bits: reading
gives the same weights on every machine, and quantising them again gives the same integers and scales."""
MIN_SCALE = 2.0**-120
"""Smallest scale that is written, also for a row of zeros."""
MAX_SCALE = 2.0**120
"""Largest scale that is written or read: its product with any 8-bit integer is finite in float32."""


def quantise_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file in int8: integers and scales of the matrices, and all other tensors in float32."""
    stored = {}
    for name, tensor in round_weights(tensors, "float32").items():
        if tensor.dim() != 2:
            stored[name] = tensor
            continue
        too_large = tensor[~(tensor.abs() <= MAX_CODE * MAX_SCALE)]  # also NaN
        if len(too_large):
            raise RegardError(
                f"{name} contains {float(too_large[0]):.3g}, which int8 cannot hold: choose another dtype"
            )
        stored[name], stored[scale_name(name)] = quantise(tensor)
    return stored


def quantise(matrix: Float[Tensor, "O I"]) -> tuple[Int8[Tensor, "O I"], Float[Tensor, " O"]]:
    """The integers and scales of a matrix: the largest weight of each row becomes 127 or -127."""
    mantissa, exponent = torch.frexp(matrix.detach().abs().amax(1) / MAX_CODE)  # [O]
    rounded_up = (mantissa * 2**SCALE_BITS).ceil() / 2**SCALE_BITS
    scales = torch.ldexp(rounded_up, exponent).clamp(min=MIN_SCALE)  # [O]
    return (matrix.detach() / scales[:, None]).round().to(torch.int8), scales


def int8_matrices(weights: Weights, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The names of the matrices that a file stores in int8."""
    return [
        name
        for name, shape in shapes.items()
        if len(shape) == 2 and name in weights.entries and weights.entries[name].dtype == "I8"
    ]


def scale_shapes(shapes: Mapping[str, tuple[int, ...]], names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The scales that a file must contain for these matrices, with their shapes."""
    return {scale_name(name): shapes[name][:1] for name in names}


def scale_name(name: str) -> str:
    """The name of the scales of a matrix."""
    return f"{name}_scale"


def dequantise(tensors: dict[str, Tensor], names: Iterable[str], where: Path) -> None:
    """Replace the integers of these matrices, read as float32, by the weights, and remove the scales."""
    for name in names:
        scales = tensors.pop(scale_name(name))  # [O]
        invalid = scales[~((scales > 0) & (scales <= MAX_SCALE))]  # also NaN
        if len(invalid):
            raise RegardError(
                f"{where}: {scale_name(name)} contains {float(invalid[0]):.3g}; a scale must be positive and at most "
                f"{MAX_SCALE:.3g}"
            )
        tensors[name].mul_(scales[:, None])


def int8_changes(tensors: Mapping[str, Tensor]) -> bool:
    """Whether storing these tensors in int8 changes any of them."""
    stored = {name: tensor.float() for name, tensor in quantise_weights(tensors).items()}
    dequantise(stored, [name for name in tensors if scale_name(name) in stored], Path())
    return any(not torch.equal(stored[name].to(tensor.dtype), tensor) for name, tensor in tensors.items())
