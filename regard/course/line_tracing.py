"""The tensors that each line of a file computes, assigns or returns while it runs."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor
from torch._C import DisableTorchFunction  # the tracer's own operations pass no mode, which makes them fast
from torch.overrides import TorchFunctionMode

from regard.errors import RegardError

MAX_TRACED_TENSORS = 5_000
MAX_TENSORS_PER_NAME = 32
"""Maximum number of tensors kept for one name on one line."""
MAX_TRACED_CALLS = 64
"""Maximum number of calls of one function that are traced."""
MAX_RESULT_NUMBERS = 2_000_000
"""Maximum number of elements of a probe's result."""
MAX_TRACED_NUMBERS = 65_536
"""Maximum number of elements of a traced tensor. The example is small."""
MAX_TRACED_ITEMS = 16
"""Maximum number of items of a list, tuple or dictionary that are inspected."""
_CONTAINERS = (tuple, list, dict)
_MAY_HOLD_TENSORS = (Tensor, *_CONTAINERS)


@dataclass(frozen=True)
class TracedTensor:
    """A tensor that a line of the solution produced when the example ran."""

    line: int
    name: str
    """The variable, such as `q`, `self.scores` or `heads[0]`; "return"; or "" for an intermediate result."""
    value: Tensor
    before: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the function's tensors before the line ran, by name."""
    callers: tuple[int, ...] = ()
    """The lines of the file that were calling the line's function, the outermost first."""


@contextmanager
def trace_tensors(filename: str, traced: list[TracedTensor]) -> Iterator[None]:
    """Append to `traced` each tensor that a line of the file computes, assigns or returns."""
    previous = sys.gettrace()
    tracer = _LineTracer(filename, traced)
    with _ResultTracer(tracer):
        sys.settrace(tracer.on_call)
        try:
            yield
        finally:
            sys.settrace(previous)


@contextmanager
def tracing_paused() -> Iterator[None]:
    """Do not trace the lines that run inside."""
    previous = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(previous)


def plain_copy(tensor: Tensor) -> Tensor:
    """A detached, dense copy on the CPU; a RegardError if the tensor is too large to compare."""
    tensor = tensor.detach()
    if tensor.numel() > MAX_RESULT_NUMBERS:
        raise RegardError(
            f"a result has shape {list(tensor.shape)}: {tensor.numel():,} numbers are too many to compare"
        )
    if tensor.is_meta:  # it has no values, but its shape and dtype can still be compared
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor.cpu().clone(memory_format=torch.contiguous_format).as_subclass(Tensor)


class _TensorState(NamedTuple):
    """A tensor, the number of in-place changes to it, and its shape."""

    tensor: Tensor
    version: int
    shape: tuple[int, ...]


@no_type_check  # it runs at every line, and would trace the type checks as well
class _LineTracer:
    """Follows the frames of one file line by line. What changed while a line ran is what that line produced.

    An error in here is never the solution's fault, so it is swallowed.
    """

    def __init__(self, filename: str, traced: list[TracedTensor]) -> None:
        self.filename, self.traced = filename, traced
        self.known: dict[FrameType, tuple[int, dict[str, _TensorState]]] = {}
        self.counts: Counter[tuple[int, str]] = Counter()
        self.calls: Counter[CodeType] = Counter()

    def on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        """Called by Python when a function is entered. Its arguments are not any line's work."""
        if event != "call" or frame.f_code.co_filename != self.filename or _is_class_body(frame.f_code):
            return None
        self.calls[frame.f_code] += 1
        if self.calls[frame.f_code] > MAX_TRACED_CALLS or len(self.traced) >= MAX_TRACED_TENSORS:
            return None
        with DisableTorchFunction():
            self._begin_line(frame)
        return self.on_step

    def on_step(self, frame: FrameType, event: str, value: Any) -> Any:
        """Called by Python when a line begins or the function returns or yields: the previous line is done."""
        if event == "exception":  # the line has not ended yet: an `except` may follow, or the end of the function
            return self.on_step
        with DisableTorchFunction():
            self._end_line(frame, event, value)
        return self.on_step

    def _end_line(self, frame: FrameType, event: str, value: Any) -> None:
        line, old = self.known.pop(frame, (frame.f_lineno, {}))
        new = self._begin_line(frame) if event == "line" else self._tensors(frame)
        before = {name: state.shape for name, state in old.items()}
        for name, state in new.items():
            if name not in old or old[name].tensor is not state.tensor or old[name].version != state.version:
                self.keep(frame, line, name, state.tensor, before)
        if event == "return":
            for name, tensor in _tensors_in("return", value):
                self.keep(frame, line, name, tensor, before)

    def on_result(self, result: Any) -> None:
        """Called when a torch function returned. The result belongs to the innermost running line of the file."""
        if len(self.traced) >= MAX_TRACED_TENSORS:
            return
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        if frame is None or _is_class_body(frame.f_code) or frame.f_code.co_name == "__init__":
            return  # the initial values of weights do not matter
        with DisableTorchFunction():
            for _, tensor in _tensors_in("", result):
                self.keep(frame, frame.f_lineno, "", tensor, {})

    def keep(
        self, frame: FrameType, line: int, name: str, tensor: Tensor, before: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Keep a copy of a tensor's current values, unless a limit is reached."""
        if len(self.traced) >= MAX_TRACED_TENSORS or self.counts[line, name] >= MAX_TENSORS_PER_NAME:
            return
        self.counts[line, name] += 1
        try:
            if not tensor.is_meta and tensor.numel() <= MAX_TRACED_NUMBERS:
                value = plain_copy(tensor)
                value.data_ptr()  # raises for tensors inside vmap and similar transforms
                self.traced.append(TracedTensor(line, name, value, before, self._callers(frame)))
        except Exception:
            return

    def _callers(self, frame: FrameType) -> tuple[int, ...]:
        lines = []
        caller = frame.f_back
        while caller is not None:
            if caller.f_code.co_filename == self.filename and not _is_class_body(caller.f_code):
                lines.append(caller.f_lineno)
            caller = caller.f_back
        return tuple(reversed(lines))

    def _begin_line(self, frame: FrameType) -> dict[str, _TensorState]:
        states = self._tensors(frame)
        self.known[frame] = frame.f_lineno, states
        return states

    def _tensors(self, frame: FrameType) -> dict[str, _TensorState]:
        """The tensors in a function's local variables and in the attributes of its object."""
        try:
            names = dict(frame.f_locals)
            if frame.f_code.co_argcount and hasattr(owner := names.get(frame.f_code.co_varnames[0]), "__dict__"):
                attributes = vars(owner)
                public = {name: value for name, value in attributes.items() if not name.startswith("_")}
                public |= attributes.get("_buffers", {})
                names |= {f"self.{name}": value for name, value in public.items()}
            values = [(name, value) for name, value in names.items() if isinstance(value, _MAY_HOLD_TENSORS)]
            tensors = [pair for name, value in values for pair in _tensors_in(name, value)]
            return {name: state for name, tensor in tensors if (state := _tensor_state(tensor)) is not None}
        except Exception:
            return {}


@no_type_check
class _ResultTracer(TorchFunctionMode):
    """Passes the result of every torch function to a line tracer."""

    def __init__(self, tracer: _LineTracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, _MAY_HOLD_TENSORS) and sys.gettrace() is not None:  # a probe may pause tracing
            self.tracer.on_result(result)
        return result


@no_type_check
def _tensors_in(name: str, value: Any, depth: int = 2) -> list[tuple[str, Tensor]]:
    """The tensors of a value, which may be a tensor or a tuple, list or dictionary of tensors."""
    if isinstance(value, Tensor):
        return [(name, value)]
    if depth == 0 or not isinstance(value, _CONTAINERS):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    inspected = [pair for pair, _ in zip(items, range(MAX_TRACED_ITEMS), strict=False)]
    return [
        pair for key, item in inspected for pair in _tensors_in(f"{name}[{key!r}]" if name else "", item, depth - 1)
    ]


@no_type_check
def _tensor_state(tensor: Tensor) -> _TensorState | None:
    """None for tensors without a plain shape, such as nested ones."""
    try:
        return _TensorState(tensor, 0 if tensor.is_inference() else tensor._version, tuple(tensor.shape))
    except RuntimeError:
        return None


@no_type_check
def _is_class_body(code: CodeType) -> bool:
    return not code.co_flags & 0x2  # CO_NEWLOCALS is set for functions only
