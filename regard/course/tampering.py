"""Changes to torch and to the checker that a solution makes in its own process, and functions that it may not use.

Results are compared outside the solution's process, where it has no influence. But some probes compare two outputs of
the solution with each other, inside its process. A solution that replaces `torch.allclose` would pass them. Here such
changes are undone, and the part that made them fails. Code that goes further, for example with `ctypes`, is not
detected here: `unusual_code.py` lists it for the teacher.
"""

import builtins
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from safetensors import torch as safetensors_torch
from torch import Tensor, nn

from regard.errors import RegardError

WATCHED: tuple[Any, ...] = (torch, torch.nn, torch.nn.functional, torch.autograd, Tensor, nn.Module, safetensors_torch)
"""Modules and classes whose functions a solution must not replace. The checker's own are added to them."""
CHECKER_PREFIXES = ("regard.course", "regard_probes", "regard_hidden_probes")
"""How the names of the checker's modules, and of the probes', begin."""
REPLACEABLE = ("print", "input", "open", "breakpoint", "_", "__repr__", "__str__", "__format__", "Storage")
"""What may change: functions that the checker does not use, and torch's class of the default dtype."""
TORCH_FOLDER = str(Path(torch.__file__).parent)
INHERITED = object()
"""Stands for a method that a class inherits."""
PRETENDING = "__torch_function__"
"""The method with which objects can pretend to be any tensor."""
_BASES: tuple[type, ...] = (object, Tensor, nn.Module, tuple, list, dict, float, int)


class TamperingError(Exception):
    """A solution changed something that the checker relies on."""


class ForbiddenError(Exception):
    """A solution called a function that the assignment does not allow."""


class TamperWatch:
    """Remembers functions of torch and the checker, and restores those that a solution replaces."""

    def __init__(self) -> None:
        modules = [module for name, module in sys.modules.items() if name.startswith(CHECKER_PREFIXES)]
        self.functions = [
            (owner, name, vars(owner).get(name, INHERITED))
            for owner in (*WATCHED, *modules, builtins)
            for name in (dir(owner) if isinstance(owner, type) else vars(owner))
            if _is_watched(owner, name)
        ]
        self.classes: dict[type, set[type]] = {base: set(type.__subclasses__(base)) for base in _BASES}
        self._restore, self._remove, self._subclasses = setattr, delattr, type.__subclasses__  # before they can change

    def check(self) -> None:
        """Undo replacements; a TamperingError that names the first, or a class that pretends to be a tensor."""
        changed = [
            (owner, name, value)
            for owner, name, value in self.functions
            if (new := owner.__dict__.get(name, INHERITED)) is not value and not _is_replaced_by_torch(name, new)
        ]
        for owner, name, value in changed:
            if value is INHERITED:
                self._remove(owner, name)
            else:
                self._restore(owner, name, value)
        if changed:
            owner, name, _ = changed[0]
            raise TamperingError(f"replaces {owner.__name__}.{name}: a solution must not change torch or the checker")
        for base, known in self.classes.items():
            subclass: type
            for subclass in self._subclasses(base):
                is_new = subclass not in known and not subclass.__module__.startswith("torch")
                if is_new and PRETENDING in subclass.__dict__:
                    message = f"{subclass.__name__} defines {PRETENDING}: a solution works with plain tensors"
                    raise TamperingError(message)


def forbid(names: Iterable[str]) -> None:
    """Let each of these functions and classes of torch raise an error when it is called, under all its names."""
    for name in names:
        value, refuse = resolve(name), _refusal(name)
        if isinstance(value, type):
            value.__init__ = refuse  # type: ignore[misc]  # subclasses call it as well
            continue
        for owner in _owners():
            with suppress(AttributeError, TypeError):  # types of C cannot be changed
                for alias in [alias for alias, other in vars(owner).items() if other is value]:
                    setattr(owner, alias, refuse)
        parent, _, last = name.rpartition(".")
        for owner in (resolve(parent), torch.ops.aten):  # the method of a class may be inherited
            if hasattr(owner, last):
                setattr(owner, last, refuse)


def check_forbidden(names: Iterable[str]) -> None:
    """A RegardError if one of the names is not a function or class of torch."""
    for name in names:
        if not callable(resolve(name)):
            raise RegardError(
                f"forbidden: {name!r} is not a function or class of torch: write its full name, such as "
                "torch.nn.MultiheadAttention"
            )


def resolve(name: str) -> Any:
    """What a full name such as torch.nn.MultiheadAttention stands for; None if it stands for nothing in torch."""
    first, *others = name.split(".")
    value: Any = torch if first == "torch" else None
    for part in others:
        value = getattr(value, part, None)
    return value


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ForbiddenError(f"{name} is not allowed in this assignment: write it yourself")

    return refuse


def _owners() -> list[Any]:
    """Where a function of torch may be found: the modules of torch, and the class of tensors."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "torch"]
    return [*(module for module in modules if isinstance(module, ModuleType)), Tensor]


def _is_watched(owner: Any, name: str) -> bool:
    value = getattr(owner, name, None)
    is_function = callable(value) or isinstance(value, property)
    return is_function and name not in REPLACEABLE


def _is_replaced_by_torch(name: str, value: Any) -> bool:
    """Whether a function comes from torch itself, which wraps some of its functions when parts of it are imported."""
    file = getattr(getattr(value, "__code__", None), "co_filename", "")
    return isinstance(value, FunctionType) and value.__name__ == name and file.startswith(TORCH_FOLDER)
