"""Capture work as a CUDA graph, safely in a process with several threads."""

import threading
from collections.abc import Callable
from typing import Any

import torch

WARM_UP_RUNS = 2
"""Runs before a capture: libraries allocate workspaces and tune themselves in them, which cannot be captured."""

_one_capture_at_a_time = threading.Lock()  # PyTorch's capture stream and its random state are shared by all threads


def capture(body: Callable[[], Any], pool: Any = None, stream: Any = None) -> torch.cuda.CUDAGraph:
    """The body as a CUDA graph. The caller has warmed the body up, or uses `warmed_up_capture`.

    Other threads may go on using the GPU meanwhile. In PyTorch's default mode a capture forbids the whole process to
    allocate memory, so that one model's batch would invalidate the capture of another; `thread_local` forbids it to
    the capturing thread only.
    """
    graph = torch.cuda.CUDAGraph()
    with (
        _one_capture_at_a_time,
        torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
    ):
        body()
    return graph


def warmed_up_capture(body: Callable[[], Any], pool: Any = None) -> torch.cuda.CUDAGraph:
    """Run the body a few times on a stream of its own, then capture it."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_RUNS):
            body()
    torch.cuda.current_stream().wait_stream(side)
    return capture(body, pool)
