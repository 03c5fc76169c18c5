"""The training loop for the small models of labs."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


def fit(
    model: nn.Module, loss: Callable[[], Float[Tensor, ""]], steps: int, lr: float | Callable[[int], float]
) -> list[float]:
    """Train a model with the paper's Adam, leave it in evaluation mode, and return the loss of each step.

    `loss` draws a new batch each time it is called. `lr` is a number or a function of the step, which counts from 1.
    """
    schedule = lr if callable(lr) else lambda _step: lr
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    model.train()
    losses = []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        batch_loss = loss()
        optimizer.zero_grad()
        batch_loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(batch_loss.item())
    model.eval()
    return losses
