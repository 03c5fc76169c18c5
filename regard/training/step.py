"""One update of the weights: batches to gradients to new weights, whatever fits into memory."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import RegardError
from regard.model.tensor_checks import trusted
from regard.training.cuda_graph_training import Recorder
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks


class Stepper:
    """Makes updates. A batch that does not fit is split, and so are those behind it."""

    def __init__(
        self, objective: nn.Module, optimizer: Optimizer, device: torch.device, ranks: Ranks, record: bool = True
    ) -> None:
        self.objective, self.optimizer, self.device, self.ranks = objective, optimizer, device, ranks
        self.pieces = 1
        """parts that each batch is split into"""
        self.total = torch.ones((), device=device)
        record = record and device.type == "cuda" and ranks.count == 1
        self.recorder = Recorder(self._work) if record else None

    def step(self, batches: Sequence[Batch], lr: float, total: float) -> Float[Tensor, "3"]:
        """The sum of the losses, the gradient's norm, and 1 if the update was left out since either was not finite.

        `total` is the number of targets over all batches and ranks: the gradient is that of the mean over them.
        """
        self.optimizer.set_rate(lr)
        self.total.fill_(max(1.0, total))
        while True:
            try:
                with trusted():  # we made the batches
                    return (
                        self.recorder(batches)
                        if self.recorder
                        else self._work([each.to(self.device) for each in batches])
                    )
            except torch.OutOfMemoryError:
                self._split(batches)

    def _work(self, batches: Sequence[Batch]) -> Float[Tensor, "3"]:
        """All that a device does in a step; the host waits for nothing."""
        pieces = [piece for batch in batches for piece in batch.split(self.pieces)]
        factor = self.optimizer.scale * self.ranks.count / self.total  # the ranks' gradients are averaged
        loss = torch.zeros((), device=self.device)
        for number, piece in enumerate(pieces, 1):
            # What is collected below must have been averaged; float32 gradients can wait for the last piece.
            now = number == len(pieces) or self.optimizer.copied
            with self.ranks.gathering(self.objective, now):
                part: Tensor = self.objective(piece)
                (part * factor).backward()  # type: ignore[no-untyped-call]
            self.optimizer.collect()
            loss += part.detach()
        loss = self.ranks.sum_(loss)
        norm, bad = self.optimizer.update(loss)
        return torch.stack([loss, norm, bad])

    def _split(self, batches: Sequence[Batch]) -> None:
        """Smaller pieces from now on; an error where that cannot help."""
        self.optimizer.recover()
        recorded, self.recorder = self.recorder, None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if recorded is not None:  # a graph has memory of its own: without any, the batch may fit
            return
        rows = max(len(batch.tokens) for batch in batches)
        if self.ranks.count > 1 or self.pieces >= rows:
            raise RegardError(
                f"a batch of {rows} rows × {batches[0].tokens.size(1)} tokens does not fit into memory"
                f"{'' if self.ranks.count > 1 else ', even row by row'}: lower train.batch_tokens, or train.max_length"
            )
        self.pieces *= 2
