"""`regard attend`: what every head looks at."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.models import MODEL, Device
from regard.errors import RegardError
from regard.models import DEFAULT_MODEL


def attend(
    text: Annotated[str, typer.Argument(help="What the model reads.")],
    model: Annotated[str, typer.Option("--model", "-m", help=f"{MODEL} Without it, the bundled {DEFAULT_MODEL}.")] = "",
    target: Annotated[
        str | None, typer.Option(help="What it writes; a translator that is given none translates first.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="encoder, decoder or cross alone.")] = None,
    layer: Annotated[int | None, typer.Option(help="Open this layer, counted from 0; else the last.")] = None,
    head: Annotated[int | None, typer.Option(help="Open this head, counted from 0; else the mean of all.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture of all layers and heads.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to look around in, whole in one file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write tokens and weights.")] = None,
    device: Device = "auto",
) -> None:
    """Show what every head of a model looks at: here, or as a picture, a page or JSON.

    A row is a token that looks: in a decoder what it reads → what it writes. A · marks a piece that goes on with a
    word. Files that are there already are written anew.

    Example: regard attend "Le chat dort." --html look.html
    """
    from dataclasses import replace

    from regard.cli.models import default_model, load_model

    model = model or default_model()
    attention = replace(load_model(model, device).attend(text, target), model=Path(model).resolve().name)
    attention = attention if kind is None else attention.only(kind)
    for name, each in attention.maps.items():
        try:
            each.open(layer, head)  # a mistake is told before anything is written
        except ValueError as error:
            raise RegardError(f"{name}: {error}") from None
    if not (png or html or json):
        from regard.plots.attention_view import show_attention
        from regard.plots.console import console

        show_attention(console(), attention, layer, head)
    if png:
        from regard.plots.figures import attention_png

        _write(png, attention_png(attention, layer, head))
    if html:
        from regard.page import attention_page

        _write(html, attention_page({**attention.to_json(), "open": {"layer": layer, "head": head}}).encode())
    if json:
        from json import dumps

        _write(json, dumps(attention.to_json(), ensure_ascii=False, allow_nan=False).encode())


def _write(path: Path, content: bytes) -> None:
    from regard.atomic_files import write_file

    write_file(path, content)
    typer.echo(f"{path}  {len(content) / 1000:,.0f} kB")


COMMANDS: list[Callable[..., None]] = [attend]
