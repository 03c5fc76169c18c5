"""Checks the annotations of Regard's modules at run time. Import this module before the first import of regard."""

import functools
import inspect
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import jaxtyping
import torch

PACKAGE = Path(__file__).parents[2] / "regard"
ITEMS_COMPARED = 4
"""Number of items by which lists and dicts are compared. Of a list, beartype itself checks a single item."""
LITERALS = {int, str, bool, type(None)}

check_call = jaxtyping.jaxtyped
"""jaxtyping's decorator, which checks every call."""


def check_shapes() -> None:
    """Check calls into modules that annotate shapes. Elsewhere mypy suffices; the checks are slow."""
    modules = [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for file in PACKAGE.rglob("*.py")
        if "from jaxtyping import" in file.read_text(encoding="utf-8")
    ]
    jaxtyping.jaxtyped = check_new_shapes  # type: ignore[assignment]
    jaxtyping.install_import_hook(modules, "beartype.beartype")


def check_new_shapes(function: Any = None, *, typechecker: Any) -> Any:
    """Like jaxtyping's decorator, but check a call only if its types and shapes differ from all calls before.

    Most calls repeat earlier shapes, and checking them takes longer than the calls themselves. Functions without
    a shape in their annotations are left as they are.
    """
    if function is None:
        return functools.partial(check_new_shapes, typechecker=typechecker)
    if not inspect.isfunction(function):
        return check_call(function, typechecker=typechecker)
    if not any(map(has_shape, function.__annotations__.values())):
        return function
    checked = check_call(function, typechecker=typechecker)
    seen: dict[Hashable, set[Hashable]] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        given = (*map(signature, args), *kwargs, *map(signature, kwargs.values()))
        results = seen.get(given)
        if results is None:
            result = checked(*args, **kwargs)
            seen[given] = {signature(result)}
            return result
        result = function(*args, **kwargs)
        if (returned := signature(result)) not in results:
            check_result(function, typechecker, result)(*args, **kwargs)
            results.add(returned)
        return result

    return call


def check_result(function: Callable[..., Any], typechecker: Any, result: Any) -> Any:
    """A function that checks `result` as the value that `function` returns for the given arguments."""

    @functools.wraps(function)
    def replay(*_args: Any, **_kwargs: Any) -> Any:
        return result

    return check_call(replay, typechecker=typechecker)


def has_shape(annotation: Any) -> bool:
    """Whether an annotation contains a shape, as in `list[Float[Tensor, "B T"]]`. Unresolved ones are assumed to."""
    if isinstance(annotation, str):
        return True
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(has_shape, get_args(annotation))) if get_origin(annotation) is not Literal else False


def signature(value: Any) -> Any:
    """What annotations can tell about a value: values with equal signatures satisfy the same annotations."""
    kind = type(value)
    if kind in LITERALS:  # of which annotations give values, such as "{heads}"
        return kind, value
    if isinstance(value, torch.Tensor):
        return kind, value.dtype, value.shape
    if kind is tuple:
        return kind, *map(signature, value)
    if kind is list:
        return kind, *map(signature, value[:ITEMS_COMPARED])
    if kind is dict:
        return kind, *value, *map(signature, [*value.values()][:ITEMS_COMPARED])
    return kind
