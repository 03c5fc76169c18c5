"""More than one device: all that knows of ranks.

`torchrun` starts a process for each device and tells each its rank; without it there is one, and nothing here costs
anything. Each batch is shared out over the ranks and the gradients are summed: by DDP, where every rank holds the whole
model, or by FSDP2 (`fully_shard`), where each holds a share of every layer's weights, gradients and moments.

Gradients go from device to device; what the hosts tell each other (counts, signals, errors) goes between them, so that
none waits for its device.
"""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from regard.errors import RegardError
from regard.model.layers import Layer

WAIT = timedelta(hours=4)
"""for one another: while the first rank trains a tokenizer or validates, the others do nothing. A rank that is lost is
noticed at once, by its connection"""


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

    def sums(self, *numbers: int | float) -> list[float]:
        """Each number, summed over the ranks."""
        if self.count == 1:
            return [float(number) for number in numbers]
        together = torch.tensor(numbers, dtype=torch.float64)
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
        dist.broadcast_object_list(held, src=0, device=torch.device("cpu"))
        return held[0]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """An error of any rank within this ends them all: the lowest with one raises it, the others end in silence."""
        error: Exception | None = None
        try:
            yield
        except Exception as found:
            error = found
        self._end_if(error)

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """The first rank goes through this before the others do: what it leaves in a cache they find there.

        Errors are `agreed` upon, the first rank's before the others begin.
        """
        if not self.first:
            self._end_if(None)
        error: Exception | None = None
        try:
            yield
        except Exception as found:
            error = found
        if self.first:
            self._end_if(error)
        self._end_if(error)

    def _end_if(self, error: Exception | None) -> None:
        """Go on if no rank has an error; all must ask."""
        lowest = torch.tensor(self.count if error is None else self.rank)
        if self.count > 1:
            dist.all_reduce(lowest, dist.ReduceOp.MIN)
        if error is not None and lowest == self.rank:
            raise error
        if lowest < self.count:
            raise SystemExit(2)

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
        return DistributedDataParallel(objective)

    def gathering(self, objective: nn.Module, now: bool) -> AbstractContextManager[None]:
        """Within, the way back averages gradients over the ranks, or leaves that to a later piece of the batch."""
        if isinstance(objective, FSDPModule):
            objective.set_requires_gradient_sync(now)
            return nullcontext()
        if isinstance(objective, DistributedDataParallel) and not now:
            return objective.no_sync()
        return nullcontext()


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
    _meet("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    try:
        yield found
    except RuntimeError as error:
        if not re.search("connection (closed|reset|refused)|broken pipe", str(error), re.IGNORECASE):
            raise
        raise RegardError(f"rank {found.rank} has lost its connection to another, which may have said why") from error
    finally:
        dist.destroy_process_group()


def _meet(backend: str) -> None:
    """Make the process group. After a restart torchrun's store still tells where those before were to be found."""
    store, rank, count = next(rendezvous("env://", timeout=WAIT))
    store = dist.PrefixStore(f"start {_restarts()}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=WAIT)


def speaks() -> bool:
    """Whether this process is the one that shows something, by torchrun's variables."""
    return int(os.environ.get("RANK", "0")) == 0


def restarted() -> bool:
    """Whether torchrun has started this process again after a worker was lost."""
    return _restarts() > 0


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which this rank may hold a share, whole; all ranks must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shared_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's share of a tensor, where `like` is a share."""
    if isinstance(like, DTensor):
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor.to(like.device)
