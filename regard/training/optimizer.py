"""From gradients to new weights: Adam on float32 weights, whatever type the network computes in.

A network in bfloat16 or float16 is a copy of float32 weights kept here, which small updates do not vanish in; it takes
them over after each update. Everything stays on the device: an update that is not finite is left out there, without
the host looking, and the clipping is part of the update.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.training.parallel import shared_like
from regard.training.recipe import Train

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""what Adam keeps of each weight"""
GROWTH_INTERVAL = 2_000
"""float16: so many finite updates before the loss is scaled up again"""


def adam(
    weights: Sequence[Tensor], train: Train, lr: float = 0.0, fused: bool = True, capturable: bool = False
) -> torch.optim.Adam:
    """PyTorch's Adam or AdamW as the recipe says; only matrices decay."""
    kind = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
    decay = train.weight_decay if train.optimizer == "adamw" else 0.0
    groups = [
        {"params": [each for each in weights if each.dim() >= 2], "weight_decay": decay},
        {"params": [each for each in weights if each.dim() < 2], "weight_decay": 0.0},
    ]
    return kind(
        [group for group in groups if group["params"]],
        lr=lr,
        betas=(train.beta1, train.beta2),
        eps=train.eps,
        fused=fused,
        capturable=capturable,
    )


class Optimizer:
    """Adam or AdamW as the recipe says, for the parameters of a network."""

    def __init__(self, network: nn.Module, train: Train, half: bool | None = None) -> None:
        """`half` says whether it computes in float16; if not given, the network's weights tell."""
        named = dict(network.named_parameters())
        self.names = list(named)
        self.parameters: list[Tensor] = list(named.values())
        self.copied = any(each.dtype != torch.float32 for each in self.parameters)
        self.weights: list[Tensor] = list(self.parameters)
        if self.copied:
            self.weights = [each.detach().float().clone() for each in self.parameters]
        self.sharded = any(hasattr(each, "full_tensor") for each in self.weights)
        self.clip = train.clip
        capturable = self.weights[0].is_cuda and not self.sharded  # so that a step can be recorded
        self.adam = adam(self.weights, train, fused=not self.sharded, capturable=capturable)
        self.lr = torch.zeros((), device=self.weights[0].device)
        if not self.sharded:
            for group in self.adam.param_groups:
                group["lr"] = self.lr  # where a recorded step can read it
        if half is None:
            half = any(each.dtype == torch.float16 for each in self.parameters)
        device = self.weights[0].device
        self.scale = torch.tensor(2.0**16 if half else 1.0, device=device)
        """what the loss is multiplied by before the way back, so that float16 gradients do not vanish"""
        self.growth = torch.tensor(0, dtype=torch.int32, device=device) if half else None
        self.scaled = half

    def collect(self) -> None:
        """Add the network's gradients to those of the float32 weights, and clear them."""
        if not self.copied:
            return
        given = [(w, p.grad) for w, p in zip(self.weights, self.parameters, strict=True) if p.grad is not None]
        first = [(w, gradient) for w, gradient in given if w.grad is None]
        later = [(w.grad, gradient) for w, gradient in given if w.grad is not None]
        for weight, _ in first:
            weight.grad = torch.empty_like(weight)
        if first:
            torch._foreach_copy_([w.grad for w, _ in first], [gradient for _, gradient in first])  # type: ignore[misc]
        if later:
            torch._foreach_add_(*zip(*later, strict=True))
        for parameter in self.parameters:
            parameter.grad = None

    def clear(self) -> None:
        """Forget the gradients."""
        for each in (*self.parameters, *self.weights):
            each.grad = None

    def recover(self) -> None:
        """Forget what memory did not suffice for: gradients, and moments that were only begun."""
        self.clear()
        for weight in self.weights:
            if not set(MOMENTS) <= set(self.adam.state.get(weight, {})):
                self.adam.state.pop(weight, None)

    def set_rate(self, lr: float) -> None:
        """The learning rate of the updates to come."""
        self.lr.fill_(lr)
        if self.sharded:
            for group in self.adam.param_groups:
                group["lr"] = lr

    @torch.no_grad()
    def update(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Change the weights, unless the loss or the gradient is not finite: the gradient's norm, and 1.0 if so."""
        gradients = [each.grad for each in self.weights if each.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        norm = (norm.full_tensor() if hasattr(norm, "full_tensor") else norm) / self.scale
        bad = (~(norm.isfinite() & loss.isfinite())).float()
        divisor = self.scale * (norm / self.clip).clamp(min=1.0).nan_to_num() if self.clip else self.scale
        if self.sharded:  # the fused update does not take shares with numbers that are no shares
            if not bad:
                torch._foreach_div_(gradients, divisor)
                self.adam.step()
        else:
            self.adam.grad_scale, self.adam.found_inf = divisor, bad  # type: ignore[attr-defined]
            self.adam.step()
        if self.growth is not None:
            torch._amp_update_scale_(self.scale, self.growth, bad, 2.0, 0.5, GROWTH_INTERVAL)
        if self.copied:
            torch._foreach_copy_(self.parameters, self.weights)
        self.clear()
        return norm, bad

    def state(self) -> dict[str, Tensor]:
        """All that the next update depends on beside the weights, by name."""
        found: dict[str, Tensor] = {"scale": self.scale}
        if self.growth is not None:
            found["growth"] = self.growth
        for name, weight in zip(self.names, self.weights, strict=True):
            for kind, value in self.adam.state.get(weight, {}).items():
                found[f"{kind}.{name}"] = value
        return found

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Take over weights, and what `state` gave with them."""
        for name, weight, parameter in zip(self.names, self.weights, self.parameters, strict=True):
            weight.copy_(shared_like(weights[name], weight))
            if self.copied:
                parameter.copy_(weight)
            held = {kind: state[f"{kind}.{name}"] for kind in MOMENTS if f"{kind}.{name}" in state}
            self.adam.state[weight] = {
                kind: shared_like(value, weight).clone()  # a file that is mapped could not be removed
                if value.dim()
                else value.to("cpu" if self.sharded else weight.device, copy=True)
                for kind, value in held.items()
            }
        if self.growth is not None and "growth" in state:  # else it was computed in another type, without a scale
            self.scale.copy_(state["scale"])
            self.growth.copy_(state["growth"])

    def named_weights(self) -> dict[str, Tensor]:
        """The float32 weights."""
        return dict(zip(self.names, self.weights, strict=True))
