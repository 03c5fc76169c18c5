"""Weights and inputs that are the same for every solution, and helpers for probes.

A solution draws its own weights in its own order. The values that probes compare must depend neither on that nor on
chance, so the weights are replaced by ones that depend only on names and shapes.
"""

import dis
import math
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.course.line_tracing import tracing_paused
from regard.course.observe import SOLUTION_MODULE
from regard.course.probe_remarks import remark

Module = TypeVar("Module", bound=nn.Module)


def set_weights(module: Module) -> Module:
    """Set a module's weights to values that depend only on their names and shapes. All parts have an effect."""
    with torch.no_grad():
        for name, parameter in parameters_of(module).items():
            parameter.copy_(seeded_normal(name, *parameter.shape))
    return module


def inputs(*shape: int) -> Tensor:
    """Normally distributed numbers, always the same for the same shape."""
    return seeded_normal("inputs", *shape)


def seeded_normal(name: str, *shape: int) -> Tensor:
    """Normally distributed numbers that depend only on a name and a shape; the same in float64 as in float32."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {shape}".encode()))
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(torch.get_default_dtype())


def set_weights_by_layer(module: Module, example: Tensor, needed: str, optional: str = "") -> Module:
    """Set weights by the names of a module's layers, such as "q k v", wherever else the layers are stored.

    `example` is an input, from which lazy layers get their sizes. Raises an AttributeError or TypeError that says which
    of the needed layers is missing.
    """
    expected = " ".join(f".{name}" for name in needed.split())
    for name in needed.split():
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no .{name}: the assignment asks for {expected}")
        if not isinstance(getattr(module, name), nn.Module):
            raise TypeError(f".{name} is not a layer: the assignment asks for {expected}, each an nn.Linear")
    initialise_lazy_layers(module, lambda: module(example))
    set_weights(module)
    done: set[int] = set()  # a layer with two names gets the weights of the first
    for name in f"{needed} {optional}".split():
        for kind, parameter in (("weight", weight_of(module, name)), ("bias", bias_of(module, name))):
            if parameter is not None and parameter.data_ptr() not in done:
                parameter.data.copy_(seeded_normal(f"{name}.{kind}", *parameter.shape))
                done.add(parameter.data_ptr())
    return module


def weight_of(module: nn.Module, layer: str) -> Tensor | None:
    """The weight matrix of a layer, which may be inside a container; None if there is none."""
    return next((parameter for parameter in _layer_parameters(module, layer) if parameter.ndim == 2), None)


def bias_of(module: nn.Module, layer: str) -> Tensor | None:
    """The bias of a layer, which may be inside a container; None if there is none."""
    return next((parameter for parameter in _layer_parameters(module, layer) if parameter.ndim == 1), None)


def _layer_parameters(module: nn.Module, layer: str) -> list[nn.Parameter]:
    attribute = getattr(module, layer, None)
    return list(parameters_of(attribute).values()) if isinstance(attribute, nn.Module) else []


def initialise_lazy_layers(module: nn.Module, call: Callable[[], Any]) -> None:
    """Let layers such as nn.LazyLinear get their sizes from a call. Layers that it does not use have none."""
    if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        with tracing_paused(), torch.no_grad():
            _succeeds(call)


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """A module's parameters by name, without those of lazy layers that have no size."""
    return {name: weight for name, weight in module.named_parameters() if not nn.parameter.is_lazy(weight)}


def first_output(result: Any) -> Any:
    """The first item of a tuple or list; any other result as it is."""
    return result[0] if isinstance(result, tuple | list) and result else result


def deterministic_output(call: Callable[[], Any]) -> Tensor:
    """The output of a call; NaN if two calls give different outputs."""
    once: Tensor = first_output(call())
    with tracing_paused():
        again: Tensor = first_output(call())
    if once.shape == again.shape and torch.allclose(once, again, equal_nan=True):
        return once
    return torch.full_like(once, math.nan, requires_grad=False)


def gradients(call: Callable[[], Any], **tensors: Tensor) -> dict[str, Tensor]:
    """The gradient of the sum of the squared output with respect to each tensor; zeros where there is none."""
    output = deterministic_output(call)
    if output.requires_grad:
        torch.autograd.backward(output.square().sum())
    return {name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for name, tensor in tensors.items()}


def is_refused(call: Callable[[], Any], described: str) -> Tensor:
    """Whether a call is refused with a ValueError or on purpose with another error, which is remarked.

    `described` is the subject of the remark. An error that torch raises for want of a check is no refusal.
    """
    try:
        call()
    except NotImplementedError:
        raise
    except ValueError:
        return torch.tensor(True)
    except Exception as error:
        if not _is_raised_on_purpose(error):
            return torch.tensor(False)
        kind = type(error).__name__
        article = "an" if kind[0] in "AEIOU" else "a"
        remark(f"{described} should raise a ValueError. Here it is {article} {kind}, which is accepted.")
        return torch.tensor(True)
    return torch.tensor(False)


def _is_raised_on_purpose(error: BaseException) -> bool:
    """Whether an error comes from a `raise` or `assert` statement of the solution."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or traceback.tb_frame.f_globals.get("__name__") != SOLUTION_MODULE:
        return False
    return traceback.tb_frame.f_code.co_code[traceback.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def mask_follows_device(call: Callable[[bool, torch.device], Any]) -> Tensor:
    """Whether a call with a mask works on another device if it works there without a mask.

    The other device is "meta", which every machine has. A solution that must read values cannot run there at all, and
    is not blamed for it.
    """
    call(True, torch.device("cpu"))  # an error here has other causes
    meta = torch.device("meta")
    try:
        call(True, meta)
    except RuntimeError as error:
        if "device" in str(error):
            return torch.tensor(not _succeeds(lambda: call(False, meta)))
    except Exception:
        pass  # not caused by tensors on different devices
    return torch.tensor(True)


def mask_follows_dtype(call: Callable[[bool, torch.dtype], Any]) -> Tensor:
    """Whether a call with a mask returns bfloat16 for bfloat16 if it does so without a mask."""
    call(True, torch.float32)  # an error here has other causes
    return torch.tensor(_keeps_bfloat16(call, True) or not _keeps_bfloat16(call, False))


def _keeps_bfloat16(call: Callable[[bool, torch.dtype], Any], masked: bool) -> bool:
    try:
        return bool(first_output(call(masked, torch.bfloat16)).dtype == torch.bfloat16)
    except Exception:
        return False


def _succeeds(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:
        return False
    return True
