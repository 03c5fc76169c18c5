"""Numbers that are the same for every solution: weights by the parameters' names, and inputs.

A solution draws its own weights in its own order; what probes compare must not depend on that.
"""

import zlib
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def known(module: Module) -> Module:
    """The module with weights that depend on their names and shapes alone, large enough that every part matters."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(drawn(name, *parameter.shape))
    return module


def inputs(*shape: int) -> Tensor:
    """The same draws for the same shape."""
    return drawn("inputs", *shape)


def drawn(name: str, *shape: int) -> Tensor:
    """Normal draws that a name and a shape settle."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {shape}".encode()))
    return torch.randn(*shape, generator=generator)
