"""What is trained for: a batch to the sum of its losses.

Dimensions: B rows, T tokens, C model width, K classes.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch._inductor
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.transformer import EncoderDecoder, Network
from regard.text.batches import IGNORE, Batch
from regard.train.loss import loss_sum

MIXED = "triton.mix_order_reduction"
INDUCTOR: dict[str, Any] = {MIXED: False} if MIXED in torch._inductor.list_options() else {}
"""To sum a norm's gradients over its width and over the rows in one kernel takes thrice as long as in two, at width 512
with dropout on an H200 (5.3 against 1.9 ms a step of Transformer-base)."""


class Objective(nn.Module):
    """A network and its loss. Compiled is the network alone: the loss has a kernel of its own."""

    def __init__(self, network: Network, smoothing: float = 0.0, compiled: bool = False) -> None:
        super().__init__()
        self.network = network
        self.smoothing = smoothing
        found: Callable[..., Tensor] = network.forward if network.config.classes else network.hidden
        self.found = torch.compile(found, options=INDUCTOR) if compiled else found

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum of the losses of all that counts in a batch; divide by `batch.targets` for the mean."""
        network = self.network
        if network.config.classes:
            logits = self.found(batch.tokens, batch.lengths).float()  # [B, K]
            return F.cross_entropy(
                logits, batch.labels, reduction="sum", ignore_index=IGNORE, label_smoothing=self.smoothing
            )
        hidden = network.transform(self.found(*inputs(network, batch)))  # [B, T, C]
        labels = batch.labels.flatten()
        return loss_sum(hidden.flatten(0, 1), network.output_weight, network.output_bias, labels, self.smoothing)


def inputs(network: Network, batch: Batch) -> tuple[Tensor | None, ...]:
    """What the network reads of a batch."""
    if isinstance(network, EncoderDecoder):
        return batch.source, batch.tokens, batch.source_lengths, batch.lengths
    return (batch.tokens, batch.lengths) if batch.prefix is None else (batch.tokens, batch.lengths, batch.prefix)
