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
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import IGNORE, Batch
from regard.model.transformer import EncoderDecoder, Network
from regard.training.loss import loss_sum

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
        self.agreement = torch.compile(agreement) if compiled else agreement

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
        if not self.consistency:
            return loss_sum(hidden, *output, labels, self.smoothing)
        return self.agreement(F.linear(hidden, *output), labels, self.smoothing, self.consistency)


def agreement(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], smoothing: float, consistency: float
) -> Float[Tensor, ""]:
    """The mean loss of two answers, each half of the rows, and by how much they differ.

    That is Kullback and Leibler's divergence, the mean of both ways, weighed by half of `consistency`, as the loss is.
    """
    log_probs, counted = logits.float().log_softmax(-1), labels != IGNORE  # [N, V], [N]
    said = log_probs.gather(1, labels.clamp(min=0)[:, None])[:, 0]  # [N]
    losses = -(1 - smoothing) * said - smoothing * log_probs.mean(-1)  # [N]
    p, q = log_probs.chunk(2)  # [N / 2, V]
    apart = ((p.exp() - q.exp()) * (p - q)).sum(-1) * counted[: len(p)]  # [N / 2]
    return (losses * counted).sum() / 2 + consistency / 4 * apart.sum()


def inputs(network: Network, batch: Batch) -> tuple[Tensor | None, ...]:
    """What the network reads of a batch."""
    if isinstance(network, EncoderDecoder):
        return batch.source, batch.tokens, batch.source_lengths, batch.lengths
    return (batch.tokens, batch.lengths) if batch.prefix is None else (batch.tokens, batch.lengths, batch.prefix)
