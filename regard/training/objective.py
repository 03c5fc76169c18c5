"""The training objective: the sum of the losses of a batch.

The losses of Regard's networks are computed without holding all logits (see `regard.training.loss`). For a user's own
network or loss, all logits of a batch are held.

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
from regard.decoding.own_network import OwnNetwork
from regard.errors import RegardError
from regard.model.transformer import EncoderDecoder, Network
from regard.training.loss import loss_sum

OwnLoss = Callable[[Tensor, Tensor], Tensor]
"""A user's loss: a function of the logits [N, V] of all positions that count and of their targets [N]. It returns the
mean loss, as `F.cross_entropy` does, or one loss per target [N]."""

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
        self,
        network: Network,
        smoothing: float = 0.0,
        compiled: bool = False,
        consistency: float = 0.0,
        own_loss: OwnLoss | None = None,
    ) -> None:
        """`own_loss` takes the place of the cross-entropy; `smoothing` and `consistency` do not affect it."""
        super().__init__()
        self.network = network
        self.smoothing = smoothing
        self.consistency = consistency
        self.own_loss = own_loss
        self.needs_logits = own_loss is not None or isinstance(network, OwnNetwork)
        forward: Callable[..., Tensor]
        forward = network.forward if network.config.is_classifier or self.needs_logits else network.hidden
        self.run_network: Callable[..., Tensor]
        self.run_network = torch.compile(forward, options=inductor_options()) if compiled else forward
        self.consistency_loss = torch.compile(consistency_loss) if compiled else consistency_loss

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum of the losses of a batch; divide by `batch.targets` for the mean."""
        network = self.network
        if self.needs_logits:
            return self._loss_of_logits(batch)
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

    def _loss_of_logits(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum of the losses of a user's own network, or by a user's own loss."""
        is_doubled = bool(self.consistency) and self.own_loss is None and not self.network.config.classes
        batch = batch.twice() if is_doubled else batch
        logits = self.run_network(*network_inputs(self.network, batch)).flatten(0, -2).float()  # [N, V]
        labels = batch.labels.flatten()  # [N]
        if self.own_loss is not None:
            counted = labels != IGNORED_TARGET
            return own_loss_sum(self.own_loss, logits[counted], labels[counted])
        if is_doubled:
            return self.consistency_loss(logits, labels, self.smoothing, self.consistency)
        return F.cross_entropy(
            logits, labels, reduction="sum", ignore_index=IGNORED_TARGET, label_smoothing=self.smoothing
        )


def own_loss_sum(loss: OwnLoss, logits: Float[Tensor, "N V"], targets: Int[Tensor, " N"]) -> Float[Tensor, ""]:
    """The sum of a user's loss over the targets, whether it returns one loss per target or their mean."""
    if not len(targets):
        return logits.sum() * 0.0  # the mean of no losses would be NaN
    result: object = loss(logits, targets)
    if not isinstance(result, Tensor) or result.shape not in ((), targets.shape):
        returned = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise RegardError(
            f"your loss returned {returned} for logits {list(logits.shape)} and targets {list(targets.shape)}: return "
            f"the mean loss, a tensor without dimensions, or one loss per target, {list(targets.shape)}"
        )
    return result.sum() if result.dim() else result * len(targets)


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
