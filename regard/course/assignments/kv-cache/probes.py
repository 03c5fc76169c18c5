"""What is looked at in a cache: the logits of steps, one token and several at a time, and what is written by them.

A cache that is not reset is a mistake of its own, seen by `afresh` and `writing`. Elsewhere it must not show: what a
solution keeps between its calls is put back behind each probe, so that each sees it as it was read.
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
Put = Callable[[str, object], None]


def _as_new(probe: Probe) -> Probe:
    """The probe on a solution as it was read, which it leaves behind so."""

    @wraps(probe)
    def probed(names: Names) -> dict[str, Tensor]:
        with _put_back(names):
            return probe(names)

    return probed


@contextmanager
def _put_back(names: Names) -> Iterator[None]:
    """Values of variables, of classes' bodies and of default arguments are as before, behind this."""
    classes = [each for each in names.values() if isinstance(each, type) and each.__module__ == names["__name__"]]
    functions = [each for each in names.values() if isinstance(each, FunctionType) and each.__defaults__]
    kinds = (list, dict, int, Tensor, NoneType, *classes)
    places: list[tuple[Put, Names]] = [(partial(setattr, each), dict(vars(each))) for each in classes]
    places.append((partial(operator.setitem, names), names))
    before: list[tuple[Put, str, object]] = [
        (partial(setattr, each), "__defaults__", deepcopy(each.__defaults__)) for each in functions
    ]
    for put, values in places:
        kept = {name: each for name, each in values.items() if isinstance(each, kinds) and not name.startswith("__")}
        before += [(put, name, deepcopy(each)) for name, each in kept.items()]
    try:
        yield
    finally:
        for put, name, value in before:
            put(name, value)


def _model(names: Names, layers: int = 2) -> nn.Module:
    model: nn.Module = set_weights(names["Decoder"](VOCAB, 20, 4, layers, 64))
    return model.eval()


def _steps(names: Names, model: nn.Module, tokens: Tensor, *sizes: int) -> dict[str, Tensor]:
    """The logits of steps with so many tokens each, and how long the cache is behind them."""
    cache = names["Cache"](len(model.blocks))  # type: ignore[arg-type]
    seen = {
        f"step {i}": names["step"](model, part, cache) for i, part in enumerate(torch.split(tokens, list(sizes), 1), 1)
    }
    return seen | {"length": torch.tensor(int(cache.length))}


@_as_new
def example(names: Names) -> dict[str, Tensor]:
    """Two rows of three tokens, read one by one; and two more, written behind them."""
    model, tokens = _model(names), torch.tensor([[1, 2, 3], [4, 0, 2]])
    seen = _steps(names, model, tokens, 1, 1, 1)
    try:
        return seen | {"written": names["generate_cached"](model, tokens, 2)}
    except Exception:  # told of by the probe that it belongs to
        return seen


@_as_new
def afresh(names: Names) -> dict[str, Tensor]:
    """Two texts, one after the other, each with a cache of its own."""
    model = _model(names)
    before = _steps(names, model, torch.tensor([[8, 7, 1], [2, 2, 9]]), 2, 1)
    behind = _steps(names, model, torch.tensor([[1, 2, 3], [5, 0, 4]]), 2, 1)
    return {f"first text, {name}": each for name, each in before.items()} | behind


@_as_new
def prompts(names: Names) -> dict[str, Tensor]:
    """A prompt at once, then a token at a time, in float64; two rows, three layers."""
    tokens = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 0, 10]])
    return _steps(names, _model(names, layers=3).double(), tokens, 3, 1, 1)


@_as_new
def pieces(names: Names) -> dict[str, Tensor]:
    """One row, read in pieces of several tokens."""
    return _steps(names, _model(names), torch.tensor([[9, 2, 6, 5, 3, 1]]), 2, 3, 1)


@_as_new
def alone(names: Names) -> dict[str, Tensor]:
    """One row and one layer, a token at a time: as little as there can be."""
    return _steps(names, _model(names, layers=1), torch.tensor([[2, 6, 4]]), 1, 1, 1)


@_as_new
def writing(names: Names) -> dict[str, Tensor]:
    """What is written behind prompts of two lengths, and once more behind the first."""
    model, first, write = _model(names), torch.tensor([[3, 1, 4], [1, 5, 9]]), names["generate_cached"]
    return {
        "written": write(model, first, 6),
        "behind one token": write(model, torch.tensor([[2], [6]]), 5),
        "again": write(model, first, 6),
    }
