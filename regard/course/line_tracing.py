"""Which tensors the lines of a file hold while it runs: those of variables, and those on the way to them."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.errors import RegardError

MOST_HELD, MOST_OF_ONE = 5_000, 32
"""tensors that are kept: in all, and of one name on one line"""
MOST_CALLS = 64
"""of one function that are followed"""
MOST_NUMBERS, MOST_HELD_NUMBERS = 2_000_000, 65_536
"""of a result, and of a tensor that is kept: the example is small"""
MOST_ITEMS = 16
"""of a list that are looked at"""


@dataclass(frozen=True)
class Held:
    """A tensor that a line of the solution brought about, in the example."""

    line: int
    name: str
    """the variable, as `q`, `self.scores` or `heads[0]`; "return"; "" for what a part of the line gave"""
    value: Tensor
    before: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """the shapes of the function's tensors when the line began, by name"""


@contextmanager
def watching(filename: str, held: list[Held]) -> Iterator[None]:
    """Note each tensor that a line of the file computes, gives to a variable or returns."""
    before = sys.gettrace()
    watch = _Watch(filename, held)
    with _Results(watch):
        sys.settrace(watch.called)
        try:
            yield
        finally:
            sys.settrace(before)


def plain(value: Tensor) -> Tensor:
    """A tensor's numbers alone, as they are now; a ValueError when they are too many to look at."""
    value = value.detach()
    if value.numel() > MOST_NUMBERS:
        raise RegardError(f"a result has the shape {list(value.shape)}: {value.numel():,} numbers are too many")
    if value.is_meta:  # it has no numbers: its shape and type can still be compared
        return torch.zeros(value.shape, dtype=value.dtype)
    if value.layout != torch.strided:
        value = value.to_dense()
    if value.is_quantized:
        value = value.dequantize()
    return value.cpu().clone(memory_format=torch.contiguous_format).as_subclass(Tensor)


class _State(NamedTuple):
    """A tensor, how often it was changed in place, and its shape."""

    tensor: Tensor
    version: int
    shape: tuple[int, ...]


@no_type_check  # it is called at every step, and would watch the checks as well
class _Watch:
    """Follows the frames of one file line by line: what changed since a line began is what that line brought about.

    Whatever fails in here is no solution's mistake, and leaves it alone.
    """

    def __init__(self, filename: str, held: list[Held]) -> None:
        self.filename, self.held = filename, held
        self.known: dict[FrameType, tuple[int, dict[str, _State]]] = {}
        self.counts: Counter[tuple[int, str]] = Counter()
        self.calls: Counter[CodeType] = Counter()
        self.busy = False

    def called(self, frame: FrameType, event: str, _: Any) -> Any:
        """A function is entered: its arguments are no line's work."""
        if event != "call" or frame.f_code.co_filename != self.filename or _is_body_of_class(frame.f_code):
            return None
        self.calls[frame.f_code] += 1
        if self.calls[frame.f_code] > MOST_CALLS or len(self.held) >= MOST_HELD:
            return None
        self._begin(frame)
        return self.stepped

    def stepped(self, frame: FrameType, event: str, value: Any) -> Any:
        """A line begins, or the function ends (or yields): the line before it is done."""
        if event == "exception":  # the line has not ended yet: `except` may follow, or the function's end
            return self.stepped
        line, old = self.known.pop(frame, (frame.f_lineno, {}))
        found = self._begin(frame) if event == "line" else self._tensors(frame)
        before = {name: each.shape for name, each in old.items()}
        for name, each in found.items():
            if name not in old or old[name].tensor is not each.tensor or old[name].version != each.version:
                self.hold(line, name, each.tensor, before)
        if event == "return":
            for name, tensor in _within("return", value):
                self.hold(line, name, tensor, before)
        return self.stepped

    def computed(self, result: Any) -> None:
        """A function of torch gave this: it belongs to the innermost line of the file that is at work."""
        if len(self.held) >= MOST_HELD:
            return
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        if frame is None or _is_body_of_class(frame.f_code) or frame.f_code.co_name == "__init__":
            return  # how weights are drawn at first is nobody's matter
        for _, tensor in _within("", result):
            self.hold(frame.f_lineno, "", tensor, {})

    def hold(self, line: int, name: str, tensor: Tensor, before: Mapping[str, tuple[int, ...]]) -> None:
        """Keep a tensor as it is now, unless there are enough of its kind."""
        if len(self.held) >= MOST_HELD or self.counts[line, name] >= MOST_OF_ONE:
            return
        self.counts[line, name] += 1
        busy, self.busy = self.busy, True
        try:
            if not tensor.is_meta and tensor.numel() <= MOST_HELD_NUMBERS:
                value = plain(tensor)
                value.data_ptr()  # which those within vmap and the like do not have
                self.held.append(Held(line, name, value, before))
        except Exception:
            return
        finally:
            self.busy = busy

    def _begin(self, frame: FrameType) -> dict[str, _State]:
        found = self._tensors(frame)
        self.known[frame] = frame.f_lineno, found
        return found

    def _tensors(self, frame: FrameType) -> dict[str, _State]:
        """The tensors of a function's variables and of its object."""
        busy, self.busy = self.busy, True
        try:
            names = dict(frame.f_locals)
            if frame.f_code.co_argcount and hasattr(me := names.get(frame.f_code.co_varnames[0]), "__dict__"):
                its = vars(me)
                own = {name: each for name, each in its.items() if not name.startswith("_")} | its.get("_buffers", {})
                names |= {f"self.{name}": each for name, each in own.items()}
            found = [pair for name, value in names.items() for pair in _within(name, value)]
            return {name: state for name, tensor in found if (state := _state(tensor)) is not None}
        except Exception:
            return {}
        finally:
            self.busy = busy


@no_type_check
class _Results(TorchFunctionMode):
    """Shows a watch what every function of torch gives."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.watch.busy and sys.gettrace() is not None:  # a probe may ask not to be watched
            self.watch.computed(result)
        return result


@no_type_check
def _within(name: str, value: Any, depth: int = 2) -> list[tuple[str, Tensor]]:
    """The tensors of a value, which may be a tuple, a list or a dictionary of some."""
    if isinstance(value, Tensor):
        return [(name, value)]
    if depth == 0 or not isinstance(value, tuple | list | dict):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    few = [pair for pair, _ in zip(items, range(MOST_ITEMS), strict=False)]
    return [pair for key, each in few for pair in _within(f"{name}[{key!r}]" if name else "", each, depth - 1)]


@no_type_check
def _state(tensor: Tensor) -> _State | None:
    """Nothing of a tensor that cannot tell its shape, as nested ones cannot."""
    try:
        return _State(tensor, 0 if tensor.is_inference() else tensor._version, tuple(tensor.shape))
    except RuntimeError:
        return None


@no_type_check
def _is_body_of_class(code: CodeType) -> bool:
    return not code.co_flags & 0x2  # CO_NEWLOCALS: set for functions alone
