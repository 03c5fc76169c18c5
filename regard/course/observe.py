"""Run a solution and record what it does: each probe's values and errors, and the tensors of its lines.

The solution, the reference and its variants are all run by the same function, so that they can be compared.
"""

import ast
import random
import re
import symtable
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Assignment, Names, Probe
from regard.course.line_tracing import TracedTensor, plain_copy, trace_tensors
from regard.course.probe_remarks import collect_remarks
from regard.course.solution_file import parse_source
from regard.course.tampering import ForbiddenError, TamperingError
from regard.formatting import shorten
from regard.threads import one_thread

EXAMPLE = "example"
"""The probe whose lines are traced: a few tokens, small enough to show."""
SOLUTION_MODULE = "solution"
"""The name of the module that a solution runs as."""
OUT_OF_MEMORY = re.compile("not enough memory|can't allocate memory|DefaultCPUAllocator|bad_alloc|out of memory")
DRAWING_NAMES = ("matplotlib", "plt", "seaborn", "sns")
"""Names by which a notebook cell that draws is recognised."""
INDIRECT_DEFINITIONS = ("setattr", "exec", "globals", "get_ipython")
"""Functions by which a cell can define or change a name without binding it."""

Guard = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which the file, a cell or a probe runs."""


@dataclass(frozen=True)
class Failure:
    """An error that ended a probe or the file itself."""

    kind: str
    """The name of the error's class."""
    message: str
    line: int | None
    """The line of the solution that raised it."""


@dataclass
class SolutionRun:
    """What was observed when a solution ran."""

    values: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """The named values of each probe that succeeded."""
    failures: dict[str, Failure] = field(default_factory=dict)
    """The error of each probe that failed; under "" if the file itself could not be run."""
    traced: list[TracedTensor] = field(default_factory=list)
    """The tensors of the solution's lines in the example."""
    skipped: list[Failure] = field(default_factory=list)
    """Errors of notebook cells that failed but were not needed."""
    notes: list[str] = field(default_factory=list)
    """Further remarks for the student, as sentences."""
    printed: str = ""
    """The beginning of what the solution printed."""
    missing_isolation: list[str] = field(default_factory=list)
    """A sentence for each layer of isolation that the system does not have."""


@one_thread()
def observe(
    source: str,
    assignment: Assignment,
    filename: str = "<solution>",
    cells: Sequence[int] = (),
    guard: Guard = nullcontext,
) -> SolutionRun:
    """Run a solution's source, then every probe of the assignment on the names it defines.

    `cells` holds the first line of each notebook cell. A cell that fails is skipped if all names that the assignment
    needs are defined without it.
    """
    run = SolutionRun()
    probes = assignment.probes  # imported before the solution runs, so that it cannot change them
    with _as_module(filename) as names, _default_dtype_restored(), collect_remarks(run.notes):
        run.failures |= _execute(source, assignment.defines, filename, cells, guard, names, run.skipped)
        if run.failures:
            return run
        for name, probe in probes.items():
            try:
                traced = run.traced if name == EXAMPLE else None
                run.values[name] = _run_probe(probe, names, guard, filename, traced)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # exit() in a solution must end only this probe
                run.failures[name] = describe_failure(error, filename)
    return run


def _run_probe(
    probe: Probe, names: Names, guard: Guard, filename: str, traced: list[TracedTensor] | None
) -> dict[str, Tensor]:
    """A probe's values in float64, where rounding errors are negligible; in float32 if the solution requires that.

    A solution may raise an error in float64, or compute infinities with a number that fits into float64 only.
    """
    try:
        values = _run_probe_in(torch.float64, probe, names, guard, filename, traced)
        if all(value.isfinite().all() for value in values.values()):
            return values
    except (NotImplementedError, TamperingError, ForbiddenError):
        raise
    except Exception:
        pass  # the error in float32 is reported, if there is one
    if traced is not None:
        traced.clear()
    return _run_probe_in(torch.float32, probe, names, guard, filename, traced)


def _run_probe_in(
    dtype: torch.dtype, probe: Probe, names: Names, guard: Guard, filename: str, traced: list[TracedTensor] | None
) -> dict[str, Tensor]:
    _reset_global_state(dtype)
    with guard(), nullcontext() if traced is None else trace_tensors(filename, traced):
        values = probe(names)
    return {key: plain_copy(torch.as_tensor(value)) for key, value in values.items()}


def describe_failure(error: BaseException, filename: str) -> Failure:
    """An error's class, its message with advice, and the innermost line of the solution that it came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError) and error.filename == filename:
        line = error.lineno
    kind, message = type(error).__name__, _message_of(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(message)):
        requested = re.search(r"(\d+) bytes", message)
        amount = f"{int(requested[1]):,} bytes of memory, more" if requested else "more memory"
        kind, message = "MemoryError", f"requests {amount} than a solution may use"
    return Failure(kind, shorten(f"{message} {_advice(error)}".strip()), line)


def _message_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return ""
    try:
        return error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # a solution's own error class may fail here as well
        return "an error whose message cannot be read"


def _advice(error: BaseException) -> str:
    """An explanation of errors that come from the way solutions are run."""
    match error:
        case SystemExit():
            return "calls exit(), which would end the check: remove the call"
        case ModuleNotFoundError():
            package = (error.name or "the package").partition(".")[0]
            return (
                "(not available here: a solution is one file that uses torch and the standard library. To allow "
                f"{package}, a teacher installs it where `regard check` runs: pip install {package})"
            )
        case RecursionError():
            return "(a function calls itself endlessly)"
        case EOFError():
            return "(input() has no input to read here)"
        case FileNotFoundError():
            return "(a solution runs in a temporary folder without other files)"
        case PermissionError():
            return "(other files and processes, programs and the network are not part of a solution)"
    return ""


@contextmanager
def _default_dtype_restored() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


@contextmanager
def _as_module(filename: str) -> Iterator[dict[str, Any]]:
    """The namespace of a module that is in sys.modules, as dataclasses and torch.jit need it."""
    previous = sys.modules.get(SOLUTION_MODULE)
    module = sys.modules[SOLUTION_MODULE] = ModuleType(SOLUTION_MODULE)
    module.__file__ = filename
    try:
        yield vars(module)
    finally:
        sys.modules.pop(SOLUTION_MODULE, None)
        if previous is not None:
            sys.modules[SOLUTION_MODULE] = previous


def _execute(
    source: str,
    needed: Sequence[str],
    filename: str,
    cells: Sequence[int],
    guard: Guard,
    names: dict[str, Any],
    skipped: list[Failure],
) -> dict[str, Failure]:
    """Run the file, or one cell after the other. A failure that cannot be skipped is returned under ""."""
    failures: dict[str, Failure] = {}
    for first_line, text in _blocks_to_run(source, cells, needed):
        try:
            _reset_global_state()
            with guard():
                exec(_compile("\n" * (first_line - 1) + text, filename), names)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failure = describe_failure(error, filename)
            if not cells:
                return {"": failure}
            skipped.append(failure)
            failures |= {name: failure for name in needed if _binds_any(text, (name,))}
    missing = [failure for name, failure in failures.items() if name not in names]
    return {"": missing[0]} if missing else {}


@lru_cache(maxsize=1024)
def _compile(source: str, filename: str) -> CodeType:
    """Cached, since a variant is run once for each probe."""
    return compile(source, filename, "exec", dont_inherit=True)


def _blocks_to_run(source: str, cells: Sequence[int], needed: Sequence[str]) -> list[tuple[int, str]]:
    """The cells to run, each with its first line: all cells up to the last one that defines a needed name.

    Cells that only draw or try the solution out are left out: they would take time, and fail in an unfinished file.
    """
    if not cells:
        return [(1, source)]
    lines = source.split("\n")
    blocks = [
        (start, "\n".join(lines[start - 1 : end - 1]))
        for start, end in zip(cells, [*cells[1:], len(lines) + 1], strict=True)
    ]
    defining = [index for index, (_, text) in enumerate(blocks) if _binds_any(text, needed)]
    if not defining:
        return blocks
    to_run, wanted = [], set(needed)
    for first_line, text in reversed(blocks[: defining[-1] + 1]):
        names = _globals_used(text)
        is_trial = not names.isdisjoint({*needed, *DRAWING_NAMES}) and names.isdisjoint(INDIRECT_DEFINITIONS)
        if not is_trial or _binds_any(text, tuple(wanted)):
            to_run.append((first_line, text))
            wanted |= names
    return to_run[::-1]


def _globals_used(text: str) -> set[str]:
    """The global names that a cell reads; none if it is not valid Python."""
    if parse_source(text) is None:
        return set()
    with warnings.catch_warnings(action="ignore"):
        tables = [symtable.symtable(text, "<cell>", "exec")]
    names = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table.get_type() == "module"
        names |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (is_module or symbol.is_global())
        }
    return names


def _binds_any(text: str, names: Sequence[str]) -> bool:
    """Whether a cell defines one of these names or sets an attribute of one."""
    wanted = set(names)
    tree = parse_source(text)
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


def _reset_global_state(dtype: torch.dtype = torch.float32) -> None:
    """Reset the random seeds and torch's defaults, whatever ran before."""
    random.seed(0)
    torch.default_generator.manual_seed(0)  # the CPU's only: seeding every device takes 10 ms
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(dtype)
    with suppress(Exception):
        torch.set_default_device(None)
