"""Adam on float32 weights, whatever precision the network computes in.

A network in bfloat16 or float16 is a copy of float32 weights kept here, so that small updates are not rounded away; it
is refreshed after each update. Everything stays on the device: an update that is not finite is skipped without the host
reading it, and clipping is part of the update.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.training.parallel import shard_like
from regard.training.recipe import TrainSection

ADAM_STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")
"""Names of the values that Adam stores for each weight."""
GROWTH_INTERVAL = 2_000
"""Number of finite updates in float16 before the scale of the loss is doubled."""


def adam(
    weights: Sequence[Tensor], train: TrainSection, lr: float = 0.0, fused: bool = True, capturable: bool = False
) -> torch.optim.Adam:
    """PyTorch's Adam or AdamW as the recipe says. Weight decay applies to matrices only."""
    kind = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
    decay = train.weight_decay if train.optimizer == "adamw" else 0.0
    groups = [
        {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": decay},
        {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
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

    def __init__(self, network: nn.Module, train: TrainSection, half: bool | None = None) -> None:
        """`half` says whether the network computes in float16; by default its weights decide."""
        named = dict(network.named_parameters())
        self.names = list(named)
        self.parameters: list[Tensor] = list(named.values())
        self.copies_weights = any(parameter.dtype != torch.float32 for parameter in self.parameters)
        self.weights: list[Tensor] = list(self.parameters)
        if self.copies_weights:
            self.weights = [parameter.detach().float().clone() for parameter in self.parameters]
        self.sharded = any(hasattr(weight, "full_tensor") for weight in self.weights)
        self.clip = train.clip
        capturable = self.weights[0].is_cuda and not self.sharded  # so that a step can be recorded as a CUDA graph
        self.adam = adam(self.weights, train, fused=not self.sharded, capturable=capturable)
        self.lr = torch.zeros((), device=self.weights[0].device)
        if not self.sharded:
            for group in self.adam.param_groups:
                group["lr"] = self.lr  # a tensor, which a recorded step can read
        if half is None:
            half = any(parameter.dtype == torch.float16 for parameter in self.parameters)
        device = self.weights[0].device
        self.loss_scale = torch.tensor(2.0**16 if half else 1.0, device=device)
        """Factor of the loss before the backward pass, so that float16 gradients do not underflow."""
        self.growth = torch.tensor(0, dtype=torch.int32, device=device) if half else None
        self.scales_loss = half

    def collect_gradients(self) -> None:
        """Add the network's gradients to those of the float32 weights, and drop the former."""
        if not self.copies_weights:
            return
        pairs = zip(self.weights, self.parameters, strict=True)
        gradients = [(weight, parameter.grad) for weight, parameter in pairs if parameter.grad is not None]
        first = [(weight, gradient) for weight, gradient in gradients if weight.grad is None]
        later = [(weight.grad, gradient) for weight, gradient in gradients if weight.grad is not None]
        for weight, _ in first:
            weight.grad = torch.empty_like(weight)
        if first:
            copies = [weight.grad for weight, _ in first]
            torch._foreach_copy_(copies, [gradient for _, gradient in first])  # type: ignore[arg-type]
        if later:
            torch._foreach_add_(*zip(*later, strict=True))
        for parameter in self.parameters:
            parameter.grad = None

    def clear_gradients(self) -> None:
        """Drop all gradients."""
        for tensor in (*self.parameters, *self.weights):
            tensor.grad = None

    def discard_partial_step(self) -> None:
        """After running out of memory: drop the gradients, and moments that were only partly created."""
        self.clear_gradients()
        for weight in self.weights:
            if not set(ADAM_STATE_KEYS) <= set(self.adam.state.get(weight, {})):
                self.adam.state.pop(weight, None)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate of the next updates."""
        self.lr.fill_(lr)
        if self.sharded:
            for group in self.adam.param_groups:
                group["lr"] = lr

    @torch.no_grad()
    def update(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Update the weights, unless the loss or the gradient is not finite.

        Returns the norm of the gradient, and 1.0 if the update was skipped.
        """
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        norm = (norm.full_tensor() if hasattr(norm, "full_tensor") else norm) / self.loss_scale
        skipped = (~(norm.isfinite() & loss.isfinite())).float()
        divisor = self.loss_scale * (norm / self.clip).clamp(min=1.0).nan_to_num() if self.clip else self.loss_scale
        if self.sharded:  # the fused update does not accept sharded and unsharded tensors together
            if not skipped:
                torch._foreach_div_(gradients, divisor)
                self.adam.step()
        else:
            self.adam.grad_scale, self.adam.found_inf = divisor, skipped  # type: ignore[attr-defined]
            self.adam.step()
        if self.growth is not None:
            torch._amp_update_scale_(self.loss_scale, self.growth, skipped, 2.0, 0.5, GROWTH_INTERVAL)
        if self.copies_weights:
            torch._foreach_copy_(self.parameters, self.weights)
        self.clear_gradients()
        return norm, skipped

    def state(self) -> dict[str, Tensor]:
        """Everything the next update depends on except the weights, by name."""
        state: dict[str, Tensor] = {"scale": self.loss_scale}
        if self.growth is not None:
            state["growth"] = self.growth
        for name, weight in zip(self.names, self.weights, strict=True):
            for kind, value in self.adam.state.get(weight, {}).items():
                state[f"{kind}.{name}"] = value
        return state

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Restore weights, and the result of `state` that belongs to them."""
        for name, weight, parameter in zip(self.names, self.weights, self.parameters, strict=True):
            weight.copy_(shard_like(weights[name], weight))
            if self.copies_weights:
                parameter.copy_(weight)
            moments = {kind: state[f"{kind}.{name}"] for kind in ADAM_STATE_KEYS if f"{kind}.{name}" in state}
            self.adam.state[weight] = {
                kind: shard_like(value, weight).clone()  # a view would keep the file mapped
                if value.dim()
                else value.to("cpu" if self.sharded else weight.device, copy=True)
                for kind, value in moments.items()
            }
        if self.growth is not None and "growth" in state:  # absent if saved in another precision
            self.loss_scale.copy_(state["scale"])
            self.growth.copy_(state["growth"])

    def named_weights(self) -> dict[str, Tensor]:
        """The float32 weights."""
        return dict(zip(self.names, self.weights, strict=True))
