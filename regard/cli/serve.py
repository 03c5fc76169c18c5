"""`regard serve`: the page and the HTTP APIs."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from regard.cli.models import MODEL, Device
from regard.errors import RegardError

PORT = 7878


def serve(
    models: Annotated[
        list[str] | None, typer.Argument(help=f"{MODEL} NAME=FOLDER names one; the bundled if none.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = PORT,
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine only with a token.")] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="REGARD_TOKEN", show_envvar=True, help="What clients must know.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name of this server; may be given again.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="A page's origin that may ask, as https://example.org.")
    ] = None,
    precision: Annotated[str, typer.Option(help="auto, float32, bfloat16, int8: see regard translate.")] = "auto",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = "auto",
) -> None:
    """Serve the page, and APIs that LibreTranslate's and OpenAI's clients speak, until Ctrl-C.

    Requests that arrive together are decoded together. /openapi.json describes all of it.

    Example: regard serve --open

    Example: regard serve fr-en stories=runs/stories --port 8000
    """
    from regard.server.memory_release import bound_kernel_caches

    bound_kernel_caches()  # before torch is imported
    try:
        from regard.server import guards
        from regard.server import listen as run
    except ImportError as error:
        raise RegardError(f"serving needs more packages ({error.name}): pip install 'regard[serve]'") from None
    from regard.cli.models import load_model
    from regard.plots.console import console
    from regard.server.app import create_app
    from regard.server.model_registry import named, shelf

    rules = guards.rules(host, allow_host or (), cors or (), token)
    places = named(models or ())
    listener = run.bind(host, port)  # a mistake does not wait for the models
    shown = console()
    with shown.status("loading"):
        found = shelf({name: load_model(place, device) for name, place in places.items()}, precision)
    app = create_app(found, rules)
    run.serve(app, listener, lambda: _announce(shown, run.address(listener), found), found.end, open_)
    shown.print("Ended.")


def _announce(console: Any, address: str, shelf: Any) -> None:
    """Where to look, and what is served."""
    from rich.markup import escape
    from rich.table import Table

    console.print(f"\n[bold]Regard[/] listens on [bold cyan]{escape(address)}[/]\n")
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("model", "does", "parameters"):
        table.add_column(column, justify="right" if column == "parameters" else "left")
    for served in shelf.by_name.values():
        told = served.told()
        languages = f" {told['source']} → {told['target']}" if served.languages else ""
        does = [f"translates{languages}"] * told["translates"] + ["writes"] * told["writes"]
        table.add_row(escape(served.name), escape(", ".join(does)), f"{told['parameters']:,}")
    console.print(table)
    console.print("\n[dim]LibreTranslate: /translate   OpenAI: /v1/completions   all: /openapi.json   Ctrl-C ends[/]")
    console.file.flush()  # whoever reads this through a pipe wants it now


COMMANDS: list[Callable[..., None]] = [serve]
