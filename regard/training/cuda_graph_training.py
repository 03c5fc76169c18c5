"""Steps recorded as CUDA graphs: a GPU that is done in 30 ms does not wait for the host to launch a thousand kernels.

A step is recorded when batches of its shape have come a few times, and replayed for all that follow: forward, loss,
backward and update are then one launch. Batches of ever new shapes are worked on as they are.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.decoding.cuda_graph_capture import capture

WARM = 3
"""steps of a shape before it is recorded: what is compiled and tuned on the way must be done by then"""
MOST = 4
"""graphs"""

Work = Callable[[Sequence[Batch]], Tensor]
Shape = tuple[tuple[int, ...], ...]


class Recorder:
    """Does the work on batches, by replaying it where it can."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.seen: Counter[Shape] = Counter()
        self.graphs: dict[Shape, tuple[torch.cuda.CUDAGraph, list[Batch], Tensor]] = {}
        self.pool = torch.cuda.graph_pool_handle()  # one for all: they are replayed one at a time
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, batches: Sequence[Batch]) -> Tensor:
        """What the work gives for these batches, which may be on the host."""
        shape = tuple(tuple(tensor.shape) for batch in batches for tensor in _tensors(batch))
        self.seen[shape] += 1
        if shape in self.graphs:
            return self._replay(shape, batches)
        there = [batch.to("cuda") for batch in batches]
        if self.seen[shape] <= WARM or len(self.graphs) >= MOST:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):  # where it will be recorded
                found = self.work(there)
            torch.cuda.current_stream().wait_stream(self.stream)
            return found
        results: list[Tensor] = []
        graph = capture(lambda: results.append(self.work(there)), self.pool, self.stream)
        self.graphs[shape] = graph, there, results[0]
        return self._replay(shape, batches)

    def _replay(self, shape: Shape, batches: Sequence[Batch]) -> Tensor:
        graph, there, found = self.graphs[shape]
        for ours, new in zip(there, batches, strict=True):
            for old, tensor in zip(_tensors(ours), _tensors(new), strict=True):
                old.copy_(tensor, non_blocking=True)
        graph.replay()
        return found.clone()  # the next replay writes there again


def _tensors(batch: Batch) -> list[Tensor]:
    return [tensor for each in fields(batch) if (tensor := getattr(batch, each.name)) is not None]
