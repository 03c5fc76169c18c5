"""Chooses the device and the precision of a run, and whether the network is compiled."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.config import did_you_mean
from regard.errors import RegardError
from regard.training.recipe import TrainSection

DEVICE_CHOICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class DeviceSettings:
    """Where a run computes, and how."""

    device: torch.device
    dtype: torch.dtype
    compiled: bool

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else _processor()
        compiled = ", compiled" if self.compiled else ""
        return f"{name}, {str(self.dtype).removeprefix('torch.')}{compiled}"


def choose_device(train: TrainSection, local_rank: int = 0) -> DeviceSettings:
    """What the recipe asks for; where it says "auto", what suits this machine."""
    if train.device not in DEVICE_CHOICES:
        raise RegardError(f"train.device={train.device!r}: {did_you_mean(train.device, DEVICE_CHOICES)}")
    if train.device == "cuda" and not torch.cuda.is_available():
        raise RegardError('train.device="cuda", but PyTorch finds no usable GPU: --set train.device=cpu')
    on_gpu = train.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    dtype: torch.dtype = torch.float32 if train.precision == "auto" else getattr(torch, train.precision)
    if train.precision == "auto" and on_gpu:
        native_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        dtype = torch.bfloat16 if native_bfloat16 else torch.float16
    return DeviceSettings(device, dtype, on_gpu if train.compile is None else train.compile)


def attention_kernels(device: torch.device, fixed_shapes: bool) -> AbstractContextManager[None]:
    """Use attention kernels that suit batches of one shape, or of changing shapes.

    cuDNN's kernels are the fastest, but they plan for each new shape, which takes a hundred times as long as a step of
    a small model.
    """
    if device.type != "cuda" or fixed_shapes:
        return nullcontext()
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(backends)


def _processor() -> str:
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread" if threads == 1 else f"CPU, {threads} threads"
