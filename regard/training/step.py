"""Runs one update on the device: recorded as a CUDA graph where possible, in smaller pieces when memory runs out."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import RegardError
from regard.model.tensor_checks import skipping_value_checks
from regard.training.cuda_graph_training import StepRecorder
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks

Update = Callable[[Sequence[Batch], nn.Module, Optimizer, Ranks, Tensor], Tensor]
"""A function like `regard.training.train.update_weights`."""


class StepRunner:
    """Runs updates on a device. After a batch did not fit into memory, all later batches are split."""

    def __init__(
        self,
        update: Update,
        objective: nn.Module,
        optimizer: Optimizer,
        device: torch.device,
        ranks: Ranks,
        record: bool = True,
        on_split: Callable[[int], None] | None = None,
    ) -> None:
        """`on_split` is called with the number of pieces per batch whenever it has grown."""
        self.update, self.objective, self.optimizer, self.ranks = update, objective, optimizer, ranks
        self.device, self.on_split = device, on_split
        self.pieces = 1
        """Number of pieces each batch is split into."""
        self.targets = torch.ones((), device=device)
        record = record and device.type == "cuda" and ranks.count == 1
        self.recorder = StepRecorder(self._run) if record else None

    def step(self, batches: Sequence[Batch], lr: float, targets: float) -> Float[Tensor, "3"]:
        """Run one update on the batches.

        Returns the sum of the losses, the norm of the gradient, and 1 if the update was skipped because either was not
        finite. `targets` is the number of targets in all batches on all ranks: the gradient is that of the mean loss.
        """
        self.optimizer.set_learning_rate(lr)
        self.targets.fill_(max(1.0, targets))
        pieces = self.pieces
        result = self._try(batches)
        while result is None:
            self._split(batches)
            result = self._try(batches)
        if self.pieces > pieces and self.on_split is not None:
            self.on_split(self.pieces)
        return result

    def _try(self, batches: Sequence[Batch]) -> Float[Tensor, "3"] | None:
        """One update, or None if the memory did not suffice."""
        try:
            with skipping_value_checks():  # these batches were made by Regard
                if self.recorder is not None:
                    return self.recorder(batches)
                return self._run([batch.to(self.device) for batch in batches])
        except torch.OutOfMemoryError:
            return None

    def _run(self, batches: Sequence[Batch]) -> Float[Tensor, "3"]:
        """Everything the device does in a step. The host waits for nothing."""
        pieces = [piece for batch in batches for piece in batch.split(self.pieces)]
        return self.update(pieces, self.objective, self.optimizer, self.ranks, self.targets)

    def _split(self, batches: Sequence[Batch]) -> None:
        """Use smaller pieces from now on; an error if that cannot help."""
        self.optimizer.discard_partial_step()
        recorder, self.recorder = self.recorder, None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if recorder is not None:  # graphs have memory of their own: without them the batch may fit
            return
        rows = max(len(batch.tokens) for batch in batches)
        if self.ranks.count > 1 or self.pieces >= rows:
            row_by_row = "" if self.ranks.count > 1 else ", even row by row"
            raise RegardError(
                f"a batch of {rows} rows × {batches[0].tokens.size(1)} tokens does not fit into memory{row_by_row}: "
                "lower train.batch_tokens or train.max_length"
            )
        self.pieces *= 2
