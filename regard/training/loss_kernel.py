"""A Triton kernel that turns a row of logits into its loss and, in place, into the gradient of the loss.

A row of 50,000 logits stays in the cache between the pass that sums and the pass that writes, so that memory is read
once and written once. Triton is bundled with PyTorch's CUDA builds.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


def losses_and_gradients(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """As `regard.training.loss.losses_and_gradients`, for logits with contiguous rows."""
    losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    _row[(len(logits),)](
        logits, labels, losses, logits.stride(0), logits.size(1), smoothing, smoothing > 0, BLOCK=4096, num_warps=8
    )
    return losses


@triton.jit
def _row(logits, labels, losses, stride, outputs, smoothing, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    label = tl.load(labels + row)
    counts = label >= 0
    label_logit = tl.load(logits + tl.maximum(label, 0)).to(tl.float32)  # the second loop overwrites it
    # Each column of the block has its own maximum and sum: threads meet once per row instead of once per block.
    tops = tl.full([BLOCK], -1e30, tl.float32)
    powers, total = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for begin in range(0, outputs, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        x = tl.load(logits + column, mask=column < outputs, other=float("-inf")).to(tl.float32)
        if SMOOTHED:
            total += tl.where(column < outputs, x, 0.0)
        new_tops = tl.maximum(tops, x)
        powers = powers * tl.exp(tops - new_tops) + tl.exp(x - new_tops)
        tops = new_tops
    top = tl.max(tops, 0)
    log_sum = top + tl.log(tl.sum(powers * tl.exp(tops - top), 0))
    loss = log_sum - (1.0 - smoothing) * label_logit
    if SMOOTHED:
        loss -= smoothing * tl.sum(total, 0) / outputs
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    for begin in range(0, outputs, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        x = tl.load(logits + column, mask=column < outputs, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(x - log_sum) - smoothing / outputs - tl.where(column == label, 1.0 - smoothing, 0.0)
        tl.store(logits + column, tl.where(counts, gradient, 0.0), mask=column < outputs)
