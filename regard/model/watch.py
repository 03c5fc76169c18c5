"""Collect the attention weights of a whole model, without a flag in every layer."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.model.attention import MultiHeadAttention

AttentionWeights = dict[str, list[Tensor]]
"""The weights of each attention module by name, one tensor for each call."""


@contextmanager
def watch(model: nn.Module) -> Iterator[AttentionWeights]:
    """Collect the weights of every multi-head attention in `model`, by name, one entry for each call.

    >>> from regard.model.attention import MultiHeadAttention
    >>> with watch(MultiHeadAttention(d_model=8, heads=2)) as seen:
    ...     pass
    >>> seen
    {'': []}

    Inside the block, attention takes the readable path and compiled models run uncompiled.
    """
    seen: AttentionWeights = {}
    with ExitStack() as undo:
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and importing it takes seconds
            undo.enter_context(torch.compiler.set_stance("force_eager"))  # a compiled model would ignore the hooks
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                watcher = _Watcher(seen.setdefault(name.replace("_orig_mod.", ""), []))
                undo.callback(module.register_forward_pre_hook(watcher.request_weights, with_kwargs=True).remove)
                # Hooks nest like brackets: the last pre-hook's partner runs first, so that watches can be nested.
                undo.callback(module.register_forward_hook(watcher.store_weights, prepend=True).remove)
        yield seen


class _Watcher:
    """Hooks on one attention: request its weights, store them, and return what the caller asked for."""

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self.caller_wants_them = False

    def request_weights(self, _module: nn.Module, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Before the call: request the weights."""
        self.caller_wants_them = options.get("return_weights", False)
        return args, options | {"return_weights": True}

    def store_weights(self, _module: nn.Module, _args: Any, result: tuple[Tensor, Tensor]) -> Any:
        """After the call: store them."""
        output, weights = result
        self.weights.append(weights.detach())
        return result if self.caller_wants_them else output
