"""Why a loss is not finite: where in the network it begins."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.model.transformer import Network
from regard.training.objective import Objective


@torch.no_grad()
def diagnose(network: Network, batch: Batch, lr: float) -> str:
    """In a sentence or two: weights that are not finite, or the first module whose output is not; and what to try."""
    broken = [name for name, weight in network.named_parameters() if not weight.isfinite().all()]
    if broken:
        return f"the weights of {broken[0]} are not finite: go on from an older checkpoint, or begin anew"
    first = _first_output(network, batch)
    largest = max(network.named_parameters(), key=lambda each: float(each[1].abs().max()))
    where = f"the output of {first} is not finite" if first else "the loss is finite, and its gradient is not"
    return (
        f"{where}; the largest weight is {float(largest[1].abs().max()):.3g}, in {largest[0]}. "
        f"The learning rate was {lr:.2g}: try a lower train.lr, a longer train.warmup, train.clip=1, "
        'or train.precision="float32"'
    )


def _first_output(network: Network, batch: Batch) -> str | None:
    """The name of the first module, in the order of the computation, that gives something not finite."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            if not found and isinstance(output, Tensor) and not output.isfinite().all():
                found.append(name)

        return hook

    handles = [module.register_forward_hook(look(name)) for name, module in network.named_modules() if name]
    try:
        loss = Objective(network)(batch.to(network.device))
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None if loss.isfinite() else "the output layer"
