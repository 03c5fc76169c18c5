"""The training objective: the sum of the losses of a batch.

With `consistency` each batch passes through the network twice, with different dropout, and the divergence of the two
predictions is added to the mean of both losses: R-Drop (Liang et al., 2021), for small corpora.

Dimensions: B rows, T tokens, N tokens of all rows, C model width, V outputs, K classes.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import IGNORED_TARGET, Batch
from regard.model.transformer import EncoderDecoder, Network
from regard.training.loss import loss_sum

MIX_ORDER_OPTION = "triton.mix_order_reduction"


def inductor_options() -> dict[str, Any]:
    """Options of torch.compile.

    Summing a norm's gradients over its width and over the rows in one kernel takes three times as long as in two: 5.3
    instead of 1.9 ms per step of Transformer-base (width 512, with dropout, on an H200).
    """
    import torch._inductor  # takes a second, which uncompiled training need not spend

    return {MIX_ORDER_OPTION: False} if MIX_ORDER_OPTION in torch._inductor.list_options() else {}


class Objective(nn.Module):
    """A network and its loss. Only the network is compiled; the loss has its own kernel."""

    def __init__(
        self, network: Network, smoothing: float = 0.0, compiled: bool = False, consistency: float = 0.0
    ) -> None:
        super().__init__()
        self.network = network
        self.smoothing = smoothing
        self.consistency = consistency
        forward: Callable[..., Tensor] = network.forward if network.config.is_classifier else network.hidden
        self.run_network = torch.compile(forward, options=inductor_options()) if compiled else forward
        self.consistency_loss = torch.compile(consistency_loss) if compiled else consistency_loss

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum of the losses of a batch; divide by `batch.targets` for the mean."""
        network = self.network
        if network.config.is_classifier:
            logits = self.run_network(batch.tokens, batch.lengths).float()  # [B, K]
            return F.cross_entropy(
                logits, batch.labels, reduction="sum", ignore_index=IGNORED_TARGET, label_smoothing=self.smoothing
            )
        if self.consistency:
            batch = batch.twice()
        hidden = network.transform(self.run_network(*network_inputs(network, batch))).flatten(0, 1)  # [N, C]
        labels, output = batch.labels.flatten(), (network.output_weight, network.output_bias)
        if not self.consistency:
            return loss_sum(hidden, *output, labels, self.smoothing)
        return self.consistency_loss(F.linear(hidden, *output), labels, self.smoothing, self.consistency)


def consistency_loss(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], smoothing: float, consistency: float
) -> Float[Tensor, ""]:
    """The mean loss of two predictions, one in each half of the rows, plus their weighted divergence.

    The divergence is Kullback and Leibler's, averaged over both directions. Its weight is half of `consistency`,
    because each of the two losses counts half.
    """
    log_probs, counted = logits.float().log_softmax(-1), labels != IGNORED_TARGET  # [N, V], [N]
    label_log_probs = log_probs.gather(1, labels.clamp(min=0)[:, None])[:, 0]  # [N]
    losses = -(1 - smoothing) * label_log_probs - smoothing * log_probs.mean(-1)  # [N]
    first, second = log_probs.chunk(2)  # [N / 2, V]
    counted_first = counted[: len(first)]
    divergence = ((first.exp() - second.exp()) * (first - second)).sum(-1) * counted_first  # [N / 2]
    return (losses * counted).sum() / 2 + consistency / 4 * divergence.sum()


def network_inputs(network: Network, batch: Batch) -> tuple[Tensor | None, ...]:
    """The arguments of the network for a batch."""
    if isinstance(network, EncoderDecoder):
        return batch.source, batch.tokens, batch.source_lengths, batch.lengths
    return (batch.tokens, batch.lengths) if batch.prefix is None else (batch.tokens, batch.lengths, batch.prefix)
