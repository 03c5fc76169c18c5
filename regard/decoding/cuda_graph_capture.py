"""Capture work as a CUDA graph, safely in a process with several threads.

PyTorch's defaults assume one thread: a capture forbids the whole process to allocate memory, all captures use the same
stream, and a new stream is one of 32 that are handed out in turn, so that it may be the one another thread is capturing
on. Here captures take turns, on a stream that nothing else uses, and restrict only the capturing thread.

A device-wide wait (`torch.cuda.synchronize`) in another thread still invalidates a capture: CUDA has no way around it.
Wait for a stream or an event instead.
"""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

WARM_UP_RUNS = 2
"""Runs before a capture: libraries allocate workspaces and tune themselves in them, which cannot be captured."""

_one_at_a_time = threading.RLock()


@cache
def _capture_stream(_device: int) -> Any:
    return torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]  # a pool that ordinary streams never come from


def capture(body: Callable[[], Any], pool: Any = None, stream: Any = None) -> torch.cuda.CUDAGraph:
    """The body as a CUDA graph. The body must have run on this stream before: see `warmed_up_capture`."""
    graph = torch.cuda.CUDAGraph()
    with _one_at_a_time, torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        body()
    return graph


def warmed_up_capture(body: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """Run the body a few times, then capture it."""
    with _one_at_a_time:
        stream = _capture_stream(torch.cuda.current_device())
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                body()
        torch.cuda.current_stream().wait_stream(stream)
        return capture(body, stream=stream)
