"""Probes of a training loop: rates, losses, clipped gradients, and the updates of a tiny model.

The optimizer is plain gradient descent, so that the size of the gradients matters. It records the rates and the norms
of the gradients with which it is called.
"""

from typing import Any

import torch
from torch import Tensor, nn

from regard.course.assignment import Names
from regard.course.fixed_weights import inputs, seeded_normal, set_weights
from regard.course.probe_values import written_parts

VOCAB, PAD = 5, 0
BATCHES = [
    (torch.tensor([[1, 2, 3], [4, 3, 0]]), torch.tensor([[2, 3, 4], [3, 0, 0]])),
    (torch.tensor([[2, 2, 1], [1, 4, 2]]), torch.tensor([[2, 1, 4], [4, 2, 3]])),
    (torch.tensor([[3, 0, 0]]), torch.tensor([[1, 0, 0]])),
    (torch.tensor([[4, 1, 1, 2]]), torch.tensor([[1, 1, 2, 0]])),
    (torch.tensor([[2, 3], [1, 1], [4, 2]]), torch.tensor([[3, 4], [1, 0], [2, 2]])),
]
"""Inputs and targets, with different numbers of tokens."""


class _Model(nn.Module):
    """Logits from the current token only. It records whether it was in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 4)
        self.out = nn.Linear(4, VOCAB)
        self.modes: list[bool] = []

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, seq] → [batch, seq, vocab]."""
        self.modes.append(self.training)
        logits: Tensor = self.out(self.embedding(tokens))
        return logits


class _RecordingOptimizer(torch.optim.SGD):
    """Gradient descent that records its rates and gradients."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, lr=1.0)
        self.rates: list[list[float]] = []
        self.norms: list[Tensor] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Record, then update the weights."""
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        self.norms.append(torch.stack([gradient.norm() for gradient in gradients] or [torch.zeros(())]).norm())
        self.rates.append([group["lr"] for group in self.param_groups])
        super().step(closure)


def _train(names: Names, batches: Any, accumulate: int, max_norm: float, groups: int = 1) -> dict[str, Tensor]:
    """Train a new model and return everything that the updates changed."""
    model = set_weights(_Model()).eval()
    parts = [model.parameters()] if groups == 1 else [model.embedding.parameters(), model.out.parameters()]
    optimizer = _RecordingOptimizer([{"params": list(part)} for part in parts])
    losses = names["train"](model, optimizer, batches, accumulate, 16, 2, max_norm, 0.1, PAD)
    return {
        "losses": torch.tensor([float(torch.as_tensor(loss).detach()) for loss in losses]),
        "plain numbers": torch.tensor(not any(isinstance(loss, Tensor) and loss.requires_grad for loss in losses)),
        "learning rates": torch.tensor(optimizer.rates),
        "gradient norms": torch.stack(optimizer.norms) if optimizer.norms else torch.zeros(0),
        "embeddings": model.embedding.weight.detach(),
        "weights": model.out.weight.detach(),
        "in training mode": torch.tensor(bool(model.modes) and all(model.modes)),
    }


def _loss(names: Names, logits: Tensor, targets: Tensor, smoothing: float) -> dict[str, Tensor]:
    total, count = names["smoothed_loss"](logits, targets, smoothing, PAD)
    return {"sum": torch.as_tensor(total), "count": torch.as_tensor(int(count))}


def _clip(names: Names, scale: float, max_norm: float, as_list: bool) -> dict[str, Tensor]:
    """The gradients of three parameters after clipping, one of which has none, and the norm that was returned."""
    shapes = {"matrix": (2, 3), "vector": (4,), "unused": (2,)}
    parameters = {name: nn.Parameter(seeded_normal(name, *shape)) for name, shape in shapes.items()}
    for name in ("matrix", "vector"):
        parameters[name].grad = scale * seeded_normal(f"{name} gradient", *shapes[name])
    values = parameters.values()
    norm = names["clip_gradients"](list(values) if as_list else (parameter for parameter in values), max_norm)
    clipped = {f"{name}'s gradient": parameters[name].grad for name in ("matrix", "vector")}
    return {
        "norm": torch.as_tensor(float(torch.as_tensor(norm).detach())),
        "vector": parameters["vector"].detach(),
        **clipped,
    }  # type: ignore[dict-item]


def example(names: Names) -> dict[str, Tensor]:
    """A rate, the loss of two rows of three tokens, clipped gradients, and two updates."""
    targets = torch.tensor([[3, 1, 4], [2, PAD, PAD]])
    values = written_parts(
        {
            "rate": lambda: torch.as_tensor(float(names["learning_rate"](2, 16, 4))),
            "loss": lambda: _loss(names, inputs(2, 3, VOCAB), targets, 0.2),
            "clipped": lambda: _clip(names, 1.0, 0.5, as_list=True),
            "train": lambda: _train(names, BATCHES[:3], 2, 0.5),
        }
    )
    nested = {name: value if isinstance(value, dict) else {"": value} for name, value in values.items()}
    return {f"{name} {key}".strip(): value for name, part in nested.items() for key, value in part.items()}


def rates(names: Names) -> dict[str, Tensor]:
    """The learning rates during and after warm-up, for two widths."""
    settings = {"width 16, warmup 5": (16, 5), "width 512, warmup 4000": (512, 4000)}
    steps = (1, 2, 4, 5, 6, 20, 3999, 10_000)
    return {
        name: torch.tensor([1000 * float(names["learning_rate"](step, *setting)) for step in steps])
        for name, setting in settings.items()
    }


def losses(names: Names) -> dict[str, Tensor]:
    """Losses with and without smoothing and padding, and the gradient of the logits."""
    logits = (2 * inputs(3, 4, VOCAB)).requires_grad_()
    full, padded = (
        torch.tensor([[1, 2, 3, 4], [4, 4, 2, 1], [3, 1, 1, 2]]),
        torch.tensor([[1, 0, 0, 0], [2, 4, 0, 0], [3, 1, 2, 0]]),
    )
    values: dict[str, Tensor] = {}
    for name, targets, smoothing in [("plain", full, 0.0), ("smoothed", full, 0.3), ("padded", padded, 0.1)]:
        values |= {f"{name}, {key}": value for key, value in _loss(names, logits, targets, smoothing).items()}
    if values["padded, sum"].requires_grad:
        values["gradient"] = torch.autograd.grad(values["padded, sum"], logits)[0]
    return values


def clipping(names: Names) -> dict[str, Tensor]:
    """Large and small gradients, of a list of parameters and of a generator."""
    values: dict[str, Tensor] = {}
    for name, scale, max_norm, as_list in [
        ("large", 3.0, 1.0, True),
        ("small", 0.01, 1.0, True),
        ("from a generator", 2.0, 0.7, False),
    ]:
        values |= {f"{name}, {key}": value for key, value in _clip(names, scale, max_norm, as_list).items()}
    return values


def updates(names: Names) -> dict[str, Tensor]:
    """Three updates of one batch each. Only large gradients are clipped."""
    return _train(names, BATCHES[:3], 1, 0.6)


def accumulation(names: Names) -> dict[str, Tensor]:
    """Five batches, two for each update: the last update has one. Nothing is clipped."""
    return _train(names, BATCHES, 2, 100.0)


def groups(names: Names) -> dict[str, Tensor]:
    """An optimizer with two groups of parameters, and three batches for each update."""
    return _train(names, BATCHES, 3, 0.4, groups=2)
