"""The results of steps, read from the device now and then: on a GPU each read makes the host wait for it."""

import time
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

READ_EVERY = {"cpu": 1, "cuda": 10}
"""Number of steps between two reads, by the type of the device."""


@dataclass(frozen=True)
class StepMetrics:
    """Averages over the steps since the previous summary."""

    loss: float
    gradient: float
    """Norm of the last step's gradient."""
    tokens_per_second: float
    flops_per_second: float


class StepMeter:
    """Collects the results of steps until they are read. Its clock leaves out the time between `pause` and `resume`."""

    def __init__(
        self, device: torch.device, seconds: float = 0.0, loss: float = 0.0, counted_targets: float = 0.0
    ) -> None:
        """The numbers are those of a resumed run: its training time, and what it had not logged yet."""
        self.capacity = READ_EVERY.get(device.type, 10)
        self.unread: list[tuple[int, Float[Tensor, 3]]] = []
        self.seconds = seconds
        """Seconds of training up to the last pause, including earlier processes."""
        self.resume()
        self._clear()
        self.loss, self.counted_targets = loss, counted_targets

    def resume(self) -> None:
        """Start the clock."""
        self.since = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock."""
        self.seconds += time.perf_counter() - self.since

    def now(self) -> float:
        """Seconds of training up to now."""
        return self.seconds + time.perf_counter() - self.since

    def add(self, step: int, result: Float[Tensor, "3"], targets: float, flops: float) -> None:
        """Add a step's result: the sum of its losses, the norm of its gradient, and whether the update was skipped."""
        self.unread.append((step, result))
        self.targets[step] = targets
        self.flops += flops

    @property
    def full(self) -> bool:
        """Whether enough results are waiting to be read."""
        return len(self.unread) >= self.capacity

    def read(self) -> list[tuple[int, bool]]:
        """Wait for the device. Returns each step since the last read and whether its update was skipped."""
        if not self.unread:
            return []
        values = torch.stack([result for _, result in self.unread]).tolist()
        steps = [(step, bool(skipped)) for (step, _), (_, _, skipped) in zip(self.unread, values, strict=True)]
        for (step, skipped), (loss, norm, _) in zip(steps, values, strict=True):
            self.gradient = norm
            if not skipped:
                self.loss += loss
                self.counted_targets += self.targets[step]
        self.unread.clear()
        return steps

    def summarize(self) -> StepMetrics:
        """Averages over the steps since the previous summary, all of which have been read."""
        self.pause()
        self.resume()
        seconds = max(1e-9, self.seconds - self.summary_start)
        loss = self.loss / self.counted_targets if self.counted_targets else float("nan")
        metrics = StepMetrics(loss, self.gradient, sum(self.targets.values()) / seconds, self.flops / seconds)
        self._clear()
        return metrics

    def _clear(self) -> None:
        self.summary_start = self.seconds
        self.loss = self.counted_targets = self.flops = self.gradient = 0.0
        self.targets: dict[int, float] = {}
