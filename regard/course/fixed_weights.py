"""Weights and inputs that are the same for every solution, and helpers for probes.

A solution draws its own weights in its own order. The values that probes compare must depend neither on that nor on
chance, so the weights are replaced by ones that depend only on names and shapes.
"""

import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.course.line_tracing import tracing_paused

Module = TypeVar("Module", bound=nn.Module)

ROLES = {"query": r"q(?!kv)", "key": r"k(?!v)", "value": r"v", "output": r"o|mix|final|comb|merge|proj$"}
"""The four projections of attention, and patterns of the names that students give them."""


def set_weights(module: Module) -> Module:
    """Set a module's weights to values that depend only on their names and shapes. All parts have an effect."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(seeded_normal(name, *parameter.shape))
    return module


def inputs(*shape: int) -> Tensor:
    """Normally distributed numbers, always the same for the same shape."""
    return seeded_normal("inputs", *shape)


def seeded_normal(name: str, *shape: int) -> Tensor:
    """Normally distributed numbers that depend only on a name and a shape."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {shape}".encode()))
    return torch.randn(*shape, generator=generator)


def set_weights_by_layer(module: Module, needed: str, optional: str = "") -> Module:
    """Set weights by the names of a module's layers, such as "q k v", wherever else the layers are stored.

    Raises an AttributeError or TypeError that says which of the needed layers is missing.
    """
    expected = " ".join(f".{name}" for name in needed.split())
    for name in needed.split():
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no .{name}: the assignment asks for {expected}")
        if not isinstance(getattr(module, name), nn.Module):
            raise TypeError(f".{name} is not a layer: the assignment asks for {expected}, each an nn.Linear")
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
    return list(attribute.parameters()) if isinstance(attribute, nn.Module) else []


@dataclass
class _Projection:
    """A layer, the layers of all heads, or a bare matrix, which may have one of the roles."""

    name: str
    input_role: str
    """The role whose input the layer received; "output" if it was another tensor; "" if the layer was not used."""
    weights: list[Tensor] = field(default_factory=list)
    """Matrices of shape [out, in]."""

    def score(self, role: str, index: int) -> int:
        """How well it fits a role. Its input counts most, then its name, then its position."""
        word = re.sub(r"^(w|linear|lin|fc|to|proj|dense|layer|weight)_?(?=.)", "", self.name.lower().split(".")[0])
        has_name = re.match(ROLES[role], word) is not None
        return 4 * (self.input_role == role) + 2 * has_name + (list(ROLES).index(role) == index)

    def fill(self, *roles: str, widths: dict[str, int]) -> None:
        """Set the weights of its role, or of several roles stacked in this order."""
        columns = self.weights[0].shape[1]
        if len(roles) == 1:
            rows = [sum(weight.shape[0] for weight in self.weights)]
        else:
            rows = [widths[role] for role in roles]
        matrices = [seeded_normal(f"{role}.weight", count, columns) for role, count in zip(roles, rows, strict=True)]
        parts = torch.split(torch.cat(matrices), [weight.shape[0] for weight in self.weights])
        for weight, part in zip(self.weights, parts, strict=True):
            weight.copy_(part / math.sqrt(columns))


@torch.no_grad()
def set_weights_by_role(
    module: Module, call: Callable[[], Any], given: dict[str, Tensor], widths: dict[str, int], transposed: bool = True
) -> Module:
    """Set the weights of an attention by the roles of its projections, whatever their names; biases become 0.

    `call` runs the module on the tensors `given` for each role, so that what a layer receives shows its role. `widths`
    are those of queries, keys and values. A single layer for all three is filled in that order. Bare matrices are
    `transposed` if their shape is [in, out].
    """
    set_weights(module)
    for name, parameter in module.named_parameters():
        if "bias" in name:
            parameter.zero_()
    input_roles, projections = ["query", "key", "value"], _find_projections(module, call, given, transposed)
    packed_rows = sum(widths.values())
    packed = [
        projection
        for projection in projections
        if len(projections) < 4 and sum(weight.shape[0] for weight in projection.weights) == packed_rows
    ]
    for projection in packed:
        projection.fill(*input_roles, widths=widths)
    single = [projection for projection in projections if projection not in packed]
    roles = [role for role in ROLES if not (packed and role in input_roles)]

    def total_score(order: tuple[_Projection, ...]) -> int:
        pairs = zip(order, roles, strict=False)
        return sum(projection.score(role, single.index(projection)) for projection, role in pairs)

    best = max(permutations(single, min(len(roles), len(single))), key=total_score)
    for projection, role in zip(best, roles, strict=False):
        projection.fill(role, widths=widths)
    return module


def _find_projections(
    module: nn.Module, call: Callable[[], Any], given: dict[str, Tensor], transposed: bool
) -> list[_Projection]:
    """The module's projections in the order in which they were created. Those of all heads form one."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    input_roles = _input_roles(list(layers.values()), call, given)
    projections: dict[tuple[str, str], _Projection] = {}
    for name, parameter in module.named_parameters():
        layer = layers.get(name.removesuffix(".weight"))
        if parameter.ndim != 2:
            continue
        role = input_roles.get(layer, "") if layer is not None else ""
        projection = projections.setdefault((re.sub(r"\.\d+\.", ".", name), role), _Projection(name, role))
        is_linear = layer is not None or name.endswith("proj_weight")
        projection.weights.append(parameter if is_linear or not transposed else parameter.T)
    return list(projections.values())


def has_transposed_matrices(attention: Callable[[int, int, int, int], nn.Module]) -> bool:
    """Whether the bare matrices of a MultiHeadAttention are [in, out], found by creating one with unequal sizes."""
    module = attention(2, 11, 3, 5)
    in_layers = {
        id(parameter) for layer in module.modules() if isinstance(layer, nn.Linear) for parameter in layer.parameters()
    }
    bare = [parameter for parameter in module.parameters() if id(parameter) not in in_layers]
    return all(tuple(parameter.shape) != (2 * 3, 11) for parameter in bare)


def _input_roles(layers: list[nn.Linear], call: Callable[[], Any], given: dict[str, Tensor]) -> dict[nn.Module, str]:
    """The role of the input that each layer received during a call; "output" if it was none of the given tensors."""
    roles: dict[nn.Module, str] = {}

    def record(layer: nn.Module, args: tuple[Any, ...]) -> None:
        flat = args[0].flatten()
        role = next((role for role, tensor in given.items() if torch.equal(flat, tensor.flatten())), "output")
        roles.setdefault(layer, role)

    hooks = [layer.register_forward_pre_hook(record) for layer in layers]
    with tracing_paused():
        _succeeds(call)
    for hook in hooks:
        hook.remove()
    return roles


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
