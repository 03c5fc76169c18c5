"""Probes of a SelfAttention: its output at several sizes, its gradients, and its return value."""

import torch
from torch import Tensor, nn

from regard.course.assignment import Names
from regard.course.fixed_weights import (
    deterministic_output,
    first_output,
    gradients,
    inputs,
    set_weights_by_layer,
    weight_of,
)


def _build(names: Names, input_size: int, hidden: int) -> nn.Module:
    module: nn.Module = names["SelfAttention"](input_size, hidden)
    return set_weights_by_layer(module, _input(1, 2, input_size), "q k v").eval()


def _input(*shape: int) -> Tensor:
    return inputs(*shape) / 2  # small enough that no attention weight is close to 1


def example(names: Names) -> dict[str, Tensor]:
    """Two sequences of three tokens."""
    module = _build(names, 5, 4)
    return {"output": deterministic_output(lambda: module(_input(2, 3, 5)))}


def shapes(names: Names) -> dict[str, Tensor]:
    """A batch with one sequence, one token, a larger batch, and inputs so large that exp of the scores overflows."""
    module = _build(names, 3, 2)
    return {
        "one sequence": deterministic_output(lambda: module(_input(1, 7, 3))),
        "one token": deterministic_output(lambda: module(_input(2, 1, 3))),
        "six sequences": deterministic_output(lambda: module(_input(6, 5, 3))),
        "extreme inputs": deterministic_output(lambda: module(100 * _input(2, 4, 3))),
    }


def square(names: Names) -> dict[str, Tensor]:
    """All sizes equal, so that swapped axes raise no error."""
    module = _build(names, 4, 4)
    return {"output": deterministic_output(lambda: module(_input(4, 4, 4)))}


def gradient(names: Names) -> dict[str, Tensor]:
    """The gradients of the input and the weights."""
    module = _build(names, 3, 4)
    x = _input(2, 6, 3).requires_grad_()
    layers = {name: weight_of(module, name) for name in ("q", "k", "v")}
    return gradients(
        lambda: module(x), input=x, **{name: weight for name, weight in layers.items() if weight is not None}
    )


def returned(names: Names) -> dict[str, Tensor]:
    """The output is a single tensor, the same in training and eval mode."""
    module = _build(names, 4, 4)
    x = _input(2, 8, 4)
    is_tensor = isinstance(module(x), Tensor)
    is_same = torch.allclose(first_output(module(x)), first_output(module.train()(x)), equal_nan=True)
    return {"one tensor": torch.tensor(is_tensor), "same in training": torch.tensor(is_same)}
