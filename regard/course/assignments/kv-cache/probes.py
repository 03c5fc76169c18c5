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
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.course.assignment import Names, Probe
from regard.course.fixed_weights import set_weights

VOCAB = 11
LONG_TEXT = 140
"""Number of tokens of a text that is longer than most buffers of a fixed size."""
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


def _model(names: Names, layers: int = 2, max_length: int = 64) -> nn.Module:
    model: nn.Module = set_weights(names["Decoder"](VOCAB, 20, 4, layers, max_length))
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
    """One row and one layer, one token at a time; and a long text, whose last logits are compared."""
    values = _steps(names, _model(names, layers=1), torch.tensor([[2, 6, 4]]), 1, 1, 1)
    model, tokens = _model(names, 1, LONG_TEXT), torch.arange(LONG_TEXT)[None] ** 2 % VOCAB
    try:
        steps = _steps(names, model, tokens, 20, 20, LONG_TEXT - 41, 1)
    except NotImplementedError:
        raise
    except Exception:
        return values | {"long text accepted": torch.tensor(False)}
    last = {f"long text, step {number}": steps[f"step {number}"][:, -1] for number in (2, 3, 4)}
    return values | {"long text accepted": torch.tensor(True)} | last


@_restoring_state
def generation(names: Names) -> dict[str, Tensor]:
    """generate_cached with prompts of two lengths, and again with the first prompt."""
    model, first, write = _model(names), torch.tensor([[3, 1, 4], [1, 5, 9]]), names["generate_cached"]
    others = torch.arange(1, 19).view(3, 2, 3) ** 2 % VOCAB
    return {
        "without a cache": model(first),
        "from three tokens": write(model, first, 6),
        "from one token": write(model, torch.tensor([[2], [6]]), 5),
        "first prompt again": write(model, first, 6),
        "other prompts": torch.stack([write(model, prompt, 4) for prompt in others]),
    }


@_restoring_state
def reads(names: Names) -> dict[str, Tensor]:
    """Each token passes the embedding and the key and value projections only once."""
    model, tokens = _model(names), torch.tensor([[3, 1, 4, 1, 5], [1, 5, 9, 2, 6]])
    with _TokenCounter(model) as in_steps:
        _steps(names, model, tokens, 3, 1, 1)
    with _TokenCounter(model) as in_generation:
        names["generate_cached"](model, tokens[:, :3], 6)
    return {
        "step, embedding": torch.tensor(in_steps.embedded <= 2 * 5),
        "step, keys and values": torch.tensor(in_steps.projected <= 2 * 5),
        "generation, embedding": torch.tensor(in_generation.embedded <= 2 * (3 + 6)),
        "generation, keys and values": torch.tensor(in_generation.projected <= 2 * (3 + 6)),
    }


class _TokenCounter(TorchFunctionMode):
    """Counts the tokens that are multiplied by a model's weights or looked up in them, in a layer or without one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        layers = [layer for block in model.blocks for layer in (block.attention.k, block.attention.v)]  # type: ignore[union-attr]
        self.sources = {_storage(layer.weight): index for index, layer in enumerate([model.tokens, *layers])}
        self.counts = [0] * len(self.sources)
        self.parameters = {_storage(parameter) for parameter in model.parameters()}
        self.made: list[Tensor] = []  # kept, since the storage of a tensor that is gone can be used again

    @property
    def embedded(self) -> int:
        """The number of tokens that were looked up in the embedding."""
        return self.counts[0]

    @property
    def projected(self) -> int:
        """The largest number of tokens that passed a key or value projection."""
        return max(self.counts[1:])

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [*args, *(kwargs or {}).values()]
        tensors = [item for arg in given for item in (arg if isinstance(arg, list | tuple) else [arg])]
        tensors = [item for item in tensors if isinstance(item, Tensor)]
        used = {self.sources[_storage(tensor)] for tensor in tensors if _storage(tensor) in self.sources}
        read = [tensor for tensor in tensors if _storage(tensor) not in self.parameters]
        for index in used if read else ():
            self.counts[index] += read[0].numel() // (read[0].shape[-1] if read[0].is_floating_point() else 1)
        if len(used) == 1 and not read and isinstance(result, Tensor):  # a copy or a part of a weight
            self.made.append(result)
            self.sources[_storage(result)] = next(iter(used))
            self.parameters.add(_storage(result))
        return result


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
