"""Training on several devices. Only this module deals with ranks.

`torchrun` starts one process per device and gives each its rank; without it there is a single process, and nothing here
costs anything. Each batch is divided among the ranks and the gradients are summed: by DDP, where every rank holds the
complete model, or by FSDP2 (`fully_shard`), where each holds a share of every layer's weights, gradients and moments.

Gradients travel between devices. Counts, signals and errors travel between the hosts, so that no host waits for its
device.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from regard.errors import RegardError
from regard.model.layers import Layer

RANK_TIMEOUT = timedelta(hours=4)
"""How long ranks wait for each other. While the first one trains a tokenizer or validates, the others are idle. A rank
that dies is noticed at once, because its connection closes."""
HANDSHAKE_SECONDS = 0.02
"""How long the first rank waits before it looks again whether the others are there."""


@dataclass(frozen=True)
class Ranks:
    """This process among all processes that train the same model."""

    rank: int = 0
    count: int = 1
    local: int = 0
    """Rank of this process on its machine."""

    @property
    def first(self) -> bool:
        """Whether this process writes the files and reports to the user."""
        return self.rank == 0

    def sum_numbers(self, *numbers: int | float) -> list[float]:
        """Each number, summed over the ranks."""
        if self.count == 1:
            return [float(number) for number in numbers]
        sums = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(sums)
        return cast("list[float]", sums.tolist())

    def any(self, condition: bool) -> bool:
        """Whether the condition holds on at least one rank."""
        return self.sum_numbers(condition)[0] > 0

    def sum_tensor(self, tensor: Tensor) -> Tensor:
        """The tensor, summed in place over the ranks."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def from_first(self, value: Any) -> Any:
        """The first rank's value."""
        if self.count == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    @contextmanager
    def sharing_errors(self) -> Iterator[None]:
        """An error on any rank ends them all: the lowest rank with an error raises it, the others exit silently."""
        error: Exception | None = None
        try:
            yield
        except Exception as caught:
            error = caught
        self._raise_if_any(error)

    @contextmanager
    def first_rank_first(self) -> Iterator[None]:
        """The first rank runs the block before the others, which can then use what it cached.

        Errors are shared as in `sharing_errors`; those of the first rank before the others begin.
        """
        if not self.first:
            self._raise_if_any(None)
        error: Exception | None = None
        try:
            yield
        except Exception as caught:
            error = caught
        if self.first:
            self._raise_if_any(error)
        self._raise_if_any(error)

    def _raise_if_any(self, error: Exception | None) -> None:
        """Continue if no rank has an error. All ranks must call this."""
        lowest = torch.tensor(self.count if error is None else self.rank)
        if self.count > 1:
            dist.all_reduce(lowest, dist.ReduceOp.MIN)
        if error is not None and lowest == self.rank:
            raise error
        if lowest < self.count:
            raise SystemExit(2)

    def distribute(self, objective: nn.Module, parallel: Literal["ddp", "fsdp"], dtype: torch.dtype) -> nn.Module:
        """The objective, with its gradients averaged over the ranks."""
        if self.count == 1:
            return objective
        if parallel == "fsdp":
            policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
            for module in objective.modules():
                if isinstance(module, Layer):
                    fully_shard(module, mp_policy=policy)
            return cast(nn.Module, fully_shard(objective, mp_policy=policy))
        return DistributedDataParallel(objective)

    def averaging_gradients(self, objective: nn.Module, now: bool) -> AbstractContextManager[None]:
        """Average gradients over the ranks in the backward pass or, if not `now`, leave that to a later batch."""
        if isinstance(objective, FSDPModule):
            objective.set_requires_gradient_sync(now)
            return nullcontext()
        if isinstance(objective, DistributedDataParallel) and not now:
            return objective.no_sync()
        return nullcontext()


@contextmanager
def join_ranks(device: str) -> Iterator[Ranks]:
    """Join the process group that torchrun's environment variables describe, or run as a single process."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"]))
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(ranks.local)
    _init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    try:
        yield ranks
    except RuntimeError as error:
        if not re.search("connection (closed|reset|refused)|broken pipe", str(error), re.IGNORECASE):
            raise
        raise RegardError(f"rank {ranks.rank} lost its connection to another rank; see that rank's error") from error
    finally:
        dist.destroy_process_group()


def _init_process_group(backend: str) -> None:
    """Create the process group. After a restart torchrun's store still holds the addresses of the earlier processes."""
    store, rank, count = next(rendezvous("env://", timeout=RANK_TIMEOUT))
    store = dist.PrefixStore(agree_on_name(store, rank, count), store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=RANK_TIMEOUT)


def agree_on_name(store: Any, rank: int, count: int) -> str:
    """Agree with the other ranks on a name for this start of all of them, which no earlier start has had.

    torchrun's count of restarts would not do: a machine that comes back begins at zero, while the others count on. The
    store may hold answers of earlier starts, which died at any point, so that each rank asks with a name of its own,
    and the first one answers until all of them have understood.
    """
    own_name = uuid4().hex
    if rank:
        store.set(f"name of rank {rank}", own_name)
        start = str(store.get(f"answer to {own_name}").decode())
        store.set(f"{start} understood by rank {rank}", "")
        return start
    waiting = set(range(1, count))
    while waiting:
        for other in sorted(waiting):
            name = store.get(f"name of rank {other}").decode()
            store.set(f"answer to {name}", own_name)
        time.sleep(HANDSHAKE_SECONDS)
        waiting -= {other for other in waiting if store.check([f"{own_name} understood by rank {other}"])}
    return own_name


def is_first_process() -> bool:
    """Whether this process is the first rank, by torchrun's environment variables."""
    return int(os.environ.get("RANK", "0")) == 0


def was_restarted() -> bool:
    """Whether torchrun has restarted this process after a worker died.

    It has not if the machine itself is back: of several machines, only those that stayed know.
    """
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def machines_warning() -> str | None:
    """What to set so that a machine can come back, if there are several and it is not set.

    By default torchrun's agents share one store. An agent that stayed does not publish its address again, and one that
    comes back waits for it in vain (torch 2.13).
    """
    is_shared = os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1"
    if int(os.environ.get("GROUP_WORLD_SIZE", "1")) == 1 or not is_shared:
        return None
    return "a machine that fails cannot come back: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on all machines"


def full_tensor(tensor: Tensor) -> Tensor:
    """The complete tensor, of which this rank may hold only a share. All ranks must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's share of a tensor, if `like` is a share."""
    if isinstance(like, DTensor):
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor.to(like.device)
