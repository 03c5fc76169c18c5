"""Where a run takes place: the device, the type of its arithmetic, whether it is compiled; found by itself."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.config import did_you_mean
from regard.errors import RegardError
from regard.training.recipe import Train


@dataclass(frozen=True)
class Place:
    """Where, and in which type."""

    device: torch.device
    dtype: torch.dtype
    compiled: bool

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else _processor()
        return f"{name}, {str(self.dtype).removeprefix('torch.')}{', compiled' * self.compiled}"


def find_place(train: Train, local_rank: int = 0) -> Place:
    """What the recipe asks for or, where it leaves the choice, what this machine does well."""
    if train.device not in ("auto", "cpu", "cuda"):
        raise RegardError(f"train.device={train.device!r}: {did_you_mean(train.device, ('auto', 'cpu', 'cuda'))}")
    if train.device == "cuda" and not torch.cuda.is_available():
        raise RegardError('train.device="cuda", and there is no GPU here that PyTorch can use: --set train.device=cpu')
    on_gpu = train.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    dtype: torch.dtype = torch.float32 if train.precision == "auto" else getattr(torch, train.precision)
    if train.precision == "auto" and on_gpu:
        well = torch.cuda.is_bf16_supported(including_emulation=False)
        dtype = torch.bfloat16 if well else torch.float16
    return Place(device, dtype, on_gpu if train.compile is None else train.compile)


def kernels(device: torch.device, fixed: bool) -> AbstractContextManager[None]:
    """Within, attention is by kernels that suit batches of one shape, or of ever new ones.

    cuDNN's are the fastest and plan for each new shape, which takes a hundred times as long as a small model's step.
    """
    if device.type != "cuda" or fixed:
        return nullcontext()
    others = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(others)


def _processor() -> str:
    return f"CPU, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"
