"""The output layer and its cross-entropy loss, without holding all logits in memory.

The logits of a large batch would not fit into memory, and recomputing them for the backward pass would cost a tenth of
a step. The logits are therefore computed piece by piece; each piece is turned at once into its losses and, in place,
into its gradient. Only the gradients of the hidden vectors and of the weights are kept. On a GPU a single kernel does
this in one pass (`regard/training/loss_kernel.py`).

Dimensions: N tokens, n tokens of a piece, C model width, V outputs.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.data.batches import IGNORED_TARGET
from regard.model.attention import HAS_TRITON

GPU_MEMORY_DIVISOR = 32
"""Logits may occupy one part in this many of a GPU's memory at a time."""
MAX_CPU_LOGITS = 2**24
"""Number of logits computed at a time on a CPU: 64 MB, for which its caches still help."""


def loss_sum(
    hidden: Float[Tensor, "N C"],
    weight: Float[Tensor, "V C"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " N"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The sum of -log p of the labels, without those that are IGNORED_TARGET; divide by their number for the mean.

    With `smoothing` ε a label has the probability 1 - ε, and ε is spread evenly over all V outputs including the label,
    as in `F.cross_entropy`.
    """
    if hidden.device.type == "cpu":  # on a GPU this would make the host wait and change shapes
        counted = labels != IGNORED_TARGET
        if not counted.all():
            hidden, labels = hidden[counted], labels[counted]
    if not torch.is_grad_enabled():  # needs_input_grad does not reflect no_grad
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    total: Tensor = _LossSum.apply(hidden, weight, bias, labels, smoothing)  # type: ignore[no-untyped-call]
    return total


class _LossSum(torch.autograd.Function):
    """Computes losses and gradients together, piece by piece."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> Tensor:
        rows = rows_at_once(hidden, weight)
        pieces = [slice(begin, begin + rows) for begin in range(0, len(hidden), rows)]
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        needs_gradient = any(ctx.needs_input_grad)
        d_hidden = torch.empty_like(hidden) if needs_gradient else None
        # Sums over several pieces are in float32, because lower precisions would round the addends away.
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_gradient and len(pieces) != 1 else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if needs_gradient and bias is not None else None
        for piece in pieces:
            logits = F.linear(hidden[piece], weight, bias)  # [n, V]
            total += losses_and_gradients(logits, labels[piece], smoothing).sum()
            if d_hidden is None:
                continue
            torch.mm(logits, weight, out=d_hidden[piece])
            product = weight_gradient(logits, hidden[piece])
            d_weight = product if d_weight is None else d_weight.add_(product)
            if d_bias is not None:
                d_bias += logits.sum(0, dtype=torch.float32)
        ctx.gradients = d_hidden, d_weight, d_bias
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.gradients  # changed in place: there is only one backward pass
        weight_dtype, bias_dtype = ctx.dtypes
        d_bias = None if d_bias is None else d_bias.mul_(gradient).to(bias_dtype)
        return d_hidden.mul_(gradient), d_weight.mul_(gradient).to(weight_dtype), d_bias, None, None


def weight_gradient(logits: Float[Tensor, "n V"], hidden: Float[Tensor, "n C"]) -> Float[Tensor, "V C"]:
    """logitsᵀ hidden, a sum over all tokens. In float16 it could overflow, so it is computed at 1/1024 of its size."""
    if logits.dtype != torch.float16:
        return logits.t() @ hidden
    return (logits.t() @ (hidden / 1_024)).float() * 1_024


def rows_at_once(hidden: Float[Tensor, "N C"], weight: Float[Tensor, "V C"]) -> int:
    """Number of tokens whose logits are computed at a time."""
    max_logits = MAX_CPU_LOGITS
    if hidden.is_cuda:
        memory: int = torch.cuda.get_device_properties(hidden.device).total_memory
        max_logits = memory // GPU_MEMORY_DIVISOR // hidden.element_size()
    return max(1, max_logits // len(weight))


def losses_and_gradients(
    logits: Float[Tensor, "n V"], labels: Int[Tensor, " n"], smoothing: float
) -> Float[Tensor, " n"]:
    """Each token's loss, 0 where the label is IGNORED_TARGET. The logits are overwritten with the gradient."""
    if logits.is_cuda and HAS_TRITON:
        from regard.training.loss_kernel import losses_and_gradients as in_one_pass

        return in_one_pass(logits, labels, smoothing)
    counted = labels != IGNORED_TARGET
    safe = labels.clamp(min=0)[:, None]  # [n, 1]
    log_probs = logits.float().log_softmax(-1)  # [n, V]
    losses = -(1 - smoothing) * log_probs.gather(1, safe)[:, 0] - smoothing * log_probs.mean(-1)  # [n]
    gradient = log_probs.exp_().sub_(smoothing / logits.size(1))
    gradient.scatter_add_(1, safe, gradient.new_full((1, 1), smoothing - 1).expand_as(safe))
    logits.copy_(gradient.mul_(counted[:, None]))
    return losses * counted
