"""How labs train the small models they ask: one plain loop, for a model and any loss."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


def fit(
    model: nn.Module, loss: Callable[[], Float[Tensor, ""]], steps: int, lr: float | Callable[[int], float]
) -> list[float]:
    """Train with the paper's Adam on what `loss()` gives, drawn anew each step; the losses on the way.

    `lr` is a number or a function of the step, which counts from 1.
    """
    rate = lr if callable(lr) else lambda _step: lr
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    model.train()
    losses = []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        now = loss()
        optimizer.zero_grad()
        now.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(now.item())
    model.eval()
    return losses
