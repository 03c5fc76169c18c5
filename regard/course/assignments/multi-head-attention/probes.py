"""Probes of a MultiHeadAttention: outputs with and without masks, gradients, and its methods.

The projections have no prescribed names, so their weights are set by role.
"""

from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from regard.course.assignment import Names
from regard.course.attention_weights import name_axes, set_weights_by_role
from regard.course.fixed_weights import (
    deterministic_output,
    gradients,
    initialise_lazy_layers,
    mask_follows_device,
    mask_follows_dtype,
    seeded_normal,
)

VISIBLE = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1], [1, 0, 0, 1]]).bool()
"""A mask that is not symmetric, with visible and hidden keys in each row and column."""


def _build(names: Names, heads: int, embedding: int, qk: int, value: int) -> nn.Module:
    module: nn.Module = names["MultiHeadAttention"](heads, embedding, qk, value)
    given = _given(2, 3, 4, embedding)
    widths = {"query": heads * qk, "key": heads * qk, "value": heads * value}
    initialise_lazy_layers(module, lambda: _run(module, _given(1, 3, 3, embedding), torch.ones(3, 3).bool()))
    axes = name_axes(names["MultiHeadAttention"], heads)
    calls = [partial(_run, module, given, mask) for mask in (_hide_one(3, 4), torch.ones(3, 4).bool())]
    return set_weights_by_role(module, calls, given, widths, axes).eval()


def _given(batch: int, queries: int, keys: int, embedding: int) -> dict[str, Tensor]:
    lengths = {"query": queries, "key": keys, "value": keys}
    return {role: 1.5 * seeded_normal(role, batch, length, embedding) for role, length in lengths.items()}


def _run(module: nn.Module, given: dict[str, Tensor], mask: Tensor | None) -> Any:
    """Run with a boolean mask, or with ones and zeros if the solution expects those."""
    try:
        return module(*given.values(), mask)
    except (RuntimeError, TypeError):
        if mask is None:
            raise
        try:
            return module(*given.values(), mask.long())
        except Exception:
            pass  # the first error is reported
        raise


def example(names: Names) -> dict[str, Tensor]:
    """Three queries and four keys, some of them hidden."""
    module, given = _build(names, 2, 8, 6, 7), _given(5, 3, 4, 8)
    return {"output": deterministic_output(lambda: _run(module, given, VISIBLE[:3]))}


def plain(names: Names) -> dict[str, Tensor]:
    """Attention to almost all keys, to all keys, of one sequence, and with inputs whose exp overflows."""
    module, given = _build(names, 3, 5, 4, 2), _given(2, 6, 7, 5)
    almost_all = deterministic_output(lambda: _run(module, given, _hide_one(6, 7)))
    large = {role: 30 * tensor for role, tensor in given.items()}
    return {
        "almost all visible": almost_all,
        "no mask": _without_mask(module, given, torch.ones(6, 7).bool()),
        "one sequence": deterministic_output(lambda: _run(module, _given(1, 2, 3, 5), _hide_one(2, 3))),
        "extreme inputs": _without_mask(module, large, torch.ones(6, 7).bool()),
    }


def _hide_one(queries: int, keys: int) -> Tensor:
    """A mask that hides one key from each query. Inverted, it still shows one."""
    return torch.arange(queries)[:, None] % keys != torch.arange(keys)


def _without_mask(module: nn.Module, given: dict[str, Tensor], everything: Tensor) -> Tensor:
    """The output without a mask; empty if that raises an error. A solution that requires a mask gets one."""
    parameters = signature(module.forward).parameters.values()
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    try:
        return deterministic_output(lambda: _run(module, given, everything if len(required) > len(given) else None))
    except Exception:
        return torch.zeros(0)


def masks(names: Names) -> dict[str, Tensor]:
    """A padding mask, a separate mask for each sequence, and a separate mask for each head."""
    module, given = _build(names, 2, 6, 3, 5), _given(3, 4, 4, 6)
    padding = (torch.arange(4) < torch.tensor([2, 3, 1])[:, None])[:, None, None]  # [B, 1, 1, S]
    own = torch.stack([VISIBLE, VISIBLE.flip(0), VISIBLE.T])[:, None]  # [B, 1, T, S]
    heads = torch.stack([VISIBLE, VISIBLE.T])[None].expand(3, 2, 4, 4)  # [B, heads, T, S]
    return {
        "padding": deterministic_output(lambda: _run(module, given, padding)),
        "one per sequence": deterministic_output(lambda: _run(module, given, own)),
        "one per head": deterministic_output(lambda: _run(module, given, heads)),
    }


def square(names: Names) -> dict[str, Tensor]:
    """All sizes equal, so that swapped axes raise no error."""
    module, given = _build(names, 4, 16, 4, 4), _given(4, 4, 4, 16)
    output = deterministic_output(lambda: _run(module, given, VISIBLE))
    return {"output": output, "in training": deterministic_output(lambda: _run(module.train(), given, VISIBLE))}


def all_hidden(names: Names) -> dict[str, Tensor]:
    """A query that may see nothing gives zeros, not NaN."""
    module, given = _build(names, 2, 6, 3, 5), _given(2, 4, 4, 6)
    hidden = VISIBLE.clone()
    hidden[0] = False
    return {"output": deterministic_output(lambda: _run(module, given, hidden))[:, 0]}


def gradient(names: Names) -> dict[str, Tensor]:
    """The gradients of queries, keys and values."""
    module, given = _build(names, 2, 5, 3, 4), _given(2, 4, 6, 5)
    for tensor in given.values():
        tensor.requires_grad_()
    return gradients(lambda: _run(module, given, _hide_one(4, 6)), **given)


def device_and_dtype(names: Names) -> dict[str, Tensor]:
    """Tensors made from the mask have the device and dtype of the input."""

    def run(masked: bool, target: torch.device | torch.dtype) -> Any:
        module = names["MultiHeadAttention"](2, 5, 3, 4).to(target)
        given = {role: tensor.to(target) for role, tensor in _given(2, 4, 4, 5).items()}
        mask = VISIBLE.to(target) if isinstance(target, torch.device) else VISIBLE
        return _run(module, given, mask if masked else None)

    return {"device": mask_follows_device(run), "dtype": mask_follows_dtype(run)}


def parts(names: Names) -> dict[str, Tensor]:
    """The methods that the assignment names exist, forward returns one tensor, and the projections can be trained."""
    module = names["MultiHeadAttention"](2, 6, 3, 5)
    methods = ("split_heads", "combine_heads", "scaled_dot_product_attention")
    exists = {name: torch.tensor(callable(getattr(module, name, None))) for name in methods}
    result = _run(module, _given(2, 4, 4, 6), VISIBLE)
    registered = bool(list(module.parameters()))
    return exists | {"one tensor": torch.tensor(isinstance(result, Tensor)), "registered": torch.tensor(registered)}
