"""What is looked at in a MultiHeadAttention: outputs with masks and without, gradients, and its parts.

Its projections have no prescribed names: weights are given to them by what they are for.
"""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from regard.course.assignment import Names
from regard.course.fixed_weights import (
    deterministic_output,
    first_output,
    gradients,
    has_transposed_matrices,
    mask_follows_device,
    mask_follows_dtype,
    seeded_normal,
    set_weights_by_role,
)

SEEN = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1], [1, 0, 0, 1]]).bool()
"""rows and columns with some seen and some hidden, and not the same when turned"""


def _made(names: Names, heads: int, embedding: int, qk: int, value: int) -> nn.Module:
    module: nn.Module = names["MultiHeadAttention"](heads, embedding, qk, value)
    given = _given(2, 3, 4, embedding)
    widths = {"query": heads * qk, "key": heads * qk, "value": heads * value}
    turned = has_transposed_matrices(names["MultiHeadAttention"])
    return set_weights_by_role(module, lambda: _run(module, given, _nearly_all(3, 4)), given, widths, turned).eval()


def _given(batch: int, queries: int, keys: int, embedding: int) -> dict[str, Tensor]:
    lengths = {"query": queries, "key": keys, "value": keys}
    return {role: 1.5 * seeded_normal(role, batch, length, embedding) for role, length in lengths.items()}


def _run(module: nn.Module, given: dict[str, Tensor], mask: Tensor | None) -> Any:
    """The mask as true and false, or as ones and zeros for who expects those."""
    try:
        return module(*given.values(), mask)
    except (RuntimeError, TypeError):
        if mask is None:
            raise
        try:
            return module(*given.values(), mask.long())
        except Exception:
            pass  # told of as it was at first
        raise


def example(names: Names) -> dict[str, Tensor]:
    """Three queries and four keys, some of which are hidden."""
    module, given = _made(names, 2, 8, 6, 7), _given(5, 3, 4, 8)
    return {"output": deterministic_output(lambda: _run(module, given, SEEN[:3]))}


def plain(names: Names) -> dict[str, Tensor]:
    """Every query sees nearly every key, and all of them without a mask."""
    module, given = _made(names, 3, 5, 4, 2), _given(2, 6, 7, 5)
    nearly = deterministic_output(lambda: _run(module, given, _nearly_all(6, 7)))
    return {"nearly all seen": nearly, "no mask": _without_mask(module, given, torch.ones(6, 7).bool())}


def _nearly_all(queries: int, keys: int) -> Tensor:
    """A mask that hides one key from each query: upside down, it still shows one."""
    return torch.arange(queries)[:, None] % keys != torch.arange(keys)


def _without_mask(module: nn.Module, given: dict[str, Tensor], everything: Tensor) -> Tensor:
    """What is given for no mask: nothing at all if that is an error. Who wants a mask in any case gets one."""
    required = [each for each in signature(module.forward).parameters.values() if each.default is each.empty]
    try:
        return deterministic_output(lambda: _run(module, given, everything if len(required) > len(given) else None))
    except Exception:
        return torch.zeros(0)


def masks(names: Names) -> dict[str, Tensor]:
    """Padding, which hides the same keys from all queries of a sequence; and a mask for every sequence."""
    module, given = _made(names, 2, 6, 3, 5), _given(3, 4, 4, 6)
    padding = (torch.arange(4) < torch.tensor([2, 3, 1])[:, None])[:, None, None]  # [B, 1, 1, S]
    own = torch.stack([SEEN, SEEN.flip(0), SEEN.T])[:, None]  # [B, 1, T, S]
    return {
        "padding": deterministic_output(lambda: _run(module, given, padding)),
        "one each": deterministic_output(lambda: _run(module, given, own)),
    }


def square(names: Names) -> dict[str, Tensor]:
    """As many sequences as queries, keys, heads and features of a head: what is mixed up gives numbers, no error."""
    module, given = _made(names, 4, 16, 4, 4), _given(4, 4, 4, 16)
    return {"output": deterministic_output(lambda: _run(module, given, SEEN))}


def nothing(names: Names) -> dict[str, Tensor]:
    """A query that may see nothing."""
    module, given = _made(names, 2, 6, 3, 5), _given(2, 4, 4, 6)
    hidden = SEEN.clone()
    hidden[0] = False
    return {"no NaN": torch.isfinite(first_output(_run(module, given, hidden))).all()}


def gradient(names: Names) -> dict[str, Tensor]:
    """What reaches queries, keys and values."""
    module, given = _made(names, 2, 5, 3, 4), _given(2, 4, 6, 5)
    for each in given.values():
        each.requires_grad_()
    return gradients(lambda: _run(module, given, _nearly_all(4, 6)), **given)


def elsewhere(names: Names) -> dict[str, Tensor]:
    """Whether what is made of the mask is where the input is, and of its type."""

    def on(masked: bool, place: torch.device | torch.dtype) -> Any:
        module = names["MultiHeadAttention"](2, 5, 3, 4).to(place)
        given = {role: each.to(place) for role, each in _given(2, 4, 4, 5).items()}
        mask = SEEN.to(place) if isinstance(place, torch.device) else SEEN
        return _run(module, given, mask if masked else None)

    return {"device": mask_follows_device(on), "type": mask_follows_dtype(on)}


def parts(names: Names) -> dict[str, Tensor]:
    """Whether the parts that forward is made of are there, and it returns one tensor."""
    module = names["MultiHeadAttention"](2, 6, 3, 5)
    methods = ("split_heads", "combine_heads", "scaled_dot_product_attention")
    told = {name: torch.tensor(callable(getattr(module, name, None))) for name in methods}
    result = _run(module, _given(2, 4, 4, 6), SEEN)
    return told | {"one tensor": torch.tensor(isinstance(result, Tensor))}
