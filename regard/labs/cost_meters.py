"""Meters for the cost of a computation: counts, which are the same on every machine, and CPU time, which is not."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.labs.lab_figures import COLOURS, legend
from regard.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Computation = Callable[[], object]

aten = torch.ops.aten
LEFT_FACTOR_ARGUMENT = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
"""PyTorch's matrix products, and the index of the argument that is the left factor."""


class ProductCount(NamedTuple):
    """The matrix products of a computation."""

    operations: int
    """Number of multiplications and additions."""
    chain: int
    """Length of the longest chain of products that depend on one another: the steps that no parallelism removes."""


def count_products(computation: Computation) -> ProductCount:
    """Run a computation and count its matrix products, including those of fused attention."""
    counter = _ProductCounter()
    with one_thread(), sdpa_kernel(SDPBackend.MATH), counter:  # a fused kernel would hide its products
        computation()
    return ProductCount(counter.operations, counter.chain)


def peak_bytes(computation: Computation) -> int:
    """Run a computation and return the peak memory of the tensors that it creates.

    The workspace of a fused kernel is not counted: a tile of bounded size for each thread.
    """
    tracker = _MemoryTracker()
    with one_thread(), tracker:
        computation()
    return tracker.peak


def cpu_seconds(computation: Computation, repeats: int = 5) -> float:
    """Return the median CPU time of several runs on one thread. Other processes have little effect on it."""
    with one_thread():
        computation()  # the first run is slower
        return median(_time_once(computation) for _ in range(repeats))


def log_log_curves(
    axes: "Axes", x: Sequence[int], lines: Mapping[str, Sequence[int | float]], colours: Sequence[str] = COLOURS
) -> "Axes":
    """Plot lines by name on logarithmic axes, where a power law is a straight line with its exponent as slope."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for (name, y), colour in zip(lines.items(), colours, strict=False):
        axes.plot(x, y, "o-", color=colour, label=name, markersize=4)
    axes.set_xticks(x, [str(value) for value in x])
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.tick_params(axis="y", which="minor", labelsize=7, colors="#444444")
    legend(axes)
    return axes


def _time_once(computation: Computation) -> float:
    start = time.process_time()
    computation()
    return time.process_time() - start


class _MemoryTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks the memory of the tensors that operations create."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {_storage_id(tensor) for tensor in _tensors((args, kwargs))}
        result = func(*args, **kwargs or {})
        self.alive = {key: entry for key, entry in self.alive.items() if not entry[0].expired()}  # type: ignore[no-untyped-call]
        for tensor in _tensors(result):
            if _storage_id(tensor) not in inputs:  # neither a view nor an in-place change
                storage = tensor.untyped_storage()
                self.alive[_storage_id(tensor)] = StorageWeakRef(storage), int(storage.nbytes())  # type: ignore[no-untyped-call]
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return result


class _ProductCounter(TorchDispatchMode):
    """Counts matrix products, and tracks for each tensor the longest chain of products that it depends on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.chain = 0
        self.chains: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        chain = max((self.chains.get(_storage_id(tensor), 0) for tensor in _tensors((args, kwargs))), default=0)
        result = func(*args, **kwargs or {})
        if func in LEFT_FACTOR_ARGUMENT:
            self.operations += 2 * result.numel() * args[LEFT_FACTOR_ARGUMENT[func]].size(-1)
            chain += 1
        self.chains |= {_storage_id(tensor): chain for tensor in _tensors(result)}
        self.chain = max(self.chain, chain)
        return result


def _storage_id(tensor: Tensor) -> int:
    """The identity of a tensor's storage, which a tensor shares with its views."""
    return int(tensor.untyped_storage()._cdata)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
