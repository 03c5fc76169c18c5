"""More than one device: all that knows of ranks.

`torchrun` starts a process for each device and tells each its rank; without it there is one, and nothing here costs
anything. Each batch is shared out over the ranks and the gradients are summed: by DDP, where every rank holds the whole
model, or by FSDP2 (`fully_shard`), where each holds a share of every layer's weights, gradients and moments.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from regard.model.layers import Layer


@dataclass(frozen=True)
class Ranks:
    """This process among all that train the same model."""

    rank: int = 0
    count: int = 1
    local: int = 0
    """its number on this machine"""

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def sums(self, *numbers: float) -> list[float]:
        """Each number, summed over the ranks."""
        if self.count == 1:
            return list(numbers)
        together = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        dist.all_reduce(together)
        return cast("list[float]", together.tolist())

    def sum_(self, tensor: Tensor) -> Tensor:
        """The tensor, summed over the ranks where it lies."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def from_first(self, value: Any) -> Any:
        """What the first rank has."""
        if self.count == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, device=self._device)
        return held[0]

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """The first rank goes through this before the others do: what it leaves in a cache they find there."""
        if not self.first:
            dist.barrier()
        yield
        if self.first and self.count > 1:
            dist.barrier()

    def spread(self, objective: nn.Module, parallel: Literal["ddp", "fsdp"], dtype: torch.dtype) -> nn.Module:
        """The same objective, its gradients averaged over the ranks."""
        if self.count == 1:
            return objective
        if parallel == "fsdp":
            policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
            for module in objective.modules():
                if isinstance(module, Layer):
                    fully_shard(module, mp_policy=policy)
            return cast(nn.Module, fully_shard(objective, mp_policy=policy))
        devices = [self.local] if self._device.type == "cuda" else None
        return DistributedDataParallel(objective, devices, broadcast_buffers=False)

    def gathering(self, objective: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Within, the way back averages gradients over the ranks only for the last piece of a batch."""
        if isinstance(objective, FSDPModule):
            objective.set_requires_gradient_sync(last)
            return nullcontext()
        if isinstance(objective, DistributedDataParallel) and not last:
            return objective.no_sync()
        return nullcontext()

    @property
    def _device(self) -> torch.device:
        return torch.device("cuda", self.local) if dist.get_backend() == "nccl" else torch.device("cpu")


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """The process group that torchrun's variables tell of, or this process alone."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    found = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"]))
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(found.local)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield found
    finally:
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun has started this process again after a worker was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which this rank may hold a share, whole; all ranks must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shared_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's share of a tensor, where `like` is a share."""
    if isinstance(like, DTensor):
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor.to(like.device)
