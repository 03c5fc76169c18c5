"""What is looked at in a MultiHeadSelfAttention: outputs, probabilities, gradients, and what chance does to them."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.course.assignment import Names
from regard.course.fixed_weights import (
    bias_of,
    deterministic_output,
    first_output,
    gradients,
    inputs,
    mask_follows_device,
    mask_follows_dtype,
    set_weights_by_layer,
    weight_of,
)

LENGTHS = (1, 2, 3, 5, 8, 10, 16, 32)
MIX_BIAS = 0.5


def _made(names: Names, input_size: int, hidden: int, num_heads: int, **options: Any) -> nn.Module:
    module: nn.Module = names["MultiHeadSelfAttention"](input_size, hidden, num_heads, **options)
    return set_weights_by_layer(module, "q k v", optional="mix").eval()


def _x(*shape: int) -> Tensor:
    return inputs(*shape) / 2  # scores of about 1: no weight is nearly all


def example(names: Names) -> dict[str, Tensor]:
    """Sequences of three tokens, each of which sees those up to itself."""
    module = _made(names, 7, 8, 2, causal=True)
    return {"output": deterministic_output(lambda: module(_x(5, 3, 7)))}


def plain(names: Names) -> dict[str, Tensor]:
    """Every token sees every token; one head, and several."""
    several, one = _made(names, 5, 6, 3), _made(names, 4, 3, 1)
    return {
        "three heads": deterministic_output(lambda: several(_x(2, 7, 5))),
        "one head": deterministic_output(lambda: one(_x(16, 2, 4))),
    }


def attention(names: Names) -> dict[str, Tensor]:
    """The probabilities, with all tokens seen and with those up to each alone."""
    told = {}
    for name, causal in (("probabilities", False), ("causal probabilities", True)):
        module = _made(names, 5, 12, 3, causal=causal)
        told[name] = deterministic_output(
            lambda module=module: _probabilities(module(_x(2, 4, 5), return_attention=True))
        )
    return told


def _probabilities(result: Any) -> Any:
    pair = isinstance(result, tuple | list) and len(result) == 2
    return result[1] if pair else first_output(result)


def square(names: Names) -> dict[str, Tensor]:
    """As many sequences as tokens, heads and features of a head: what is mixed up gives numbers, and no error."""
    module, causal = _made(names, 16, 16, 4), _made(names, 16, 16, 4, causal=True)
    x = _x(4, 4, 16)
    return {"output": deterministic_output(lambda: module(x)), "causal output": deterministic_output(lambda: causal(x))}


def gradient(names: Names) -> dict[str, Tensor]:
    """What reaches the input and the weights."""
    module = _made(names, 3, 4, 2)
    x = _x(2, 6, 3).requires_grad_()
    unused = torch.zeros(4, 4)  # for who has no mix layer
    layers = {name: weight_of(module, name) for name in ("q", "k", "v", "mix")}
    known = {name: unused if each is None else each for name, each in layers.items()}
    return gradients(lambda: module(x), input=x, **known)


def refused(names: Names) -> dict[str, Tensor]:
    """Four heads of six features."""
    try:
        names["MultiHeadSelfAttention"](5, 6, 4)(_x(2, 3, 5))
    except ValueError:
        return {"ValueError": torch.tensor(True)}
    except NotImplementedError:
        raise
    except Exception:
        return {"ValueError": torch.tensor(False)}
    return {"ValueError": torch.tensor(False)}


def dropout(names: Names) -> dict[str, Tensor]:
    """Every token's value is 1 and every probability 1/2: what is dropped, and where, can be read off the output.

    The heads' outputs are told as they are, but for the mix layer's bias; and not at all where something is dropped
    that nobody asked for, since then nobody knows how much.
    """
    module = _made(names, 3, 4, 2, dropout=0.2)
    x = _x(256, 2, 3)
    free = [_made(names, 3, 4, 2).train(), module]
    settled = [torch.allclose(first_output(each(x)), first_output(each(x)), equal_nan=True) for each in free]
    random = [not torch.equal(first_output(module.train()(each)), first_output(module(each))) for each in (x, x[:, :1])]
    _plain_sums(module)
    told = first_output(module(x)).detach().reshape(256, 2, -1)
    told = told if told.shape[-1] == 4 else told.mean(-1, keepdim=True).expand(-1, -1, 4)
    by_head = told.unflatten(-1, (2, 2))  # [B, T, heads, 2]
    unknown = torch.tensor(math.nan)
    return {
        "without dropout, twice the same": torch.tensor(settled[0]),
        "in eval, twice the same": torch.tensor(settled[1]),
        "random in training": torch.tensor(random[0]),
        "random of one token": torch.tensor(random[1]),
        "least": told.min() if settled[0] else unknown,
        "most": told.max() if settled[0] else unknown,
        "mean": (told.mean() * 4).round() / 4 if settled[0] else unknown,
        "one for all features of a head": torch.tensor(torch.allclose(by_head[..., 0], by_head[..., 1])),
        "one for all queries": torch.tensor(torch.allclose(told[:, 0], told[:, 1])),
    }


@torch.no_grad()
def _plain_sums(module: nn.Module) -> None:
    """Scores of 0, values of 1, and a mix layer that leaves all as it is, but for its bias."""
    for parameter in module.parameters():
        parameter.zero_()
    if (bias := bias_of(module, "v")) is not None:
        bias.data.fill_(1)
    if (weight := weight_of(module, "mix")) is not None:
        nn.init.eye_(weight.data)
    if (bias := bias_of(module, "mix")) is not None:
        bias.data.fill_(MIX_BIAS)


def elsewhere(names: Names) -> dict[str, Tensor]:
    """Whether the causal mask is where the input is, and of its type."""

    def on(causal: bool, place: torch.device | torch.dtype) -> Any:
        return _made(names, 5, 4, 2, causal=causal).to(place)(_x(2, 3, 5).to(place))

    return {"device": mask_follows_device(on), "type": mask_follows_dtype(on)}


def lengths(names: Names) -> dict[str, Tensor]:
    """Whether sequences of all lengths will do, if those of some length do."""
    module = _made(names, 3, 4, 2, causal=True)
    works = []
    for length in LENGTHS:
        try:
            works.append(first_output(module(_x(1, length, 3))).shape[1] == length)
        except Exception:
            works.append(False)
    return {"all or none": torch.tensor(all(works) or not any(works))}


def returned(names: Names) -> dict[str, Tensor]:
    """One tensor, or a pair of output and probabilities when asked for."""
    module, x = _made(names, 5, 6, 2), _x(2, 3, 5)
    one, two = module(x), module(x, return_attention=True)
    pair = isinstance(two, tuple | list) and len(two) == 2
    told = {"one tensor": isinstance(one, Tensor), "a pair": pair}
    in_order = (
        pair and two[0].shape == first_output(one).shape and torch.allclose(two[0], first_output(one), equal_nan=True)
    )
    return {name: torch.tensor(each) for name, each in (told | {"the output first": in_order}).items()}
