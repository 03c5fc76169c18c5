"""What is looked at in a SelfAttention: its output on three tokens, on a batch, and its gradients."""

from torch import Tensor

from regard.course.assignment import Names
from regard.course.known import inputs, known


def example(names: Names) -> dict[str, Tensor]:
    """Two sequences of three tokens."""
    module = known(names["SelfAttention"](5, 4))
    return {"output": module(inputs(2, 3, 5))}


def batch(names: Names) -> dict[str, Tensor]:
    """Other sizes, some of them equal: what is mixed up by chance shows."""
    module = known(names["SelfAttention"](8, 4).double())
    return {"output": module(inputs(4, 4, 8).double())}


def gradient(names: Names) -> dict[str, Tensor]:
    """What reaches the input and the weights."""
    module = known(names["SelfAttention"](5, 4))
    x = inputs(2, 6, 5).requires_grad_()
    module(x).square().sum().backward()
    return {"input": x.grad, "q": module.q.weight.grad}
