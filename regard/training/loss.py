"""The last layer's vectors and the output layer to one number: the sum of the losses of all tokens that count.

The logits of a large batch would not fit into memory, and to compute them anew for the way back would cost a tenth of
a step. So each piece of them is turned, as soon as it is there, into its losses and, in the same place, into their
gradient; what is kept is the gradient of the vectors and of the weights. On a GPU one kernel does this in one pass
(`regard/training/loss_kernel.py`).

Dimensions: N tokens, n tokens of a piece, C model width, V outputs.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.data.batches import IGNORE
from regard.model.attention import HAS_TRITON

SHARE = 32
"""logits may take this part of a GPU's memory at one time"""
ON_CPU = 2**24
"""logits that are there at one time on a CPU: 64 MB, which its caches can still help with"""


def loss_sum(
    hidden: Float[Tensor, "N C"],
    weight: Float[Tensor, "V C"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " N"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The sum of -log p of the labels, those that are IGNORE left out; divide by their number for the mean.

    With `smoothing` ε a label has the probability 1 - ε and ε is spread evenly over all V outputs, its own included:
    the definition of `F.cross_entropy`.
    """
    if hidden.device.type == "cpu":  # elsewhere the choice would make the host wait, and shapes change
        counted = labels != IGNORE
        if not counted.all():
            hidden, labels = hidden[counted], labels[counted]
    if not torch.is_grad_enabled():  # a Function is told of inputs that want gradients all the same
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    total: Tensor = _LossSum.apply(hidden, weight, bias, labels, smoothing)  # type: ignore[no-untyped-call]
    return total


class _LossSum(torch.autograd.Function):
    """Losses and gradients in one go, piece by piece."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> Tensor:
        rows = rows_at_once(hidden, weight)
        pieces = [slice(begin, begin + rows) for begin in range(0, len(hidden), rows)]
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        wanted = any(ctx.needs_input_grad)
        d_hidden = torch.empty_like(hidden) if wanted else None
        # In another type than float32 a sum over pieces would lose what each adds; of one piece there is no sum.
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if wanted and len(pieces) != 1 else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if wanted and bias is not None else None
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
        d_hidden, d_weight, d_bias = ctx.gradients  # changed in place: there is one way back
        weight_dtype, bias_dtype = ctx.dtypes
        d_bias = None if d_bias is None else d_bias.mul_(gradient).to(bias_dtype)
        return d_hidden.mul_(gradient), d_weight.mul_(gradient).to(weight_dtype), d_bias, None, None


def weight_gradient(logits: Float[Tensor, "n V"], hidden: Float[Tensor, "n C"]) -> Float[Tensor, "V C"]:
    """logitsᵀ hidden, a sum over all tokens. In float16 it might not fit, and is made a thousandth of itself."""
    if logits.dtype != torch.float16:
        return logits.t() @ hidden
    return (logits.t() @ (hidden / 1_024)).float() * 1_024


def rows_at_once(hidden: Float[Tensor, "N C"], weight: Float[Tensor, "V C"]) -> int:
    """How many tokens' logits are computed at one time."""
    most = ON_CPU
    if hidden.is_cuda:
        most = torch.cuda.get_device_properties(hidden.device).total_memory // SHARE // hidden.element_size()
    return max(1, most // len(weight))


def losses_and_gradients(
    logits: Float[Tensor, "n V"], labels: Int[Tensor, " n"], smoothing: float
) -> Float[Tensor, " n"]:
    """Each token's loss, 0 where the label is IGNORE; the logits are overwritten by its gradient."""
    if logits.is_cuda and HAS_TRITON:
        from regard.training.loss_kernel import losses_and_gradients as in_one_pass

        return in_one_pass(logits, labels, smoothing)
    counted = labels != IGNORE
    safe = labels.clamp(min=0)[:, None]  # [n, 1]
    log_probs = logits.float().log_softmax(-1)  # [n, V]
    losses = -(1 - smoothing) * log_probs.gather(1, safe)[:, 0] - smoothing * log_probs.mean(-1)  # [n]
    gradient = log_probs.exp_().sub_(smoothing / logits.size(1))
    gradient.scatter_add_(1, safe, gradient.new_full((1, 1), smoothing - 1).expand_as(safe))
    logits.copy_(gradient.mul_(counted[:, None]))
    return losses * counted
