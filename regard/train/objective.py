"""What is trained for: a batch to the sum of its losses, in the precision that the device does well.

Parameters stay in float32. Where the arithmetic is done in another type, each step reads a copy of them in that type,
so that all between them, the residual stream too, is in it; gradients come back to the parameters in float32.

Dimensions: B rows, T tokens, C model width.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from regard.model.transformer import EncoderDecoder, Network
from regard.text.batches import IGNORE, Batch
from regard.train.loss import loss_sum


class Objective(nn.Module):
    """A network and its loss."""

    def __init__(
        self, network: Network, smoothing: float = 0.0, dtype: torch.dtype = torch.float32, compiled: bool = False
    ) -> None:
        super().__init__()
        self.network = network
        self.smoothing, self.dtype = smoothing, dtype
        self.vectors: Callable[..., Tensor] = _vectors
        if compiled:
            self.vectors = torch.compile(_vectors, dynamic=False)

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum of the losses of all that counts in a batch; divide by `batch.targets` for the mean."""
        network = self.network
        weights = {name: parameter.to(self.dtype) for name, parameter in network.named_parameters()}
        found = self.vectors(network, weights, *inputs(network, batch))  # [B, T, C], or with classes [B, classes]
        if network.config.classes:
            return F.cross_entropy(
                found.float(), batch.labels, reduction="sum", ignore_index=IGNORE, label_smoothing=self.smoothing
            )
        weight = weights["embedding.tokens.weight" if network.config.tied else "output.weight"]
        bias = weights.get("output_bias")
        weight = weight[: network.config.outputs]
        return loss_sum(found.flatten(0, 1), weight, bias, batch.labels.flatten(), self.smoothing)
