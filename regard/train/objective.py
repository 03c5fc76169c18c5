"""What is trained for: a batch to the sum of its losses.

With `consistency` a batch goes through the network twice, under two dropouts, and beside the mean of both losses the
divergence of the two answers counts: R-Drop (Liang and others, 2021), for small corpora.

Dimensions: B rows, T tokens, N tokens of all rows, C model width, V outputs, K classes.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch._inductor
import torch.nn.functional as F
from jaxtyping import Bool, Float
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

    def __init__(
        self, network: Network, smoothing: float = 0.0, compiled: bool = False, consistency: float = 0.0
    ) -> None:
        super().__init__()
        self.network = network
        self.smoothing = smoothing
        self.consistency = consistency
        found: Callable[..., Tensor] = network.forward if network.config.classes else network.hidden
        self.found = torch.compile(found, options=INDUCTOR) if compiled else found
        self.divergence = torch.compile(divergence) if compiled else divergence

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum of the losses of all that counts in a batch; divide by `batch.targets` for the mean."""
        network = self.network
        if network.config.classes:
            logits = self.found(batch.tokens, batch.lengths).float()  # [B, K]
            return F.cross_entropy(
                logits, batch.labels, reduction="sum", ignore_index=IGNORE, label_smoothing=self.smoothing
            )
        if self.consistency:
            batch = batch.twice()
        hidden = network.transform(self.found(*inputs(network, batch))).flatten(0, 1)  # [N, C]
        labels, output = batch.labels.flatten(), (network.output_weight, network.output_bias)
        loss = loss_sum(hidden, *output, labels, self.smoothing)
        if not self.consistency:
            return loss
        first, second = F.linear(hidden, *output).chunk(2)  # [N / 2, V]
        counted = labels[: len(first)] != IGNORE
        return loss / 2 + self.consistency / 4 * self.divergence(first, second, counted)


def divergence(
    first: Float[Tensor, "N V"], second: Float[Tensor, "N V"], counted: Bool[Tensor, " N"]
) -> Float[Tensor, ""]:
    """How far two answers are apart, by their logits: Kullback and Leibler's divergence, both ways, summed."""
    p, q = first.float().log_softmax(-1), second.float().log_softmax(-1)
    return (((p.exp() - q.exp()) * (p - q)).sum(-1) * counted).sum()


def inputs(network: Network, batch: Batch) -> tuple[Tensor | None, ...]:
    """What the network reads of a batch."""
    if isinstance(network, EncoderDecoder):
        return batch.source, batch.tokens, batch.source_lengths, batch.lengths
    return (batch.tokens, batch.lengths) if batch.prefix is None else (batch.tokens, batch.lengths, batch.prefix)
