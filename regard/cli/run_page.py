"""The page of `regard train --watch`: `regard serve` in a process of its own, which reads the files of the run."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
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


def with_snapshots(recipe: "Recipe") -> "Recipe":
    """The recipe with snapshots."""
    count = recipe.train.snapshots or WATCHED_SNAPSHOTS
    return replace(recipe, train=replace(recipe.train, snapshots=count))


class RunPage:
    """The server of a run's page. It starts with the run's first event, when the folder exists, and stops at exit."""

    def __init__(self, folder: Path) -> None:
        require_server()
        self.folder = folder
        self.port = free_port(DEFAULT_PORT)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the run's page."""
        return f"http://127.0.0.1:{self.port}/#/runs"

    def __enter__(self) -> "RunPage":
        from regard.training.parallel import is_first_process

        if is_first_process():
            typer.echo(f"Watch this run at {self.url} (available a few seconds after the run starts)")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)

    def watch(self, display: "Watcher") -> "Watcher":
        """The display, with the server started at the first event."""

        def show(event: "Event") -> None:
            display(event)
            if self.process is None:
                self.process = self._start()

        return show

    def stay(self) -> None:
        """Keep the page until Ctrl-C, if a person is at the terminal."""
        if self.process is None or not sys.stdout.isatty():
            return
        typer.echo(f"The page stays at {self.url} until Ctrl-C. Later: regard serve {self.folder}")
        with suppress(KeyboardInterrupt):
            self.process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        opens = ["--open"] if sys.stdout.isatty() and has_desktop() else []
        command = [sys.executable, "-m", "regard", "serve", f"{self.folder}", "--port", f"{self.port}", *opens]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the training, which then stops the server
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # the training needs the processors
        )


def require_server() -> None:
    """Raise a RegardError if the packages of the server are missing."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RegardError(f"--watch needs the package {error.name}: pip install 'regard[serve]'") from None


def free_port(preferred: int) -> int:
    """The preferred port, or another one if it is in use."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RegardError("no port is free on 127.0.0.1")


def has_desktop() -> bool:
    """Whether a browser window can be opened: in a terminal without one, a text browser would take the screen."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
