"""What steps give, read from the device now and then: on a GPU each look makes the host wait for it."""

import time
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

READ_EVERY = {"cpu": 1, "cuda": 10}
"""steps between looks"""


@dataclass(frozen=True)
class Reading:
    """Means and sums over the steps since the last one."""

    loss: float
    gradient: float
    """of the last step"""
    tokens_per_second: float
    flops_per_second: float


class Meter:
    """Keeps what steps give until someone looks. Time spent elsewhere, between `pause` and `go`, is left out."""

    def __init__(self, device: torch.device, seconds: float = 0.0, loss: float = 0.0, counted: float = 0.0) -> None:
        self.most = READ_EVERY.get(device.type, 10)
        self.waiting: list[tuple[int, Float[Tensor, 3]]] = []
        self.seconds = seconds
        """of training, those of earlier processes counted"""
        self.go()
        self._clear()
        self.loss, self.counted = loss, counted

    def go(self) -> None:
        """The clock runs."""
        self.since = time.perf_counter()

    def pause(self) -> None:
        """The clock stands still."""
        self.seconds += time.perf_counter() - self.since

    def now(self) -> float:
        """Seconds of training up to now."""
        return self.seconds + time.perf_counter() - self.since

    def add(self, step: int, found: Float[Tensor, "3"], targets: float, flops: float) -> None:
        """What a step gave: the sum of its losses, the gradient's norm, whether the update was left out."""
        self.waiting.append((step, found))
        self.targets[step] = targets
        self.flops += flops

    @property
    def full(self) -> bool:
        """Whether it is time to look."""
        return len(self.waiting) >= self.most

    def look(self) -> list[tuple[int, bool]]:
        """Wait for the device; each step since the last look, and whether its update was left out."""
        if not self.waiting:
            return []
        values = torch.stack([found for _, found in self.waiting]).tolist()
        steps = [(step, bool(bad)) for (step, _), (_, _, bad) in zip(self.waiting, values, strict=True)]
        for (step, bad), (loss, norm, _) in zip(steps, values, strict=True):
            self.gradient = norm
            if not bad:
                self.loss += loss
                self.counted += self.targets[step]
        self.waiting.clear()
        return steps

    def reading(self) -> Reading:
        """Means over the steps since the last reading, all of which have been looked at."""
        self.pause()
        self.go()
        seconds = max(1e-9, self.seconds - self.begun)
        loss = self.loss / self.counted if self.counted else float("nan")
        found = Reading(loss, self.gradient, sum(self.targets.values()) / seconds, self.flops / seconds)
        self._clear()
        return found

    def _clear(self) -> None:
        self.begun = self.seconds
        self.loss = self.counted = self.flops = self.gradient = 0.0
        self.targets: dict[int, float] = {}
