"""Which engine decodes: PyTorch, C++ (`regard.decoding.cpu_engine`) or one that another package registers.

Compiling the C++ sources, once on each machine, takes seconds: it pays off for files and servers, not for a few texts.
"""

import warnings
from typing import Any, Literal

import torch

from regard.config import check_type
from regard.decoding.fast_copy import FastCopy, Precision
from regard.decoding.text_model import Model

DecodingEngine = Literal["auto", "pytorch", "compiled", "ctranslate2"]
"""`auto` is compiled where there is much to decode and the model, the device and the machine allow it."""


def quick_copy(
    model: Model, precision: Precision = "auto", engine: DecodingEngine = "auto", many: bool = True
) -> tuple[Model, str]:
    """A copy of the model for decoding, and a sentence that says with what it decodes and why.

    `many`: whether there is much to decode, as in a server.
    """
    check_type("engine", engine, DecodingEngine)
    if engine == "ctranslate2":
        return _described(model.quick(precision, engine="ctranslate2"))
    if engine == "compiled" or model.device.type != "cpu":
        return _described(model.quick(precision, compiled=engine == "compiled"))
    if engine == "pytorch" or not many:
        copy, description = _described(model.quick(precision))
        return copy, description if engine == "pytorch" else f"{description}: there are few texts"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copy, description = _described(model.quick(precision, compiled=True))
    notes = [str(warning.message) for warning in caught if "not compiled" in str(warning.message)]
    return copy, f"{description}: {notes[0]}" if notes else description


def _described(model: Model) -> tuple[Model, str]:
    engine = model.network.search_engine if isinstance(model.network, FastCopy) else None
    return model, f"decoding with {_engine_name(model.network) if engine is None else engine.name} on {model.device}"


def _engine_name(network: Any) -> str:
    """PyTorch, and the type in which a fast copy multiplies matrices."""
    output = getattr(network, "packed_output", None)
    dtype = getattr(output, "dtype", torch.int8 if output is not None else next(network.parameters()).dtype)
    return f"PyTorch in {str(dtype).removeprefix('torch.')}"
