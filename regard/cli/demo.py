"""`regard demo`: the complete story on bundled data."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared_options import INTERRUPTED


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run. Default: runs/demo, or runs/demo-decoder with --decoder-only."),
    ] = None,
    decoder_only: Annotated[
        bool, typer.Option("--decoder-only", help="Train a decoder-only model, the architecture of language models.")
    ] = False,
) -> None:
    """Train a small French–English translator, score it and show its attention, in about three minutes.

    The demo uses bundled text, and a GPU if there is one. The model is saved in the run's folder. Run the command again
    to resume an interrupted demo or replay a finished one.

    Example: regard demo
    """
    from regard.cli import app
    from regard.demo.story import demo as run
    from regard.plots.console import console
    from regard.threads import threads_for_free_cores

    names = typer.main.get_group(app).commands
    try:
        with threads_for_free_cores() as note:
            if note:
                typer.echo(f"Note: {note}")
            signal = run(console(), out, decoder_only, commands=names)
    except KeyboardInterrupt:
        typer.echo("\nInterrupted. Run the same command again to resume.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if signal:
        raise typer.Exit(128 + signal)


COMMANDS: list[Callable[..., None]] = [demo]
