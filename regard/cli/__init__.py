"""The commands. Each imports what it needs when it is called, so that `regard --help` does not wait for torch."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from regard import __version__
from regard.cli import attend, course, data, export, labs, models, scores, serve, train
from regard.errors import describe_os_error
from regard.formatting import visible_lines

app = typer.Typer(
    help="The Transformer of “Attention Is All You Need”: readable, trainable, fast and visible.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def regard(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """See the commands below; each has an example in its own help."""


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; runs/demo if not given, or runs/demo-decoder.")
    ] = None,
    decoder_only: Annotated[
        bool, typer.Option("--decoder-only", help="The same with a decoder alone, as language models are.")
    ] = False,
) -> None:
    """Watch a translator learn, then see how good it is, what is hard for it, and where it looks: some three minutes.

    It learns from text that comes along, on a GPU if there is one, and is kept in the run's folder. There the demo goes
    on if it was interrupted, and is shown again if it is done.

    Example: regard demo
    """
    from regard.demo.story import demo as run
    from regard.plots.console import console

    names = typer.main.get_group(app).commands
    try:
        signal = run(console(), out, decoder_only, commands=names)
    except KeyboardInterrupt:
        typer.echo("\nInterrupted. The same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    if signal:
        raise typer.Exit(128 + signal)


commands: list[Callable[..., None]] = [
    *train.COMMANDS,
    *models.COMMANDS,
    *export.COMMANDS,
    *attend.COMMANDS,
    *scores.COMMANDS,
    *labs.COMMANDS,
    *course.COMMANDS,
    *serve.COMMANDS,
]
for command in commands:
    app.command()(command)
app.add_typer(course.app, name="course")
app.add_typer(data.app, name="data")


def _fail(message: str) -> NoReturn:
    """Print an error and exit. It may quote a stranger's file, so what would control the terminal is made visible."""
    typer.echo(f"regard: {visible_lines(message)}", err=True)
    with suppress(OSError):
        sys.stdout.flush()
    sys.exit(2)


def main() -> None:
    """The `regard` command: a mistake of the user's ends with its message, not with a traceback."""
    try:
        app()
    except OSError as error:
        _fail(describe_os_error(error))
    except ValueError as error:
        _fail(str(error))
    except (MemoryError, RecursionError) as error:
        _fail("not enough memory" if isinstance(error, MemoryError) else "nested too deeply")
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):  # Ctrl-C, told by nobody yet
            typer.echo("\nregard: interrupted", err=True)
        raise
