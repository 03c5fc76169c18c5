"""What is looked at in a SelfAttention: its output at several sizes, its gradients, and what it returns."""

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


def _made(names: Names, input_size: int, hidden: int) -> nn.Module:
    module: nn.Module = names["SelfAttention"](input_size, hidden)
    return set_weights_by_layer(module, "q k v").eval()


def _x(*shape: int) -> Tensor:
    return inputs(*shape) / 2  # scores of about 1: no weight is nearly all


def example(names: Names) -> dict[str, Tensor]:
    """Two sequences of three tokens."""
    module = _made(names, 5, 4)
    return {"output": deterministic_output(lambda: module(_x(2, 3, 5)))}


def shapes(names: Names) -> dict[str, Tensor]:
    """A batch of one, and more tokens than features."""
    module = _made(names, 3, 2)
    return {
        "one sequence": deterministic_output(lambda: module(_x(1, 7, 3))),
        "many": deterministic_output(lambda: module(_x(6, 5, 3))),
    }


def square(names: Names) -> dict[str, Tensor]:
    """All sizes equal: what is mixed up gives numbers here, and no error."""
    module = _made(names, 4, 4)
    return {"output": deterministic_output(lambda: module(_x(4, 4, 4)))}


def gradient(names: Names) -> dict[str, Tensor]:
    """What reaches the input and the weights."""
    module = _made(names, 3, 4)
    x = _x(2, 6, 3).requires_grad_()
    layers = {name: weight_of(module, name) for name in ("q", "k", "v")}
    return gradients(lambda: module(x), input=x, **{name: each for name, each in layers.items() if each is not None})


def returned(names: Names) -> dict[str, Tensor]:
    """One tensor, and in training the same as otherwise."""
    module = _made(names, 4, 4)
    x = _x(2, 8, 4)
    tensor = isinstance(module(x), Tensor)
    settled = torch.allclose(first_output(module(x)), first_output(module.train()(x)), equal_nan=True)
    return {"one tensor": torch.tensor(tensor), "the same in training": torch.tensor(settled)}
