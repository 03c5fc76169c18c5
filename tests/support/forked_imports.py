"""Imported once by the server from which `tests.support.forked` forks processes."""

import torch._dynamo  # imported by the first optimizer, which takes seconds
import torch.distributed.checkpoint
import torch.distributed.fsdp  # noqa: F401

import regard.cli
import regard.plots.training_display
import regard.training_api  # noqa: F401
