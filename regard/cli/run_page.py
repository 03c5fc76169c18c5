"""The page of `regard train --watch`: `regard serve` in a process of its own, which reads the files of the run."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from regard.cli.serve import DEFAULT_PORT
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.training.events import Event, Watcher
    from regard.training.recipe import Recipe

WATCHED_SNAPSHOTS = 24
"""Number of snapshots of a run that is watched, unless its recipe sets another."""
STOP_SECONDS = 20.0
"""Seconds that the server gets to stop."""
POLL_SECONDS = 0.1
"""Time between two looks at whether the server answers, in seconds, when nothing else is left to do."""


def with_snapshots(recipe: "Recipe") -> "Recipe":
    """The recipe with snapshots."""
    count = recipe.train.snapshots or WATCHED_SNAPSHOTS
    return replace(recipe, train=replace(recipe.train, snapshots=count))


class RunPage:
    """The server of a run's page. It starts with the run's first event, when the folder exists, and stops at exit.

    The page's address is printed as soon as the server answers, which the server says in its output.
    """

    def __init__(self, folder: Path) -> None:
        require_server()
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.url: str | None = None
        """The address of the run's page, once the server answers."""
        self.has_failed = False
        """Whether the server ended before it answered."""

    def __enter__(self) -> "RunPage":
        self.output_folder = TemporaryDirectory(prefix="regard-page-")
        self.output = Path(self.output_folder.name) / "output.txt"
        """What the server prints. In a pipe, it would have to be read to the end, also for the browser it may open."""
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        self.output_folder.cleanup()

    def watch(self, display: "Watcher") -> "Watcher":
        """The display, with the server started at the first event, and its address printed after it."""
        from regard.training.events import Ended

        def show(event: "Event") -> None:
            display(event)
            if self.process is None:
                self.process = self._start()
            elif self.url is None and not isinstance(event, Ended):  # after the end, the page stays or is gone
                self.url = self._find_url(self.process)
                if self.url is not None:
                    typer.echo(f"Watch this run at {self.url}")

        return show

    def stay(self) -> None:
        """Keep the page until Ctrl-C, if a person is at the terminal."""
        if self.process is None or not sys.stdout.isatty():
            return
        with suppress(KeyboardInterrupt):
            while self.url is None and not self.has_failed:
                self.url = self._find_url(self.process)
                time.sleep(POLL_SECONDS)
            if self.url is not None:
                typer.echo(f"The page stays at {self.url} until Ctrl-C. Later: regard serve {self.folder}")
            self.process.wait()

    def _find_url(self, process: "subprocess.Popen[bytes]") -> str | None:
        """Return the address if the server answers by now; if it has ended instead, report why, once."""
        if self.has_failed:
            return None
        has_ended = process.poll() is not None
        printed = self.output.read_text(encoding="utf-8", errors="replace")
        if banner := re.search(r"serving at (http://\S+)\n", printed):
            return f"{banner[1]}#/runs"
        if has_ended:
            self.has_failed = True
            reason = printed.strip().rpartition("\n")[2].removeprefix("regard: ")
            typer.echo(f"regard: this run has no page: {reason or 'its server ended'}", err=True)
        return None

    def _start(self) -> "subprocess.Popen[bytes]":
        opens = ["--open"] if sys.stdout.isatty() and has_desktop() else []
        port = free_port(DEFAULT_PORT)
        command = [sys.executable, "-m", "regard", "serve", f"{self.folder}", "--port", f"{port}", *opens]
        with self.output.open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the training, which then stops the server
                # The training needs the processors, and a short line would break the address.
                env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
            )


def require_server() -> None:
    """Raise a RegardError if the packages of the server are missing."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RegardError(f"--watch needs the package {error.name}: pip install 'regard[serve]'") from None


def free_port(preferred: int) -> int:
    """The preferred port, or 0, by which the server picks another one, if it is in use."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return 0
    return preferred


def has_desktop() -> bool:
    """Whether a browser window can be opened: in a terminal without one, a text browser would take the screen."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
