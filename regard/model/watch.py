"""See every attention's weights without a flag in every layer."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.model.attention import MultiHeadAttention

Seen = dict[str, list[Tensor]]


@contextmanager
def watch(model: nn.Module) -> Iterator[Seen]:
    """Collect the weights of every multi-head attention that `model` calls, by name, one entry for each call.

    >>> from regard.model.attention import MultiHeadAttention
    >>> with watch(MultiHeadAttention(d_model=8, heads=2)) as seen:
    ...     pass
    >>> seen
    {'': []}

    Inside, attention takes the readable path and a compiled model runs as written; outside, nothing has changed.
    """
    seen: Seen = {}
    with ExitStack() as undo:
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and to import it takes seconds
            undo.enter_context(torch.compiler.set_stance("force_eager"))  # a compiled model would not see the hooks
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                watcher = _Watcher(seen.setdefault(name.replace("_orig_mod.", ""), []))
                undo.callback(module.register_forward_pre_hook(watcher.ask, with_kwargs=True).remove)
                # Hooks unwind like brackets: the last to ask takes first, so that one watch may stand in another.
                undo.callback(module.register_forward_hook(watcher.take, prepend=True).remove)
        yield seen


class _Watcher:
    """Asks one attention for its weights, keeps them, and hands on what its caller asked for."""

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self.caller_wants_them = False

    def ask(self, _module: nn.Module, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Before the call: have the weights formed."""
        self.caller_wants_them = options.get("return_weights", False)
        return args, options | {"return_weights": True}

    def take(self, _module: nn.Module, _args: Any, result: tuple[Tensor, Tensor]) -> Any:
        """After the call: keep them."""
        output, weights = result
        self.weights.append(weights.detach())
        return result if self.caller_wants_them else output
