"""How labs measure cost: by counts, which come out the same on every machine, and by time, which does not."""

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

Work = Callable[[], object]

aten = torch.ops.aten
LEFT = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
"""kinds of matrix products, and which argument of theirs is the left factor"""


class Products(NamedTuple):
    """The matrix products of what was done."""

    operations: int
    """multiplications and additions"""
    chain: int
    """products that had to wait for one another: how many steps are left, however many cores there are"""


def products(work: Work) -> Products:
    """What is done, in matrix products; those of fused attention too."""
    seen = _Products()
    with one_thread(), sdpa_kernel(SDPBackend.MATH), seen:  # not hidden in one kernel
        work()
    return Products(seen.operations, seen.chain)


def most_bytes(work: Work) -> int:
    """The bytes of the tensors that are made and alive at one time, when they are most.

    What a fused kernel needs within itself is not seen: a tile for each thread, of bounded size.
    """
    seen = _Allocations()
    with one_thread(), seen:
        work()
    return seen.most


def cpu_seconds(work: Work, repeats: int = 5) -> float:
    """The median of so many runs on one thread, in seconds of this process, so that others count for little."""
    with one_thread():
        work()  # the first is slower
        return median(_seconds(work) for _ in range(repeats))


def curves(
    axes: "Axes", x: Sequence[int], lines: Mapping[str, Sequence[int | float]], colours: Sequence[str] = COLOURS
) -> "Axes":
    """Lines by name over x, both axes logarithmic, so that a power is a straight line and its exponent the slope."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for (name, y), colour in zip(lines.items(), colours, strict=False):
        axes.plot(x, y, "o-", color=colour, label=name, markersize=4)
    axes.set_xticks(x, [str(each) for each in x])
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.tick_params(axis="y", which="minor", labelsize=7, colors="#444444")
    legend(axes)
    return axes


def _seconds(work: Work) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


class _Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the memory of tensors as operations make them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_place(each) for each in _tensors((args, kwargs))}
        result = func(*args, **kwargs or {})
        self.alive = {at: kept for at, kept in self.alive.items() if not kept[0].expired()}  # type: ignore[no-untyped-call]
        for each in _tensors(result):
            if _place(each) not in given:  # neither a view nor a change in place
                storage = each.untyped_storage()
                self.alive[_place(each)] = StorageWeakRef(storage), int(storage.nbytes())  # type: ignore[no-untyped-call]
        self.most = max(self.most, sum(size for _, size in self.alive.values()))
        return result


class _Products(TorchDispatchMode):
    """Counts products, and follows how many of them, one behind the other, each tensor has waited for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.chain = 0
        self.waited: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        waited = max((self.waited.get(_place(each), 0) for each in _tensors((args, kwargs))), default=0)
        result = func(*args, **kwargs or {})
        if func in LEFT:
            self.operations += 2 * result.numel() * args[LEFT[func]].size(-1)
            waited += 1
        self.waited |= {_place(each): waited for each in _tensors(result)}
        self.chain = max(self.chain, waited)
        return result


def _place(tensor: Tensor) -> int:
    """Where its numbers are: the same for a tensor and its views."""
    return int(tensor.untyped_storage()._cdata)


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]
