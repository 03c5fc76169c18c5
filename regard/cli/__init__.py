"""The `regard` command. Each subcommand imports what it needs when it runs, so `regard --help` does not load torch."""

import gc
import os
import signal
import sys
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from regard import __version__
from regard.cli import (
    attend,
    classify,
    compare,
    course,
    data,
    demo,
    embed,
    evaluate,
    export,
    fill,
    generate,
    labs,
    models,
    score,
    serve,
    tag,
    train,
    translate,
    verify,
)
from regard.cli.shared_options import INTERRUPTED, command_help
from regard.errors import CallError, RegardError, describe_os_error
from regard.formatting import visible_lines

OBJECTS_PER_COLLECTION = 50_000
"""New objects after which Python looks for garbage. Importing torch makes half a million, all of which stay, and with
Python's default (700) looking for garbage among them takes a tenth of the time to start."""
SPINS_BEFORE_SLEEP = "2000"
"""Iterations, some microseconds, for which a thread of OpenMP spins before it sleeps. Training petit-fr-en on two cores
next to a busy program, two threads processed 3,900 tokens/s with it and at most 1,300 with the default; on idle cores,
7,600 and 8,000."""

app = typer.Typer(
    help="The Transformer of “Attention Is All You Need”: readable, trainable, fast and visible.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> bool:
    if requested:
        typer.echo(f"regard {__version__}")
        raise typer.Exit
    return requested


@app.callback()
def regard(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="REGARD_DEBUG", help="Show the full traceback of every error.")
    ] = False,
) -> None:
    """Run a command. `regard COMMAND --help` explains it and gives an example."""
    del version  # handled by its callback
    os.environ["REGARD_DEBUG"] = "1" if debug else ""


commands: list[Callable[..., None]] = [
    *demo.COMMANDS,
    *train.COMMANDS,
    *translate.COMMANDS,
    *generate.COMMANDS,
    *classify.COMMANDS,
    *tag.COMMANDS,
    *embed.COMMANDS,
    *fill.COMMANDS,
    *verify.COMMANDS,
    *models.COMMANDS,
    *export.COMMANDS,
    *attend.COMMANDS,
    *evaluate.COMMANDS,
    *compare.COMMANDS,
    *score.COMMANDS,
    *labs.COMMANDS,
    *course.COMMANDS,
    *serve.COMMANDS,
]
for command in commands:
    app.command()(command)
app.add_typer(course.app, name="course")
app.add_typer(data.app, name="data")
for group in (app, course.app, data.app):
    for registered in group.registered_commands:
        registered.help = command_help(registered.callback)


def spin_briefly(environment: MutableMapping[str, str]) -> None:
    """Have threads of torch sleep soon when they wait for each other; to be called before torch is imported.

    By default, GNU's OpenMP spins for milliseconds, and occupies the core that the thread it waits for may need.
    Settings of the user are kept.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", SPINS_BEFORE_SLEEP)


def main() -> None:
    """Run `regard`. An error in the user's input prints one line; any other exception is a bug and shows its traceback.

    Errors of the operating system count as input errors when they name a file. `--debug` shows every traceback.
    """
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    spin_briefly(os.environ)
    try:
        app()
    except CallError as error:
        _fail(error, error.command_line_message)
    except RegardError as error:
        _fail(error, str(error))
    except OSError as error:
        if error.filename is None:
            raise
        _fail(error, describe_os_error(error))
    except MemoryError as error:
        _fail(error, "not enough memory")
    except KeyboardInterrupt:  # before typer handles it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        typer.echo("\nregard: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):  # not reported by the command
            typer.echo("\nregard: interrupted", err=True)
        if end.code == INTERRUPTED:  # another Ctrl-C could only add a traceback of Python's exit
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
    finally:
        gc.freeze()  # otherwise Python searches all objects for garbage as it exits: 0.1 s with torch


def _fail(error: Exception, message: str) -> NoReturn:
    """Print an error and exit with 2. The message may quote an untrusted file, so control characters are escaped."""
    if os.environ.get("REGARD_DEBUG"):
        raise error
    typer.echo(f"regard: {visible_lines(message)}", err=True)
    with suppress(OSError):
        sys.stdout.flush()
    sys.exit(2)
