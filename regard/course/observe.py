"""What a solution does: every probe's numbers and errors, and what its lines held in the example.

A solution, the reference and each of its variants are looked at by the same function, so that they can be compared.
"""

import random
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Assignment

EXAMPLE = "example"
"""the probe whose lines are watched: a few tokens, small enough to be shown"""


@dataclass(frozen=True)
class Failure:
    """A probe, or the file itself, ended with an error."""

    kind: str
    """the error's class"""
    message: str
    line: int | None
    """of the solution, where it came from"""


@dataclass(frozen=True)
class Held:
    """A tensor that a line of the solution brought about, in the example."""

    line: int
    name: str
    """the variable, or "return" """
    value: Tensor


@dataclass
class Observed:
    """All that was seen of one solution."""

    values: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """of each probe that ended well, by name"""
    failures: dict[str, Failure] = field(default_factory=dict)
    """of each probe that did not; of "" when the file itself could not be run"""
    held: list[Held] = field(default_factory=list)


def observe(source: str, assignment: Assignment, filename: str = "<solution>") -> Observed:
    """Run a solution's source, then every probe of the assignment on what it defines."""
    seen = Observed()
    code = compile(source, filename, "exec")
    names: dict[str, Any] = {"__name__": "solution", "__file__": filename}
    try:
        _settle()
        exec(code, names)
    except Exception as error:
        seen.failures[""] = failure(error, filename)
        return seen
    for name, probe in assignment.probes.items():
        try:
            _settle()
            with _watching(filename, seen.held if name == EXAMPLE else None):
                told = probe(names)
            seen.values[name] = {key: torch.as_tensor(value).detach().clone() for key, value in told.items()}
        except Exception as error:
            seen.failures[name] = failure(error, filename)
    return seen


def failure(error: BaseException, filename: str) -> Failure:
    """An error as it is told: its class, its message, and the solution's line it came from, the innermost."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return Failure(type(error).__name__, str(error), line)


def _settle() -> None:
    """The same chance for all, whatever ran before."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


@contextmanager
def _watching(filename: str, held: list[Held] | None) -> Iterator[None]:
    """Note each tensor that a line of the file gives to a variable or returns; nothing without a list for it."""
    if held is None:
        yield
        return
    before = sys.gettrace()
    sys.settrace(_Watch(filename, held).called)
    try:
        yield
    finally:
        sys.settrace(before)


class _Watch:
    """Follows the frames of one file line by line: what changed since a line began is what that line brought about."""

    def __init__(self, filename: str, held: list[Held]) -> None:
        self.filename, self.held = filename, held
        self.known: dict[FrameType, tuple[int, dict[str, Any]]] = {}

    def called(self, frame: FrameType, event: str, _: Any) -> Any:
        """A function is entered: its arguments are no line's work."""
        if event != "call" or frame.f_code.co_filename != self.filename or _is_body_of_class(frame.f_code):
            return None
        self.known[frame] = frame.f_lineno, dict(frame.f_locals)
        return self.stepped

    def stepped(self, frame: FrameType, event: str, value: Any) -> Any:
        """A line begins, or the function ends: the line before it is done."""
        line, old = self.known[frame]
        for name, new in frame.f_locals.items():
            if isinstance(new, Tensor) and old.get(name) is not new:
                self.held.append(Held(line, name, new.detach().clone()))
        if event == "return":
            if isinstance(value, Tensor):
                self.held.append(Held(line, "return", value.detach().clone()))
            del self.known[frame]
        else:
            self.known[frame] = frame.f_lineno, dict(frame.f_locals)
        return self.stepped


def _is_body_of_class(code: CodeType) -> bool:
    return not code.co_flags & 0x2  # CO_NEWLOCALS: set for functions alone
