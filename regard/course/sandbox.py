"""A student's file in a process of its own, with limits of time, memory and output.

It runs on a copy, in a folder that is thrown away, without the environment's secrets; what it prints is kept apart from
what was observed, which comes back through a pipe of its own. This guards against slips: endless loops, `exit()`, huge
tensors, floods of prints. It is not a security sandbox: code that means harm can read and write whatever its user can,
reach the network, and forge its own results. Run strangers' code on a machine that has nothing to lose.
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
from regard.course.notebook import Solution, read_solution
from regard.course.observation_bytes import MOST_BYTES, unpacked
from regard.course.observe import Failure, Observed
from regard.course.solution_process import READY
from regard.course.solution_process import Limits as Limits
from regard.errors import RegardError

KEPT_OUTPUT = 64_000
"""bytes of what a solution prints"""
STARTING, GRACE, POLL = 90.0, 2.0, 0.05
"""seconds: for Python and torch to start, for a solution to end by itself, and between two looks"""
SHELL = ["/bin/sh", "-c", 'trap "" USR1; "$@"; exit $?', "sh"]
"""stands between, so that a solution that kills its parent does not kill us"""
START = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; from regard.course.solution_process import main; main()"
)


LIMITS = Limits()


def observe_apart(path: Path, assignment: Assignment, limits: Limits = LIMITS) -> Observed:
    """As `observe`, on a student's `.py` or `.ipynb`, in a process of its own.

    Whatever ends that process early is a failure of "". A ValueError when the file cannot be read.
    """
    solution = read_solution(path)
    with tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:
        child = _Child(solution, path.stem, assignment, limits, Path(folder).resolve())
        try:
            seen = child.follow()
        finally:
            child.end()
        seen.printed = child.output[:KEPT_OUTPUT].decode(errors="replace")
        if not child.untouched(solution.source):
            seen.notes.append("the file deletes or rewrites itself when it runs; that reached a copy alone")
        for each in seen.skipped:
            place = solution.where(each.line) if each.line else "a cell"
            seen.notes.append(f"{place} was left out, since it does not run: {each.kind}: {each.message}")
    return seen


class _Child:
    """The process, as its parent sees it."""

    def __init__(self, of: Solution, stem: str, assignment: Assignment, limits: Limits, folder: Path) -> None:
        self.limits, self.folder = limits, folder
        (folder / "work").mkdir()
        self.copy = folder / "work" / f"{stem}.py"
        self.copy.write_bytes(of.source.encode(errors="surrogatepass"))
        self.where = folder / "where"
        self.token = secrets.token_bytes(16)
        self.output, self.results = bytearray(), bytearray()
        self.pid: int | None = None
        reading, writing = os.pipe()
        job = {
            "pipe": writing,
            "token": self.token.hex(),
            "source": of.source,
            "cells": of.cells,
            "copy": str(self.copy),
            "where": str(self.where),
            "assignment": str(assignment.folder.resolve()),
            "limits": asdict(limits),
        }
        paths = [str(Path(each).resolve()) for each in sys.path if each]
        root = str(Path(__file__).resolve().parents[2])
        flags = ["-I", "-B", "-u", "-X", "utf8"]
        command = [*SHELL, sys.executable, *flags, "-c", START, *dict.fromkeys([*paths, root])]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            cwd=self.copy.parent,
            env=_environment(self.copy.parent),
            start_new_session=True,
        )
        os.close(writing)
        self.pipes = {reading: self.results}
        if self.process.stdin is not None and self.process.stdout is not None:
            self.pipes[self.process.stdout.fileno()] = self.output
            with suppress(BrokenPipeError), self.process.stdin:
                self.process.stdin.write(json.dumps(job).encode())

    def follow(self) -> Observed:
        """Wait for what was observed, or for what went wrong."""
        with selectors.DefaultSelector() as selector:
            for pipe in self.pipes:
                os.set_blocking(pipe, False)
                selector.register(pipe, selectors.EVENT_READ)
            start, looked = time.monotonic(), 0.0
            while True:
                selector.select(POLL)
                ended = self.process.poll()  # before the last of what it wrote is read
                self._drain(selector)
                if self.pid is None and self._begun():
                    start = time.monotonic()
                if (content := self._content()) is not None:
                    return _seen(content)
                now = time.monotonic()
                wrong = self._gone(ended) if ended is not None else self._over(now - start, now - looked > 4 * POLL)
                looked = now if now - looked > 4 * POLL else looked
                if wrong is not None:
                    return Observed(failures={"": wrong})

    def untouched(self, source: str) -> bool:
        """Whether the copy is still what it was."""
        content = source.encode(errors="surrogatepass")
        try:
            same_size = self.copy.is_file() and self.copy.stat().st_size == len(content)
            return same_size and self.copy.read_bytes() == content
        except OSError:
            return False

    def end(self) -> None:
        """End the process and all that it started, as far as they can be found."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self._family():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pipe, kept in self.pipes.items():
            if kept is self.results:
                os.close(pipe)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """Read what is there, of the output no more than its limit."""
        for pipe, kept in self.pipes.items():
            most = self.limits.output if kept is self.output else MOST_BYTES
            while len(kept) <= most:
                try:
                    piece = os.read(pipe, 65_536)
                except BlockingIOError:
                    break
                if not piece:
                    with suppress(KeyError):
                        selector.unregister(pipe)
                    break
                kept += piece

    def _begun(self) -> bool:
        """Whether torch is there, and the solution's time begins."""
        size = len(self.token) + len(READY) + 8
        if len(self.results) >= size and self.results.startswith(self.token + READY):
            self.pid = int.from_bytes(self.results[size - 8 : size], "little")
            del self.results[:size]
        return self.pid is not None

    def _content(self) -> bytes | None:
        """What was observed, once it is there whole."""
        size = len(self.token) + 8
        if self.pid is None or len(self.results) < size or not self.results.startswith(self.token):
            return None
        length = int.from_bytes(self.results[size - 8 : size], "little")
        return bytes(self.results[size : size + length]) if len(self.results) >= size + length else None

    def _over(self, seconds: float, look: bool) -> Failure | None:
        """Which limit is passed; the costlier ones are looked at now and then."""
        limits = self.limits
        if len(self.output) > limits.output:
            return self._told("OutputFlood", f"prints more than {limits.output:,} bytes: is there an endless loop?")
        if len(self.results) > MOST_BYTES:
            return Failure("TooLarge", f"gives back more than {MOST_BYTES:,} bytes", None)
        if self.pid is None:
            late = seconds > STARTING
            return Failure("Timeout", f"Python and torch did not start within {STARTING:.0f} s", None) if late else None
        if seconds > (most := limits.patience * limits.seconds) + GRACE:
            return self._told("Timeout", f"did not end within {most:g} s: is there an endless loop?")
        if not look:
            return None
        family = self._family()
        if len(family) > limits.processes + 2:  # the shell, and the solution itself
            return self._told("TooManyProcesses", f"starts more than {limits.processes} processes")
        if sum(map(_resident, family)) > limits.memory + 1_000_000_000:  # of which torch takes a part
            return self._told("MemoryError", f"takes more than {limits.memory:,} bytes of memory")
        return None

    def _told(self, kind: str, message: str) -> Failure:
        """A failure with the line that the solution is at, which it is asked for by a signal."""
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGUSR1)
            time.sleep(4 * POLL)
        return Failure(kind, message, self._line())

    def _gone(self, code: int) -> Failure:
        """The process ended, and told nothing."""
        line = self._line()
        died = signal.Signals(code - 128).name if code - 128 in set(signal.Signals) else None
        if self.pid is None:
            told = self.output.decode(errors="replace").strip()
            raise RegardError(f"Python could not be started for the solution (exit code {code}): {told[-400:]}")
        if code < 0:
            return Failure("Killed", "killed the process that ran it", line)
        if died == "SIGXCPU":
            most = self.limits.seconds
            return Failure("Timeout", f"took more than {most:g} s of the processor: is there an endless loop?", line)
        if died == "SIGKILL":
            return Failure("MemoryError", "was killed by the system, most likely because it took all memory", line)
        if died is not None:
            return Failure("Crash", f"crashed Python ({died})", line)
        return Failure("SystemExit", f"ended the process with code {code}, as os._exit() does: leave that out", line)

    def _line(self) -> int | None:
        """The innermost line of the solution in what faulthandler wrote; the main thread's comes last."""
        with suppress(OSError):
            dumped = self.where.read_bytes()[:1_000_000].decode(errors="replace")
            name = self.copy.name.encode("ascii", "backslashreplace").decode()
            threads = [re.findall(rf'{re.escape(name)}", line (\d+)', each) for each in dumped.split("\n\n")]
            return next((int(lines[0]) for lines in reversed(threads) if lines), None)
        return None

    def _family(self) -> list[int]:
        """The processes that work in the copy's folder, where the system tells (Linux does)."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (each / "cwd").readlink().is_relative_to(self.folder):
                    found.append(int(each.name))
        return found


def _environment(home: Path) -> dict[str, str]:
    """What torch may need, and nothing that is secret."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
    passed = {name: os.environ[name] for name in kept if name in os.environ}
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        **passed,
        **single,
        "HOME": str(home),
        "TMPDIR": str(home),
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHDYNAMO_DISABLE": "1",
    }


def _seen(content: bytes) -> Observed:
    try:
        return unpacked(content)
    except ValueError as error:
        return Observed(failures={"": Failure("Forged", str(error), None)})


def _resident(pid: int) -> int:
    """Bytes of memory that a process takes."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0
