"""Run the `regard` command in tests: in this process, or in one of its own."""

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.errors import RegardError


def regard(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `regard` in a process of its own."""
    return subprocess.run([sys.executable, "-m", "regard", *arguments], capture_output=True, text=True, timeout=120)


def command(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run `regard` in this process."""
    return CliRunner().invoke(app, list(arguments), input=stdin)


def refused(*arguments: str, stdin: str | bytes | None = None) -> str:
    """The message with which `regard` refuses its input."""
    done = command(*arguments, stdin=stdin)
    assert isinstance(done.exception, RegardError), done.output
    return str(done.exception)


def shown(show: object, result: object, width: int = 80) -> str:
    """What a function prints for a result on a console of this width."""
    console = Console(width=width, record=True, file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115, PTH123
    assert callable(show)
    show(console, result)
    console.file.close()
    return console.export_text()


def write(folder: Path, name: str, lines: list[str]) -> str:
    """Write lines to a file, and return its path."""
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(folder / name)
