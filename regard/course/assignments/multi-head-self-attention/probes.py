"""Probes of a MultiHeadSelfAttention: outputs, attention weights, gradients and dropout."""

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
    is_refused,
    mask_follows_device,
    mask_follows_dtype,
    set_weights_by_layer,
    weight_of,
)

LENGTHS = (1, 2, 3, 5, 8, 10, 16, 32)
MIX_BIAS = 0.5
MAX_LENGTH = 512
"""Maximum length of a sequence that is tried. Longer ones take too much time."""


def _build(names: Names, input_size: int, hidden: int, num_heads: int, **options: Any) -> nn.Module:
    module: nn.Module = names["MultiHeadSelfAttention"](input_size, hidden, num_heads, **options)
    return set_weights_by_layer(module, _input(1, 2, input_size), "q k v", optional="mix").eval()


def _input(*shape: int) -> Tensor:
    return inputs(*shape) / 2  # small enough that no attention weight is close to 1


def example(names: Names) -> dict[str, Tensor]:
    """Causal attention on sequences of three tokens."""
    module = _build(names, 7, 8, 2, causal=True)
    return {"output": deterministic_output(lambda: module(_input(5, 3, 7)))}


def plain(names: Names) -> dict[str, Tensor]:
    """Attention without a mask, with one head and with three, of one sequence, and with inputs whose exp overflows."""
    several, one = _build(names, 5, 6, 3), _build(names, 4, 3, 1)
    return {
        "three heads": deterministic_output(lambda: several(_input(2, 7, 5))),
        "one head": deterministic_output(lambda: one(_input(16, 2, 4))),
        "one sequence": deterministic_output(lambda: one(_input(1, 3, 4))),
        "extreme inputs": deterministic_output(lambda: several(100 * _input(2, 4, 5))),
    }


def attention(names: Names) -> dict[str, Tensor]:
    """The returned attention weights, without a mask and causal. Huge negative numbers count as minus infinity."""
    weights = {}
    for name, causal in (("weights", False), ("causal weights", True)):
        module = _build(names, 5, 12, 3, causal=causal)
        weights[name] = deterministic_output(
            lambda module=module: _returned_weights(module(_input(2, 4, 5), return_attention=True))
        )
        weights[name] = weights[name].masked_fill(weights[name] < -1e4, -math.inf)
    return weights


def _returned_weights(result: Any) -> Any:
    pair = isinstance(result, tuple | list) and len(result) == 2
    return result[1] if pair else first_output(result)


def square(names: Names) -> dict[str, Tensor]:
    """All sizes equal, so that swapped axes raise no error."""
    module, causal = _build(names, 16, 16, 4), _build(names, 16, 16, 4, causal=True)
    x = _input(4, 4, 16)
    values = {"output": deterministic_output(lambda: module(x)), "causal": deterministic_output(lambda: causal(x))}
    return values | {"causal in training": deterministic_output(lambda: causal.train()(x))}


def gradient(names: Names) -> dict[str, Tensor]:
    """The gradients of the input and the weights."""
    module = _build(names, 3, 4, 2)
    x = _input(2, 6, 3).requires_grad_()
    unused = torch.zeros(4, 4)  # for solutions without a mix layer
    layers = {name: weight_of(module, name) for name in ("q", "k", "v", "mix")}
    weights = {name: unused if weight is None else weight for name, weight in layers.items()}
    return gradients(lambda: module(x), input=x, **weights)


def invalid_sizes(names: Names) -> dict[str, Tensor]:
    """Four heads for six features must raise a ValueError."""

    def run() -> Any:
        return names["MultiHeadSelfAttention"](5, 6, 4)(_input(2, 3, 5))

    return {"refused": is_refused(run, "num_heads=4 with hidden=6")}


def dropout(names: Names) -> dict[str, Tensor]:
    """Attention weights are dropped at the given rate in training mode, and never in eval mode.

    All values are 1 and all attention weights 1/2, so the output shows what is dropped and where. If something is
    dropped although the rate is 0, the amount is unpredictable and is reported as NaN.
    """
    module = _build(names, 3, 4, 2, dropout=0.2)
    x = _input(256, 2, 3)
    without_dropout = _build(names, 3, 4, 2).train()
    deterministic, deterministic_in_eval = (
        torch.allclose(first_output(attention(x)), first_output(attention(x)), equal_nan=True)
        for attention in (without_dropout, module)
    )
    random = [not torch.equal(first_output(module.train()(part)), first_output(module(part))) for part in (x, x[:, :1])]
    _set_transparent_weights(module)
    output = first_output(module(x)).detach().reshape(256, 2, -1)
    output = output if output.shape[-1] == 4 else output.mean(-1, keepdim=True).expand(-1, -1, 4)
    by_head = output.unflatten(-1, (2, 2))  # [B, T, heads, 2]
    unknown = torch.tensor(math.nan)
    return {
        "deterministic without dropout": torch.tensor(deterministic),
        "deterministic in eval mode": torch.tensor(deterministic_in_eval),
        "random in training": torch.tensor(random[0]),
        "random with one token": torch.tensor(random[1]),
        "minimum": output.min() if deterministic else unknown,
        "maximum": output.max() if deterministic else unknown,
        "mean": (output.mean() * 4).round() / 4 if deterministic else unknown,
        "the same for all features of a head": torch.tensor(torch.allclose(by_head[..., 0], by_head[..., 1])),
        "the same for all queries": torch.tensor(torch.allclose(output[:, 0], output[:, 1])),
    }


@torch.no_grad()
def _set_transparent_weights(module: nn.Module) -> None:
    """Set weights that give scores of 0, values of 1, and a mix layer that only adds its bias."""
    for parameter in module.parameters():
        parameter.zero_()
    if (bias := bias_of(module, "v")) is not None:
        bias.data.fill_(1)
    if (weight := weight_of(module, "mix")) is not None:
        nn.init.eye_(weight.data)
    if (bias := bias_of(module, "mix")) is not None:
        bias.data.fill_(MIX_BIAS)


def device_and_dtype(names: Names) -> dict[str, Tensor]:
    """The causal mask has the device and dtype of the input."""

    def run(causal: bool, target: torch.device | torch.dtype, **options: bool) -> Any:
        return _build(names, 5, 4, 2, causal=causal).to(target)(_input(2, 3, 5).to(target), **options)

    def run_for_weights(causal: bool, target: torch.device | torch.dtype) -> Any:
        return first_output(run(causal, target, return_attention=True))

    dtypes = {"dtype": mask_follows_dtype(run), "dtype with weights": mask_follows_dtype(run_for_weights)}
    return {"device": mask_follows_device(run), **dtypes}


def lengths(names: Names) -> dict[str, Tensor]:
    """Sequences can have any length."""
    module = _build(names, 3, 4, 2, causal=True)
    works = []
    for length in (*LENGTHS, *(size + 1 for size in _table_sizes(module))):
        try:
            works.append(first_output(module(_input(1, length, 3))).shape[1] == length)
        except Exception:
            works.append(False)
    return {"all lengths or none": torch.tensor(all(works) or not any(works))}


def _table_sizes(module: nn.Module) -> list[int]:
    """The sizes of square tables that a module keeps, such as masks, for which longer sequences may be too long."""
    kept = [*module.buffers(), *(value for value in vars(module).values() if isinstance(value, Tensor))]
    sizes = {table.shape[-1] for table in kept if table.ndim >= 2 and table.shape[-1] == table.shape[-2]}
    return sorted(size for size in sizes if LENGTHS[-1] <= size <= MAX_LENGTH)


def returned(names: Names) -> dict[str, Tensor]:
    """One tensor is returned, or a pair of output and weights if requested."""
    module, x = _build(names, 5, 6, 2), _input(2, 3, 5)
    one, two = module(x), module(x, return_attention=True)
    pair = isinstance(two, tuple | list) and len(two) == 2
    checks = {"one tensor": isinstance(one, Tensor), "a pair": pair}
    in_order = (
        pair and two[0].shape == first_output(one).shape and torch.allclose(two[0], first_output(one), equal_nan=True)
    )
    return {name: torch.tensor(check) for name, check in (checks | {"the output first": in_order}).items()}
