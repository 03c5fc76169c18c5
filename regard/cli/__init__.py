"""The commands. Each imports what it needs when it is called, so that `regard --help` does not wait for torch."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from regard import __version__
from regard.cli import attend, bench, data, models, scores, train

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
def demo() -> None:
    """Show what there is: a tiny model's shapes, and its attention on one sentence.

    Example: regard demo
    """
    from regard.demo import demo as run
    from regard.view.console import console

    run(console())


commands: list[Callable[..., None]] = [*train.COMMANDS, *models.COMMANDS, *attend.COMMANDS, *scores.COMMANDS]
for command in commands:
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """The `regard` command: a mistake of the user's ends with its message, not with a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"regard: {error}", err=True)
        sys.exit(2)
