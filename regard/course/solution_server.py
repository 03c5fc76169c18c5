"""A process that has imported torch and forks for each solution, so that a class does not wait for torch every time.

    checker ── server (torch imported) ── supervisor ── init ── solution

The checker sends jobs through a socket. For each job the server forks a supervisor, which waits for the solution,
removes what it left behind, and reports the exit code. It is outside the isolation, where the solution cannot reach it.
The init process is the first in the solution's namespaces: when it ends, the system ends everything in them. Without
namespaces there is none.

Nothing here reads an assignment's reference or variants: a solution inherits the server's memory.

Where a process that uses torch cannot be forked safely, which is everywhere but on Linux, a server runs one job itself.
"""

import gc
import itertools
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from regard.course.isolation import IS_LINUX, adopt_orphans, end_with_parent, enter_namespaces, protect_memory
from regard.course.solution_process import run_solution

JOB_FILES = 3
"""Number of pipes that come with a job: for the observations, the printed output and the exit code."""
LENGTH_BYTES = 4
"""Bytes of the number that says how long the path of the job is."""
SIGNAL_EXIT = 128
"""Added to the number of the signal that ended a solution, as in a shell."""
FORKS = IS_LINUX
"""Whether a server forks for each job."""


def main(forks: bool) -> None:
    """Run the jobs that arrive on the socket in place of standard input, until it is closed; or only one."""
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    if forks:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors report to the checker, not to this process
    torch.autograd.backward(torch.ones(1, requires_grad=True).exp())  # torch reads files when it first computes
    for count in itertools.count():
        received = _receive(connection)
        if received is None:
            return
        job, files = received
        if not forks:
            run_solution(job, files[0], files[1], has_namespaces=False)
        if count == 1:
            _import_meta_device()
        if count < 2:
            gc.collect()
            gc.freeze()  # so that collections in the solutions do not copy the memory of all modules
        if os.fork() == 0:
            connection.close()
            _supervise(job, *files)
        for file in files:
            os.close(file)


def _import_meta_device() -> None:
    """Import what tensors without values need, which takes a second: too long for one solution, not for a class."""
    torch.softmax(torch.nn.Linear(1, 1, device="meta")(torch.ones(1, 1, device="meta")), -1)


def send_job(connection: socket.socket, path: Path, files: list[int]) -> None:
    """Send the path of a job's JSON file, with the pipes that belong to it."""
    content = os.fsencode(path)
    socket.send_fds(connection, [len(content).to_bytes(LENGTH_BYTES, "little")], files)
    connection.sendall(content)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next job; None if the checker has closed the socket."""
    header, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, JOB_FILES)
    if len(header) < LENGTH_BYTES:
        return None
    remaining, content = int.from_bytes(header, "little"), b""
    while len(content) < remaining:
        chunk = connection.recv(remaining - len(content))
        if not chunk:
            return None
        content += chunk
    return json.loads(Path(os.fsdecode(content)).read_bytes()), files


def _supervise(job: dict[str, Any], results: int, output: int, status: int) -> None:
    """Run a solution in a process of its own and report how it ended. Does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    end_with_parent()
    adopt_orphans()
    has_namespaces = enter_namespaces()
    protect_memory()
    if (child := os.fork()) == 0:
        os.close(status)
        end_with_parent()
        if has_namespaces:
            _run_as_init(job, results, output)
        run_solution(job, results, output, has_namespaces)
    os.close(results)
    os.close(output)
    os.write(status, f"{os.getpid()} {child}\n".encode())
    code = _exit_code(child)
    _end_orphans()
    os.write(status, f"{code}\n".encode())
    os._exit(0)


def _run_as_init(job: dict[str, Any], results: int, output: int) -> None:
    """Run a solution as the first process of a namespace, which ends with it. Does not return."""
    if (child := os.fork()) == 0:
        end_with_parent()
        run_solution(job, results, output, has_namespaces=True)
    os._exit(_exit_code(child))


def _exit_code(child: int) -> int:
    """Wait for a child, and for orphans that end before it."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNAL_EXIT - code


def _end_orphans() -> None:
    """End all processes that the solution left behind."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):  # ChildProcessError: none is left
        while True:
            for pid in children.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            os.wait()


def start_command(forks: bool) -> list[str]:
    """The command that starts a server, with the same packages as this process."""
    paths = [str(Path(path).resolve()) for path in sys.path if path]
    root = str(Path(__file__).resolve().parents[2])
    code = (
        "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
        f"from regard.course.solution_server import main; main(forks={forks})"
    )
    flags = ["-I", "-B", "-u", "-X", "utf8"]
    return [sys.executable, *flags, "-c", code, *dict.fromkeys([*paths, root])]
