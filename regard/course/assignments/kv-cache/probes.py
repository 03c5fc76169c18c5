"""Probes of a key-value cache: the logits of steps with one and with several tokens, and the generated text.

A cache that is not reset is a mistake of its own, which `two_texts` and `generation` detect. The other probes must not
be affected by it, so the state that a solution keeps between calls is restored after each probe.
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial, wraps
from types import FunctionType, NoneType

import torch
from torch import Tensor, nn

from regard.course.assignment import Names, Probe
from regard.course.fixed_weights import set_weights

VOCAB = 11
Setter = Callable[[str, object], None]


def _restoring_state(probe: Probe) -> Probe:
    """A probe that restores the solution's global state when it ends."""

    @wraps(probe)
    def probed(names: Names) -> dict[str, Tensor]:
        with _state_restored(names):
            return probe(names)

    return probed


@contextmanager
def _state_restored(names: Names) -> Iterator[None]:
    """Restore global variables, class attributes and default arguments when the context ends."""
    classes = [value for value in names.values() if isinstance(value, type) and value.__module__ == names["__name__"]]
    functions = [value for value in names.values() if isinstance(value, FunctionType) and value.__defaults__]
    kinds = (list, dict, int, Tensor, NoneType, *classes)
    namespaces: list[tuple[Setter, Names]] = [(partial(setattr, owner), dict(vars(owner))) for owner in classes]
    namespaces.append((partial(operator.setitem, names), names))
    saved: list[tuple[Setter, str, object]] = [
        (partial(setattr, function), "__defaults__", deepcopy(function.__defaults__)) for function in functions
    ]
    for setter, values in namespaces:
        state = {
            name: value for name, value in values.items() if isinstance(value, kinds) and not name.startswith("__")
        }
        saved += [(setter, name, deepcopy(value)) for name, value in state.items()]
    try:
        yield
    finally:
        for setter, name, value in saved:
            setter(name, value)


def _model(names: Names, layers: int = 2) -> nn.Module:
    model: nn.Module = set_weights(names["Decoder"](VOCAB, 20, 4, layers, 64))
    return model.eval()


def _steps(names: Names, model: nn.Module, tokens: Tensor, *sizes: int) -> dict[str, Tensor]:
    """The logits of steps with these numbers of tokens, and the length of the cache afterwards."""
    cache = names["Cache"](len(model.blocks))  # type: ignore[arg-type]
    values = {
        f"step {i}": names["step"](model, part, cache) for i, part in enumerate(torch.split(tokens, list(sizes), 1), 1)
    }
    return values | {"length": torch.tensor(int(cache.length))}


@_restoring_state
def example(names: Names) -> dict[str, Tensor]:
    """Two rows of three tokens, read one at a time, and two generated tokens."""
    model, tokens = _model(names), torch.tensor([[1, 2, 3], [4, 0, 2]])
    values = _steps(names, model, tokens, 1, 1, 1)
    try:
        return values | {"generated": names["generate_cached"](model, tokens, 2)}
    except Exception:  # reported by the probe for this function
        return values


@_restoring_state
def two_texts(names: Names) -> dict[str, Tensor]:
    """Two texts, one after the other, each with its own cache."""
    model = _model(names)
    first_text = _steps(names, model, torch.tensor([[8, 7, 1], [2, 2, 9]]), 2, 1)
    second_text = _steps(names, model, torch.tensor([[1, 2, 3], [5, 0, 4]]), 2, 1)
    return {f"first text, {name}": value for name, value in first_text.items()} | second_text


@_restoring_state
def prompts(names: Names) -> dict[str, Tensor]:
    """A prompt in one step, then one token at a time, in float64, with three layers."""
    tokens = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 0, 10]])
    return _steps(names, _model(names, layers=3).double(), tokens, 3, 1, 1)


@_restoring_state
def pieces(names: Names) -> dict[str, Tensor]:
    """One row, read in steps of several tokens."""
    return _steps(names, _model(names), torch.tensor([[9, 2, 6, 5, 3, 1]]), 2, 3, 1)


@_restoring_state
def one_row(names: Names) -> dict[str, Tensor]:
    """One row and one layer, one token at a time."""
    return _steps(names, _model(names, layers=1), torch.tensor([[2, 6, 4]]), 1, 1, 1)


@_restoring_state
def generation(names: Names) -> dict[str, Tensor]:
    """generate_cached with prompts of two lengths, and again with the first prompt."""
    model, first, write = _model(names), torch.tensor([[3, 1, 4], [1, 5, 9]]), names["generate_cached"]
    return {
        "from three tokens": write(model, first, 6),
        "from one token": write(model, torch.tensor([[2], [6]]), 5),
        "first prompt again": write(model, first, 6),
    }
