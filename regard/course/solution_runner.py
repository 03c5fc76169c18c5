"""Run a student's file in a separate, isolated process with limits on time, memory and output.

The file is copied to a temporary folder and runs there without the environment's secrets. Its printed output is kept
apart from the observations, which come back through a pipe of their own and are compared here. What the process is kept
from, and on which systems, is described in `isolation.py`.
"""

import atexit
import json
import os
import re
import resource
import secrets
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from regard.course.assignment import Assignment
from regard.course.observation_bytes import MAX_RUN_BYTES, decode_run
from regard.course.observe import Failure, SolutionRun
from regard.course.solution_file import Solution, read_solution
from regard.course.solution_process import READY, Limits
from regard.course.solution_server import FORKS, SIGNAL_EXIT, send_job, start_command
from regard.course.tampering import check_forbidden
from regard.errors import RegardError

MAX_KEPT_OUTPUT_BYTES = 64_000
"""How much of the printed output is kept."""
MAX_STATUS_BYTES = 200
STARTUP_SECONDS = 90.0
"""Time limit for Python and torch to start."""
GRACE_SECONDS = 2.0
"""Additional time for a solution to end after its time limit."""
END_SECONDS = 10.0
"""Time for a killed solution to end."""
POLL_SECONDS = 0.05
FULL_CHECK_SECONDS = 4 * POLL_SECONDS
"""Time between two checks of the limits that are expensive to check."""
MAX_STACK_DUMP_BYTES = 1_000_000
MAX_MODULES = 50
"""Maximum number of other files that a solution can import."""
DEFAULT_LIMITS = Limits()


def observe_in_subprocess(
    path: Path, assignment: Assignment, limits: Limits = DEFAULT_LIMITS, others: Sequence[tuple[str, Path]] = ()
) -> SolutionRun:
    """Like `observe`, for a student's `.py` or `.ipynb` file, in a separate process.

    It can import `others`, further files of the student under these names. If the process ends early, the reason is
    the failure "". A RegardError if the file cannot be read.
    """
    solution = read_solution(path)
    check_forbidden(assignment.forbidden)
    with tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:
        copy_modules(others, Path(folder) / "work")
        child = _SolutionProcess(solution, path, assignment, limits, Path(folder).resolve())
        try:
            run = child.wait()
        finally:
            child.kill()
        run.printed = child.output.content[:MAX_KEPT_OUTPUT_BYTES].decode(errors="replace")
        run.missing_isolation = child.missing_isolation
        if not child.is_copy_unchanged(solution.source):
            run.notes.append("The file deletes or overwrites itself when it runs. Only a temporary copy was affected.")
        for failure in run.skipped:
            cell = solution.where(failure.line) if failure.line else "A cell"
            run.notes.append(f"{cell} was skipped because it fails: {failure.kind}: {failure.message}")
    return run


def copy_modules(files: Sequence[tuple[str, Path]], folder: Path) -> None:
    """Copy a student's other files, as far as their names can be imported, to a folder."""
    folder.mkdir()
    for name, path in files[:MAX_MODULES]:
        if Path(name).stem.isidentifier() and Path(name).name == name:
            with suppress(RegardError, OSError):  # an empty or broken file: importing it fails, if it is imported
                (folder / name).write_text(read_solution(path).source, encoding="utf-8", errors="surrogatepass")


class SolutionServer:
    """The process that solutions are forked from, seen from the checker. It ends when it is closed, or with us."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        self.lock = threading.Lock()
        with theirs:
            self.process = subprocess.Popen(
                start_command(FORKS),
                stdin=theirs.fileno(),
                stdout=self.log,
                stderr=self.log,
                cwd="/",
                env=_server_environment(),
                start_new_session=True,
            )

    def submit(self, job: Path, files: list[int]) -> None:
        """Run the job in a file as soon as the server has started; an OSError if the server has ended."""
        with self.lock:
            send_job(self.connection, job, files)

    def close(self) -> None:
        """End the server. Solutions that still run end as well."""
        self.connection.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def messages(self) -> str:
        """The end of what the server printed, such as the reason why it could not start."""
        self.log.seek(0)
        return self.log.read()[-400:].decode(errors="replace").strip()


_SERVERS: dict[int, SolutionServer] = {}
"""The server of this process, by process id: a fork of this process needs a server of its own."""
_STARTING = threading.Lock()


def warm_server() -> SolutionServer:
    """This process's server, which is started if there is none. Starting it early saves time later."""
    if not FORKS:
        return SolutionServer()  # it runs only one job
    with _STARTING:
        server = _SERVERS.get(os.getpid())
        if server is None or server.process.poll() is not None:
            _SERVERS.clear()
            server = _SERVERS[os.getpid()] = SolutionServer()
            atexit.register(server.close)
        return server


def close_server() -> None:
    """End this process's server, which otherwise waits for the next solution with torch in its memory."""
    with _STARTING:
        if (server := _SERVERS.pop(os.getpid(), None)) is not None:
            atexit.unregister(server.close)
            server.close()


@dataclass
class _Pipe:
    """The end of a pipe that is read, and what was read from it."""

    file: int
    max_bytes: int
    content: bytearray = field(default_factory=bytearray)
    at_end: bool = False

    def read(self) -> None:
        """Read what is available, up to the limit."""
        while len(self.content) <= self.max_bytes and not self.at_end:
            try:
                chunk = os.read(self.file, 65_536)
            except BlockingIOError:
                return
            self.content += chunk
            self.at_end = not chunk


class _SolutionProcess:
    """The process that runs a solution, seen from the checker."""

    def __init__(self, solution: Solution, path: Path, assignment: Assignment, limits: Limits, folder: Path) -> None:
        self.limits, self.folder = limits, folder / "work"
        self.folder.mkdir(exist_ok=True)
        self.copy = self.folder / f"{path.stem}.py"
        self.copy.write_bytes(solution.source.encode(errors="surrogatepass"))
        self.stack_file = folder / "stack"
        self.token = secrets.token_bytes(16)
        self.pid: int | None = None
        self.missing_isolation: list[str] = []
        job = {
            "token": self.token.hex(),
            "source": solution.source,
            "cells": solution.cells,
            "copy": str(self.copy),
            "stack_file": str(self.stack_file),
            "assignment": str(assignment.folder.resolve()),
            "hidden_probes": [str(path) for path in assignment.hidden],
            "hidden": [str(assignment.folder.resolve().parent), str(path.resolve().parent)],
            "limits": asdict(limits),
        }
        job_file = folder / "job.json"
        job_file.write_text(json.dumps(job), encoding="utf-8")
        ends = [os.pipe() for _ in range(3)]
        sizes = (MAX_RUN_BYTES, limits.output, MAX_STATUS_BYTES)
        self.results, self.output, self.status = (
            _Pipe(ours, size) for (ours, _), size in zip(ends, sizes, strict=True)
        )
        self.server = warm_server()
        theirs = [end for _, end in ends]
        try:
            self.server.submit(job_file, theirs)
        except OSError:  # it has ended since the last solution
            self.server = warm_server()
            self.server.submit(job_file, theirs)
        for end in theirs:
            os.close(end)

    @property
    def _pipes(self) -> tuple[_Pipe, ...]:
        return self.results, self.output, self.status

    def wait(self) -> SolutionRun:
        """Wait for the observations, or for a limit to be exceeded."""
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                os.set_blocking(pipe.file, False)
                selector.register(pipe.file, selectors.EVENT_READ, pipe)
            start, last_full_check = time.monotonic(), 0.0
            while True:
                selector.select(POLL_SECONDS)
                exit_code = self._exit_code()  # before reading, so that nothing written at the end is missed
                for pipe in self._pipes:
                    pipe.read()
                    if pipe.at_end and pipe.file in selector.get_map():
                        selector.unregister(pipe.file)
                if self.pid is None and self._is_ready():
                    start = time.monotonic()
                if self.pid is not None and (content := self._received()) is not None:
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
        """Kill the process and everything that it started."""
        if not FORKS:
            self.server.close()
        elif (pids := self.status.content.split()[:2])[1:]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pids[1]), signal.SIGKILL)  # the supervisor, which is pids[0], then ends all others
            deadline = time.monotonic() + END_SECONDS
            while not self.status.at_end and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS / 25)
                self.status.read()
        for pipe in self._pipes:
            os.close(pipe.file)

    def _exit_code(self) -> int | None:
        """The exit code, once the solution and everything that it started have ended; -1 if it is unknown."""
        if not FORKS:
            return self.server.process.poll()
        if self.status.content.count(b"\n") == 2:
            return int(self.status.content.split()[-1])
        return -1 if self.status.at_end else None

    def _is_ready(self) -> bool:
        """Whether torch is imported and the solution's time has started."""
        content = self._received(READY)
        if content is not None:
            start = json.loads(content)
            self.pid, self.missing_isolation = int(start["pid"]), list(start["missing"])
            del self.results.content[: len(self.token) + len(READY) + 8 + len(content)]
        return self.pid is not None

    def _received(self, kind: bytes = b"") -> bytes | None:
        """The content of a message, once it has arrived completely."""
        start, received = self.token + kind, self.results.content
        size = len(start) + 8
        if len(received) < size or not received.startswith(start):
            return None
        length = int.from_bytes(received[size - 8 : size], "little")
        return bytes(received[size : size + length]) if len(received) >= size + length else None

    def _exceeded_limit(self, seconds: float, full: bool) -> Failure | None:
        """The limit that was exceeded, if any. Limits that are expensive to check are checked only if `full`."""
        limits = self.limits
        if len(self.output.content) > limits.output:
            return self._failure("OutputFlood", f"prints more than {limits.output:,} bytes: is there an infinite loop?")
        if len(self.results.content) > MAX_RUN_BYTES:
            return Failure("TooLarge", f"its results take more than {MAX_RUN_BYTES:,} bytes", None)
        if self.pid is None:
            if seconds > STARTUP_SECONDS:
                return Failure("Timeout", f"Python and torch did not start within {STARTUP_SECONDS:.0f} s", None)
            return None
        max_seconds = limits.patience * limits.seconds
        if seconds > max_seconds + GRACE_SECONDS:
            return self._failure("Timeout", f"did not finish within {max_seconds:g} s: is there an infinite loop?")
        return self._exceeded_resource() if full else None

    def _exceeded_resource(self) -> Failure | None:
        """The limit on processes, memory or files that was exceeded, if any."""
        limits = self.limits
        pids = self.status.content.split()[:1]
        max_processes = limits.processes + 2  # the first process of the namespace, and the solution itself
        processes = _descendants(int(pids[0]), max_processes) if pids else []
        if len(processes) > max_processes:  # without asking for the line: meanwhile it would start more
            return Failure("TooManyProcesses", f"starts more than {limits.processes} processes", None)
        inherited = _resident_bytes(self.server.process.pid)  # by each process: Python and torch, in shared memory
        if sum(max(0, _resident_bytes(process) - inherited) for process in processes) > limits.memory:
            return self._failure("MemoryError", f"uses more than {limits.memory:,} bytes of memory")
        sizes = _file_sizes(self.folder)
        if len(sizes) > limits.files or sum(sizes) > limits.folder_bytes:
            message = f"writes more than {limits.files} files or {limits.folder_bytes:,} bytes"
            return self._failure("TooManyFiles", message)
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
        number = code - SIGNAL_EXIT if FORKS else -code
        signal_name = signal.Signals(number).name if number in set(signal.Signals) else None
        if self.pid is None:
            output = self.output.content.decode(errors="replace").strip()[-400:] or self.server.messages()
            raise RegardError(f"Python could not be started for the solution (exit code {code}): {output}")
        if FORKS and code < 0:
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


def _server_environment() -> dict[str, str]:
    """The variables that torch may need, and no secrets."""
    inherited = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
    single_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        **single_thread,
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHDYNAMO_DISABLE": "1",
    }


def _decode(content: bytes) -> SolutionRun:
    try:
        return decode_run(content)
    except RegardError as error:
        return SolutionRun(failures={"": Failure("Forged", str(error), None)})


def _descendants(pid: int, max_count: int) -> list[int]:
    """The processes that a process started, and those that they started, on systems with /proc (Linux)."""
    found: list[int] = []
    pending = [pid]
    while pending and len(found) <= max_count:
        parent = pending.pop()
        with suppress(OSError):
            children = list(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))
            found += children
            pending += children
    return found


def _resident_bytes(pid: int) -> int:
    """The memory that a process uses."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _file_sizes(folder: Path) -> list[int]:
    """The size on disk of each file in a folder, as far as the folder can be read."""
    sizes = []
    for directory, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(OSError):
                sizes.append((Path(directory) / name).lstat().st_blocks * 512)
    return sizes
