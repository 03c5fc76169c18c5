"""Run a student's file in a separate process with limits on time, memory and output.

The file is copied to a temporary folder and runs there without the environment's secrets. Its printed output is kept
apart from the observations, which come back through a separate pipe. This protects against accidents: infinite loops,
`exit()`, huge tensors, floods of output. It is not a security sandbox: malicious code can read and write whatever its
user can, use the network, and forge its own results. Run untrusted code on a machine with nothing to lose.
"""

import json
import os
import re
import resource
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from regard.course.assignment import Assignment
from regard.course.observation_bytes import MAX_RUN_BYTES, decode_run
from regard.course.observe import Failure, SolutionRun
from regard.course.solution_file import Solution, read_solution
from regard.course.solution_process import READY, Limits
from regard.errors import RegardError

MAX_KEPT_OUTPUT_BYTES = 64_000
"""How much of the printed output is kept."""
STARTUP_SECONDS = 90.0
"""Time limit for Python and torch to start."""
GRACE_SECONDS = 2.0
"""Additional time for a solution to end after its time limit."""
POLL_SECONDS = 0.05
FULL_CHECK_SECONDS = 4 * POLL_SECONDS
"""Time between two checks of the limits that are expensive to check."""
TORCH_BYTES = 1_000_000_000
"""Memory that torch itself may use, in addition to the limit."""
MAX_STACK_DUMP_BYTES = 1_000_000
SHELL = ["/bin/sh", "-c", 'trap "" USR1; "$@"; exit $?', "sh"]
"""Runs between this process and the solution, so that a solution that kills its parent does not kill us."""
START = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; from regard.course.solution_process import main; main()"
)
DEFAULT_LIMITS = Limits()


def observe_in_subprocess(path: Path, assignment: Assignment, limits: Limits = DEFAULT_LIMITS) -> SolutionRun:
    """Like `observe`, for a student's `.py` or `.ipynb` file, in a separate process.

    If the process ends early, the reason is the failure "". A RegardError if the file cannot be read.
    """
    solution = read_solution(path)
    with tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:
        child = _SolutionProcess(solution, path.stem, assignment, limits, Path(folder).resolve())
        try:
            run = child.wait()
        finally:
            child.kill()
        run.printed = child.output[:MAX_KEPT_OUTPUT_BYTES].decode(errors="replace")
        if not child.is_copy_unchanged(solution.source):
            run.notes.append("The file deletes or overwrites itself when it runs. Only a temporary copy was affected.")
        for failure in run.skipped:
            cell = solution.where(failure.line) if failure.line else "A cell"
            run.notes.append(f"{cell} was skipped because it fails: {failure.kind}: {failure.message}")
    return run


class _SolutionProcess:
    """The process that runs a solution, seen from its parent."""

    def __init__(self, solution: Solution, stem: str, assignment: Assignment, limits: Limits, folder: Path) -> None:
        self.limits, self.folder = limits, folder
        (folder / "work").mkdir()
        self.copy = folder / "work" / f"{stem}.py"
        self.copy.write_bytes(solution.source.encode(errors="surrogatepass"))
        self.stack_file = folder / "stack"
        self.token = secrets.token_bytes(16)
        self.output, self.results = bytearray(), bytearray()
        self.pid: int | None = None
        read_end, write_end = os.pipe()
        job = {
            "pipe": write_end,
            "token": self.token.hex(),
            "source": solution.source,
            "cells": solution.cells,
            "copy": str(self.copy),
            "stack_file": str(self.stack_file),
            "assignment": str(assignment.folder.resolve()),
            "limits": asdict(limits),
        }
        paths = [str(Path(path).resolve()) for path in sys.path if path]
        root = str(Path(__file__).resolve().parents[2])
        flags = ["-I", "-B", "-u", "-X", "utf8"]
        command = [*SHELL, sys.executable, *flags, "-c", START, *dict.fromkeys([*paths, root])]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            cwd=self.copy.parent,
            env=_child_environment(self.copy.parent),
            start_new_session=True,
        )
        os.close(write_end)
        self.pipes = {read_end: self.results}
        if self.process.stdin is not None and self.process.stdout is not None:
            self.pipes[self.process.stdout.fileno()] = self.output
            with suppress(BrokenPipeError), self.process.stdin:
                self.process.stdin.write(json.dumps(job).encode())

    def wait(self) -> SolutionRun:
        """Wait for the observations, or for a limit to be exceeded."""
        with selectors.DefaultSelector() as selector:
            for pipe in self.pipes:
                os.set_blocking(pipe, False)
                selector.register(pipe, selectors.EVENT_READ)
            start, last_full_check = time.monotonic(), 0.0
            while True:
                selector.select(POLL_SECONDS)
                exit_code = self.process.poll()  # before reading, so that nothing written at the end is missed
                self._read_pipes(selector)
                if self.pid is None and self._is_ready():
                    start = time.monotonic()
                if (content := self._received_run()) is not None:
                    return _decode(content)
                now = time.monotonic()
                if exit_code is not None:
                    failure: Failure | None = self._early_exit(exit_code)
                else:
                    is_due = now - last_full_check > FULL_CHECK_SECONDS
                    failure = self._exceeded_limit(now - start, is_due)
                    last_full_check = now if is_due else last_full_check
                if failure is not None:
                    return SolutionRun(failures={"": failure})

    def is_copy_unchanged(self, source: str) -> bool:
        """Whether the copy that ran is still what it was."""
        content = source.encode(errors="surrogatepass")
        try:
            same_size = self.copy.is_file() and self.copy.stat().st_size == len(content)
            return same_size and self.copy.read_bytes() == content
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the process and everything that it started, as far as it can be found."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self._descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pipe, buffer in self.pipes.items():
            if buffer is self.results:
                os.close(pipe)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read_pipes(self, selector: selectors.BaseSelector) -> None:
        """Read what is available, up to the limits."""
        for pipe, buffer in self.pipes.items():
            limit = self.limits.output if buffer is self.output else MAX_RUN_BYTES
            while len(buffer) <= limit:
                try:
                    chunk = os.read(pipe, 65_536)
                except BlockingIOError:
                    break
                if not chunk:
                    with suppress(KeyError):
                        selector.unregister(pipe)
                    break
                buffer += chunk

    def _is_ready(self) -> bool:
        """Whether torch is imported and the solution's time has started."""
        size = len(self.token) + len(READY) + 8
        if len(self.results) >= size and self.results.startswith(self.token + READY):
            self.pid = int.from_bytes(self.results[size - 8 : size], "little")
            del self.results[:size]
        return self.pid is not None

    def _received_run(self) -> bytes | None:
        """The encoded run, once it has arrived completely."""
        size = len(self.token) + 8
        if self.pid is None or len(self.results) < size or not self.results.startswith(self.token):
            return None
        length = int.from_bytes(self.results[size - 8 : size], "little")
        return bytes(self.results[size : size + length]) if len(self.results) >= size + length else None

    def _exceeded_limit(self, seconds: float, full: bool) -> Failure | None:
        """The limit that was exceeded, if any. Limits that are expensive to check are checked only if `full`."""
        limits = self.limits
        if len(self.output) > limits.output:
            return self._failure("OutputFlood", f"prints more than {limits.output:,} bytes: is there an infinite loop?")
        if len(self.results) > MAX_RUN_BYTES:
            return Failure("TooLarge", f"its results take more than {MAX_RUN_BYTES:,} bytes", None)
        if self.pid is None:
            if seconds > STARTUP_SECONDS:
                return Failure("Timeout", f"Python and torch did not start within {STARTUP_SECONDS:.0f} s", None)
            return None
        max_seconds = limits.patience * limits.seconds
        if seconds > max_seconds + GRACE_SECONDS:
            return self._failure("Timeout", f"did not finish within {max_seconds:g} s: is there an infinite loop?")
        if not full:
            return None
        processes = self._descendants()
        if len(processes) > limits.processes + 2:  # the shell and the solution itself
            return self._failure("TooManyProcesses", f"starts more than {limits.processes} processes")
        if sum(map(_resident_bytes, processes)) > limits.memory + TORCH_BYTES:
            return self._failure("MemoryError", f"uses more than {limits.memory:,} bytes of memory")
        return None

    def _failure(self, kind: str, message: str) -> Failure:
        """A failure with the line that the solution is at, which it writes when it gets a signal."""
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGUSR1)
            time.sleep(4 * POLL_SECONDS)
        return Failure(kind, message, self._current_line())

    def _early_exit(self, code: int) -> Failure:
        """Why the process ended without sending a run."""
        line = self._current_line()
        signal_name = signal.Signals(code - 128).name if code - 128 in set(signal.Signals) else None
        if self.pid is None:
            output = self.output.decode(errors="replace").strip()
            raise RegardError(f"Python could not be started for the solution (exit code {code}): {output[-400:]}")
        if code < 0:
            return Failure("Killed", "killed the process that ran it", line)
        if signal_name == "SIGXCPU":
            message = f"took more than {self.limits.seconds:g} s of CPU time: is there an infinite loop?"
            return Failure("Timeout", message, line)
        if signal_name == "SIGKILL":
            return Failure("MemoryError", "was killed by the system, probably because memory ran out", line)
        if signal_name is not None:
            return Failure("Crash", f"crashed Python ({signal_name})", line)
        message = f"ended the process with exit code {code}, as os._exit() does: remove the call"
        return Failure("SystemExit", message, line)

    def _current_line(self) -> int | None:
        """The innermost line of the solution in faulthandler's dump, where the main thread comes last."""
        with suppress(OSError):
            dump = self.stack_file.read_bytes()[:MAX_STACK_DUMP_BYTES].decode(errors="replace")
            name = self.copy.name.encode("ascii", "backslashreplace").decode()
            threads = [re.findall(rf'{re.escape(name)}", line (\d+)', thread) for thread in dump.split("\n\n")]
            return next((int(lines[0]) for lines in reversed(threads) if lines), None)
        return None

    def _descendants(self) -> list[int]:
        """The processes whose working folder is the copy's, on systems with /proc (Linux)."""
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(self.folder):
                    pids.append(int(process.name))
        return pids


def _child_environment(home: Path) -> dict[str, str]:
    """The variables that torch may need, and no secrets."""
    inherited = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
    single_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        **single_thread,
        "HOME": str(home),
        "TMPDIR": str(home),
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHDYNAMO_DISABLE": "1",
    }


def _decode(content: bytes) -> SolutionRun:
    try:
        return decode_run(content)
    except RegardError as error:
        return SolutionRun(failures={"": Failure("Forged", str(error), None)})


def _resident_bytes(pid: int) -> int:
    """The memory that a process uses."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0
