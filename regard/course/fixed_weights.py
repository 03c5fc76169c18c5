"""Numbers that are the same for every solution: weights by the parameters' names, and inputs; and ways to look at it.

A solution draws its own weights in its own order; what probes compare must not depend on that, nor on chance.
"""

import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)

ROLES = {"query": r"q(?!kv)", "key": r"k(?!v)", "value": r"v", "output": r"o|mix|final|comb|merge|proj$"}
"""of an attention's four projections, and how the name of each is known"""


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


def known_by_layer(module: Module, needed: str, optional: str = "") -> Module:
    """The module with weights that depend on its layers' names, as in "q k v", wherever else the layers are kept.

    An AttributeError or a TypeError that says which is not there, of those that are needed.
    """
    asked = " ".join(f".{name}" for name in needed.split())
    for name in needed.split():
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no .{name}: the assignment asks for {asked}")
        if not isinstance(getattr(module, name), nn.Module):
            raise TypeError(f".{name} is no layer: the assignment asks for {asked}, each an nn.Linear")
    known(module)
    given: set[int] = set()  # one layer under two names has the weights of the first
    for name in f"{needed} {optional}".split():
        for kind, parameter in (("weight", weight_of(module, name)), ("bias", bias_of(module, name))):
            if parameter is not None and parameter.data_ptr() not in given:
                parameter.data.copy_(drawn(f"{name}.{kind}", *parameter.shape))
                given.add(parameter.data_ptr())
    return module


def weight_of(module: nn.Module, layer: str) -> Tensor | None:
    """The matrix of a layer, which may be wrapped in others; None where there is none."""
    return next((each for each in _weights(module, layer) if each.ndim == 2), None)


def bias_of(module: nn.Module, layer: str) -> Tensor | None:
    """The bias of a layer, which may be wrapped in others; None where there is none."""
    return next((each for each in _weights(module, layer) if each.ndim == 1), None)


def _weights(module: nn.Module, layer: str) -> list[nn.Parameter]:
    found = getattr(module, layer, None)
    return list(found.parameters()) if isinstance(found, nn.Module) else []


@dataclass
class _Projection:
    """A layer, or the layers of all heads, or a bare matrix, that may play a role."""

    name: str
    fed: str
    """the role of what it was given; "output" if that was something else; "" if it was not used"""
    weights: list[Tensor] = field(default_factory=list)
    """each [out, in]"""

    def fit(self, role: str, index: int) -> int:
        """How well it fits: what it was given says most, then its name, then its place."""
        word = re.sub(r"^(w|linear|lin|fc|to|proj|dense|layer|weight)_?(?=.)", "", self.name.lower().split(".")[0])
        named = re.match(ROLES[role], word) is not None
        return 4 * (self.fed == role) + 2 * named + (list(ROLES).index(role) == index)

    def copy(self, *roles: str, widths: dict[str, int]) -> None:
        """Give it the weights of its role, or of its roles, one below the other."""
        across = self.weights[0].shape[1]
        rows = [sum(each.shape[0] for each in self.weights)] if len(roles) == 1 else [widths[role] for role in roles]
        full = torch.cat([drawn(f"{role}.weight", many, across) for role, many in zip(roles, rows, strict=True)])
        for weight, part in zip(self.weights, torch.split(full, [each.shape[0] for each in self.weights]), strict=True):
            weight.copy_(part / math.sqrt(across))


@torch.no_grad()
def known_by_role(
    module: Module, call: Callable[[], Any], given: dict[str, Tensor], widths: dict[str, int], turned: bool = True
) -> Module:
    """The attention with weights that depend on its projections' roles, however they are called; its biases are 0.

    `call` puts it to work on what is `given` to each role, so that what a layer receives tells its role; `widths` are
    those of queries, keys and values. One layer for all three is filled in that order. Bare matrices are `turned` if
    they are [in, out], multiplied from the right.
    """
    known(module)
    for name, parameter in module.named_parameters():
        if "bias" in name:
            parameter.zero_()
    packed, found = ["query", "key", "value"], _projections(module, call, given, turned)
    whole = [each for each in found if len(found) < 4 and sum(w.shape[0] for w in each.weights) == sum(widths.values())]
    for each in whole:
        each.copy(*packed, widths=widths)
    single = [each for each in found if each not in whole]
    roles = [role for role in ROLES if not (whole and role in packed)]
    ways = permutations(single, min(len(roles), len(single)))
    best = max(
        ways, key=lambda way: sum(each.fit(role, single.index(each)) for each, role in zip(way, roles, strict=False))
    )
    for each, role in zip(best, roles, strict=False):
        each.copy(role, widths=widths)
    return module


def _projections(
    module: nn.Module, call: Callable[[], Any], given: dict[str, Tensor], turned: bool
) -> list[_Projection]:
    """Its projections in the order in which they were made; those of all heads together."""
    layers = {name: each for name, each in module.named_modules() if isinstance(each, nn.Linear)}
    fed = _fed(list(layers.values()), call, given)
    found: dict[tuple[str, str], _Projection] = {}
    for name, parameter in module.named_parameters():
        layer = layers.get(name.removesuffix(".weight"))
        if parameter.ndim != 2:
            continue
        role = fed.get(layer, "") if layer is not None else ""
        group = found.setdefault((re.sub(r"\.\d+\.", ".", name), role), _Projection(name, role))
        is_linear = layer is not None or name.endswith("proj_weight")
        group.weights.append(parameter if is_linear or not turned else parameter.T)
    return list(found.values())


def is_turned(attention: Callable[[int, int, int, int], nn.Module]) -> bool:
    """Whether the bare matrices of a MultiHeadAttention are [in, out]: one of unequal sizes tells, if there are any."""
    module = attention(2, 11, 3, 5)
    of_layers = {id(each) for layer in module.modules() if isinstance(layer, nn.Linear) for each in layer.parameters()}
    return all(tuple(each.shape) != (2 * 3, 11) for each in module.parameters() if id(each) not in of_layers)


def _fed(layers: list[nn.Linear], call: Callable[[], Any], given: dict[str, Tensor]) -> dict[nn.Module, str]:
    """For each layer that is used, whose input it was given; "output" if nobody's."""
    fed: dict[nn.Module, str] = {}

    def note(layer: nn.Module, args: tuple[Any, ...]) -> None:
        flat = args[0].flatten()
        fed.setdefault(layer, next((role for role, x in given.items() if torch.equal(flat, x.flatten())), "output"))

    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    with unwatched():
        _works(call)
    for hook in hooks:
        hook.remove()
    return fed


def first(result: Any) -> Any:
    """The output, of a result that brings something else along."""
    return result[0] if isinstance(result, tuple | list) and result else result


def steady(call: Callable[[], Any]) -> Tensor:
    """The output that a call gives, if it gives the same twice; NaN in its place where chance has a part in it."""
    once: Tensor = first(call())
    with unwatched():
        again: Tensor = first(call())
    if once.shape == again.shape and torch.allclose(once, again, equal_nan=True):
        return once
    return torch.full_like(once, math.nan, requires_grad=False)


def gradients(call: Callable[[], Any], **of: Tensor) -> dict[str, Tensor]:
    """What reaches each of these when the output's squares are to be small; zeros where nothing does."""
    output = steady(call)
    if output.requires_grad:
        torch.autograd.backward(output.square().sum())
    return {name: torch.zeros_like(each) if each.grad is None else each.grad for name, each in of.items()}


def mask_follows_device(call: Callable[[bool, torch.device], Any]) -> Tensor:
    """Whether a call with a mask works on another device, where it works without: False if devices meet.

    The other device is "meta", which every machine has; a solution that must see numbers cannot run there, and is
    not accused of anything.
    """
    call(True, torch.device("cpu"))  # an error here has other causes
    meta = torch.device("meta")
    try:
        call(True, meta)
    except RuntimeError as error:
        if "device" in str(error):
            return torch.tensor(not _works(lambda: call(False, meta)))
    except Exception:
        pass  # whatever it is, it is not two devices that meet
    return torch.tensor(True)


def mask_follows_dtype(call: Callable[[bool, torch.dtype], Any]) -> Tensor:
    """Whether a call with a mask gives bfloat16 for bfloat16, where it does so without a mask."""
    call(True, torch.float32)  # an error here has other causes
    return torch.tensor(_keeps(call, True) or not _keeps(call, False))


def _keeps(call: Callable[[bool, torch.dtype], Any], masked: bool) -> bool:
    try:
        return bool(first(call(masked, torch.bfloat16)).dtype == torch.bfloat16)
    except Exception:
        return False


@contextmanager
def unwatched() -> Iterator[None]:
    """Lines that run in here are not noted as the solution's."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)


def _works(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:
        return False
    return True
