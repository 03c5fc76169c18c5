"""The mean of the weights at the last validations: the paper's way to a better model at the end."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


class Average:
    """Keeps the last `count` weights it was given, on the host."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.kept: dict[int, dict[str, Tensor]] = {}

    def add(self, step: int, weights: Weights) -> Weights:
        """The mean of these weights and of those kept before them; of one alone, itself."""
        if self.count == 1:
            return weights
        self.kept[step] = {name: x.to("cpu", copy=True) for name, x in weights.items()}
        for old in sorted(self.kept)[: -self.count]:
            del self.kept[old]
        held = list(self.kept.values())
        return {name: torch.stack([each[name] for each in held]).mean(0) for name in weights}

    def tensors(self) -> dict[str, Tensor]:
        """All that is kept, by name, for a checkpoint."""
        return {f"kept.{step}.{name}": x for step, held in self.kept.items() for name, x in held.items()}

    def load(self, steps: Sequence[int], names: Sequence[str], tensors: Weights) -> None:
        """Take over what `tensors` gave."""
        self.kept = {step: {name: tensors[f"kept.{step}.{name}"].clone() for name in names} for step in steps}
