"""What a solution does: every probe's numbers and errors, and what its lines held in the example.

A solution, the reference and each of its variants are looked at by the same function, so that they can be compared.
"""

import ast
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Assignment
from regard.course.line_tracing import Held as Held
from regard.course.line_tracing import plain, watching
from regard.course.notebook import parsed
from regard.formatting import shorten
from regard.threads import one_thread

EXAMPLE = "example"
"""the probe whose lines are watched: a few tokens, small enough to be shown"""
MODULE = "solution"
"""what a solution is called while it runs"""
NO_MEMORY = re.compile("not enough memory|can't allocate memory|DefaultCPUAllocator|bad_alloc|out of memory")

Guard = Callable[[], AbstractContextManager[Any]]
"""within which the file, a cell or a probe is run"""


@dataclass(frozen=True)
class Failure:
    """A probe, or the file itself, ended with an error."""

    kind: str
    """the error's class"""
    message: str
    line: int | None
    """of the solution, where it came from"""


@dataclass
class Observed:
    """All that was seen of one solution."""

    values: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """of each probe that ended well, by name"""
    failures: dict[str, Failure] = field(default_factory=dict)
    """of each probe that did not; of "" when the file itself could not be run"""
    held: list[Held] = field(default_factory=list)
    skipped: list[Failure] = field(default_factory=list)
    """of a notebook's cells that did not run, and did not need to"""
    notes: list[str] = field(default_factory=list)
    """what else a person should know, in sentences"""
    printed: str = ""
    """what the solution printed, its beginning"""


@one_thread()
def observe(
    source: str,
    assignment: Assignment,
    filename: str = "<solution>",
    cells: Sequence[int] = (),
    guard: Guard = nullcontext,
) -> Observed:
    """Run a solution's source, then every probe of the assignment on what it defines.

    `cells` are the first lines of a notebook's cells: one that fails is skipped if what the assignment needs is there
    without it.
    """
    seen = Observed()
    probes = assignment.probes  # read before the solution runs, so that it finds nothing left to change
    with _as_module(filename) as names:
        seen.failures |= _run(source, assignment.defines, filename, cells, guard, names, seen.skipped)
        if seen.failures:
            return seen
        for name, probe in probes.items():
            try:
                _settle()
                with guard(), watching(filename, seen.held) if name == EXAMPLE else nullcontext():
                    told = probe(names)
                seen.values[name] = {key: plain(torch.as_tensor(value)) for key, value in told.items()}
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # exit() in a solution ends that probe alone
                seen.failures[name] = failure(error, filename)
    return seen


def failure(error: BaseException, filename: str) -> Failure:
    """An error as it is told: its class, its message, and the solution's line it came from, the innermost."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError) and error.filename == filename:
        line = error.lineno
    kind = type(error).__name__
    try:
        message = error.msg if isinstance(error, SyntaxError) else "" if isinstance(error, SystemExit) else str(error)
    except Exception:  # a solution's own class of errors may fail at this as well
        message = "an error that cannot be told"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and NO_MEMORY.search(message)):
        asked = re.search(r"(\d+) bytes", message)
        much = f"{int(asked[1]):,} bytes of memory: that is more" if asked else "more memory"
        kind, message = "MemoryError", f"asks for {much} than a solution may have"
    return Failure(kind, shorten(f"{message} {_advice(error)}".strip()), line)


def _advice(error: BaseException) -> str:
    """What to know about an error that comes from the way solutions are run."""
    match error:
        case SystemExit():
            return "calls exit(), which would end the check: leave that out"
        case ModuleNotFoundError():
            return "(it is not available here: a solution is one file that needs torch and Python's own modules alone)"
        case RecursionError():
            return "(a function calls itself without end)"
        case EOFError():
            return "(nobody is there to answer input())"
        case FileNotFoundError():
            return "(a solution runs in a folder of its own, without other files)"
    return ""


@contextmanager
def _as_module(filename: str) -> Iterator[dict[str, Any]]:
    """The names of a module that can be found by its name, as dataclasses and torch.jit do."""
    before = sys.modules.get(MODULE)
    module = sys.modules[MODULE] = ModuleType(MODULE)
    module.__file__ = filename
    try:
        yield vars(module)
    finally:
        sys.modules.pop(MODULE, None)
        if before is not None:
            sys.modules[MODULE] = before


def _run(
    source: str,
    needed: Sequence[str],
    filename: str,
    cells: Sequence[int],
    guard: Guard,
    names: dict[str, Any],
    skipped: list[Failure],
) -> dict[str, Failure]:
    """Run the file, or cell after cell; what failed and cannot be done without, under ""."""
    lacking: dict[str, Failure] = {}
    for first, text in _parts(source, cells, needed):
        try:
            _settle()
            with guard():
                exec(_compiled("\n" * (first - 1) + text, filename), names)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = failure(error, filename)
            if not cells:
                return {"": why}
            skipped.append(why)
            lacking |= {name: why for name in needed if _binds(text, (name,))}
    missing = [why for name, why in lacking.items() if name not in names]
    return {"": missing[0]} if missing else {}


@lru_cache(maxsize=1024)
def _compiled(source: str, filename: str) -> CodeType:
    """Kept, since a variant is run for one probe after the other."""
    return compile(source, filename, "exec", dont_inherit=True)


def _parts(source: str, cells: Sequence[int], needed: Sequence[str]) -> list[tuple[int, str]]:
    """The cells to run, with their first lines: all up to the last that gives something that is needed."""
    if not cells:
        return [(1, source)]
    lines = source.split("\n")
    parts = [
        (first, "\n".join(lines[first - 1 : end - 1]))
        for first, end in zip(cells, [*cells[1:], len(lines) + 1], strict=True)
    ]
    giving = [place for place, (_, text) in enumerate(parts) if _binds(text, needed)]
    return parts[: giving[-1] + 1] if giving else parts


def _binds(text: str, names: Sequence[str]) -> bool:
    """Whether a cell defines one of these names, or gives it an attribute."""
    wanted = set(names)
    tree = parsed(text)
    if tree is None:
        return any(re.search(rf"\b(class|def)\s+{re.escape(name)}\b", text) for name in names)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in wanted:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in wanted:
            return True
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            root = node.value if isinstance(node, ast.Attribute) else node
            if isinstance(root, ast.Name) and root.id in wanted:
                return True
    return False


def _settle() -> None:
    """The same chance for all, whatever ran before."""
    random.seed(0)
    torch.default_generator.manual_seed(0)  # of the CPU alone: to ask every device takes 10 ms
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    with suppress(Exception):
        torch.set_default_device(None)
