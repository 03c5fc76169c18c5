"""The average of the weights at the last validations, as in the paper."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


class WeightAverage:
    """Keeps the last `count` sets of weights in host memory."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.kept: dict[int, dict[str, Tensor]] = {}

    def add(self, step: int, weights: Weights) -> Weights:
        """Add weights and return the average of all that are kept; with a count of 1, the weights themselves."""
        if self.count == 1:
            return weights
        self.kept[step] = {name: x.to("cpu", copy=True) for name, x in weights.items()}
        for old_step in sorted(self.kept)[: -self.count]:
            del self.kept[old_step]
        kept = list(self.kept.values())
        return {name: torch.stack([earlier[name] for earlier in kept]).mean(0) for name in weights}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is kept, by name, for a checkpoint."""
        return {f"kept.{step}.{name}": x for step, weights in self.kept.items() for name, x in weights.items()}

    def load(self, steps: Sequence[int], names: Sequence[str], tensors: Weights) -> None:
        """Restore the result of `tensors`."""
        self.kept = {step: {name: tensors[f"kept.{step}.{name}"].clone() for name in names} for step in steps}
