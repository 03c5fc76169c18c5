"""Steps recorded as CUDA graphs, so that a GPU that needs 30 ms does not wait for a thousand kernel launches.

A step is recorded once batches of its shape have come a few times, and replayed for every later one: forward, loss,
backward and update are then a single launch. Batches whose shapes keep changing run without a graph.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.decoding.cuda_graph_capture import capture

WARMUP_STEPS = 3
"""Number of steps of a shape before it is recorded. Compilation and autotuning must be finished by then."""
MAX_GRAPHS = 4

StepFunction = Callable[[Sequence[Batch]], Tensor]
Shape = tuple[tuple[int, ...], ...]


class StepRecorder:
    """Calls a function on batches, by replaying a recorded CUDA graph where there is one."""

    def __init__(self, function: StepFunction) -> None:
        self.function = function
        self.seen: Counter[Shape] = Counter()
        self.graphs: dict[Shape, tuple[torch.cuda.CUDAGraph, list[Batch], Tensor]] = {}
        self.pool = torch.cuda.graph_pool_handle()  # shared by all graphs: only one is replayed at a time
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, batches: Sequence[Batch]) -> Tensor:
        """The function's result for these batches, which may be on the host."""
        shape = tuple(tuple(tensor.shape) for batch in batches for tensor in _tensors(batch))
        self.seen[shape] += 1
        if shape in self.graphs:
            return self._replay(shape, batches)
        device_batches = [batch.to("cuda") for batch in batches]
        if self.seen[shape] <= WARMUP_STEPS or len(self.graphs) >= MAX_GRAPHS:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):  # the stream that will be recorded
                result = self.function(device_batches)
            torch.cuda.current_stream().wait_stream(self.stream)
            return result
        results: list[Tensor] = []
        graph = capture(lambda: results.append(self.function(device_batches)), self.pool, self.stream)
        self.graphs[shape] = graph, device_batches, results[0]
        return self._replay(shape, batches)

    def _replay(self, shape: Shape, batches: Sequence[Batch]) -> Tensor:
        graph, device_batches, result = self.graphs[shape]
        for device_batch, batch in zip(device_batches, batches, strict=True):
            for device_tensor, tensor in zip(_tensors(device_batch), _tensors(batch), strict=True):
                device_tensor.copy_(tensor, non_blocking=True)
        graph.replay()
        return result.clone()  # the next replay overwrites it


def _tensors(batch: Batch) -> list[Tensor]:
    return [tensor for field in fields(batch) if (tensor := getattr(batch, field.name)) is not None]
