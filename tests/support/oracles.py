"""Help for comparing Regard with PyTorch's own modules: copied weights, the same inputs, outputs and gradients."""

import ast
import inspect
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import ModuleType

import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.attention import MultiHeadAttention
from regard.model.layers import Layer

# Relative and absolute; those for float32 are torch.testing's own.
TOLERANCE = {torch.float64: (0.0, 1e-10), torch.float32: (1.3e-6, 1e-5)}

Attentions = list[tuple[nn.MultiheadAttention, MultiHeadAttention]]
"""Attentions that correspond, theirs first."""
Others = list[tuple[nn.Module, nn.Module]]
"""Other modules that correspond, theirs first."""


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    """Their weights into ours; biases too, which start at zero there and are made random first."""
    assert theirs.in_proj_weight is not None
    with torch.no_grad():
        theirs.in_proj_bias.normal_()
        theirs.out_proj.bias.normal_()
        for mine, weight, bias in zip(
            (ours.q, ours.k, ours.v), theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
        ):
            mine.weight.copy_(weight)
            mine.bias.copy_(bias)
        ours.out.load_state_dict(theirs.out_proj.state_dict())


def attention_gradients(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> list[tuple[Tensor, Tensor]]:
    """Pairs of gradients, theirs first."""
    projections = (ours.q, ours.k, ours.v)
    return [
        (gradient(theirs.in_proj_weight), torch.cat([gradient(each.weight) for each in projections])),
        (gradient(theirs.in_proj_bias), torch.cat([gradient(each.bias) for each in projections])),
        (gradient(theirs.out_proj.weight), gradient(ours.out.weight)),
        (gradient(theirs.out_proj.bias), gradient(ours.out.bias)),
    ]


def gradient(parameter: Tensor) -> Tensor:
    """The gradient, which must be there."""
    assert parameter.grad is not None
    return parameter.grad


def layer_parts(
    theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, ours: Layer
) -> tuple[Attentions, Others]:
    """The attentions that correspond, and the other modules that do."""
    attentions = [(theirs.self_attn, ours.attention)]
    feed_forward = ours.feed_forward
    others: Others = [(theirs.linear1, feed_forward.up), (theirs.linear2, feed_forward.down)]
    others.append((theirs.norm1, ours.attention_norm))
    if isinstance(theirs, nn.TransformerDecoderLayer):
        assert ours.cross_attention is not None
        assert ours.cross_attention_norm is not None
        attentions.append((theirs.multihead_attn, ours.cross_attention))
        others += [(theirs.norm2, ours.cross_attention_norm), (theirs.norm3, ours.feed_forward_norm)]
    else:
        others.append((theirs.norm2, ours.feed_forward_norm))
    return attentions, others


def copy_parts(attentions: Attentions, others: Others) -> None:
    """Their weights into ours."""
    for theirs, ours in attentions:
        copy_attention(theirs, ours)
    for there, here in others:
        here.load_state_dict(there.state_dict())


def same_gradients(attentions: Attentions, others: Others) -> None:
    """The gradients of all weights are equal."""
    for theirs, ours in attentions:
        for pair in attention_gradients(theirs, ours):
            same(*pair)
    for there, here in others:
        for their_weight, our_weight in zip(there.parameters(), here.parameters(), strict=True):
            same(gradient(their_weight), gradient(our_weight))


def randomise(modules: Iterable[nn.Module]) -> None:
    """Random weights everywhere, norms and biases included: with ones and zeros a swap would go unseen."""
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                parameter.normal_(std=0.2)


def same(theirs: Tensor, ours: Tensor) -> None:
    """Equal within the tolerance of their type."""
    relative, absolute = TOLERANCE[theirs.dtype]
    torch.testing.assert_close(ours, theirs, rtol=relative, atol=absolute)


def run(module: Callable[..., Tensor], inputs: list[Tensor], towards: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Output, and the gradients of the inputs when the output is pulled `towards` something."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = module(*inputs)
    torch.autograd.backward(output, towards)
    return output.detach(), [x.grad for x in inputs if x.grad is not None]


def small(**changes: object) -> ModelConfig:
    """A config for tests: no dropout, a few layers, widths that tell every dimension apart."""
    plain = {"vocab_size": 31, "d_model": 24, "heads": 4, "layers": 2, "d_ff": 40, "dropout": 0.0, "max_length": 32}
    return ModelConfig(**plain | changes)  # type: ignore[arg-type]


def documented_fields(module: ModuleType, name: str) -> set[str]:
    """The fields of a class that have a string of documentation below them, in the module's source."""
    tree = ast.parse(inspect.getsource(module))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name).body
    return {
        node.target.id
        for node, following in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }
