"""Masks for tests of attention, and a comparison of outputs and gradients."""

import torch
from torch import Tensor

from regard.model.masks import PlainMask, causal_mask, packed_mask, padding_mask

MASKS = ("none", "causal", "boolean", "causal tensor", "padding", "packed")


def make_mask(kind: str, b: int, h: int, t: int, s: int) -> PlainMask:
    """A mask of this kind; where it makes sense, some rows see nothing."""
    if kind == "causal":
        return "causal"
    if kind == "boolean":
        return torch.rand(b, h, t, s) > 0.4
    if kind == "causal tensor":
        return causal_mask(max(t, s))[:t, :s]
    if kind == "padding":
        return padding_mask(torch.randint(0, s + 1, (b,)), s)
    if kind == "packed":
        lengths = torch.randint(0, min(t, s) // 3 + 1, (b, 3))
        return packed_mask(lengths, lengths, t, s)
    return None


def output_and_gradients(path: object, inputs: list[Tensor], mask: PlainMask, towards: Tensor) -> list[Tensor]:
    """The output of an attention function, and its gradients in the direction `towards`."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = path(*inputs, mask)  # type: ignore[operator]
    output = output[0] if isinstance(output, tuple) else output
    return [output.detach(), *torch.autograd.grad(output, inputs, towards)]
