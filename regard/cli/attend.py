"""`regard attend`: the attention of every head on a text."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.model_loading import default_model, for_languages, load_model
from regard.cli.shared_options import TRANSLATOR_HELP, Device, SourceLanguage, TargetLanguage
from regard.errors import RegardError


def attend(
    text: Annotated[str, typer.Argument(help="Text that the model reads.")],
    model: Annotated[str, typer.Option("--model", "-m", help=TRANSLATOR_HELP)] = "",
    target: Annotated[
        str | None, typer.Option(help="Target text of a translator; without one, the model translates the text first.")
    ] = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    kind: Annotated[str | None, typer.Option(help="Show only encoder, decoder or cross attention.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to show, counted from 0. Default: the last.")] = None,
    head: Annotated[
        int | None, typer.Option(help="Head to show, counted from 0. Default: the mean of all heads.")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture of all layers and heads.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write an interactive page, self-contained in one file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the tokens and weights as JSON.")] = None,
    lens: Annotated[
        bool, typer.Option("--lens", help="Also show the tokens that each layer would predict: the logit lens.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Show the attention of every head of a model, in the terminal or as a picture, a page or JSON.

    Each row is a token that attends; in a decoder, the token it reads → the token it predicts. A · marks a token that
    continues a word. Existing files are replaced.

    Example: regard attend "Le chat dort." --html attention.html

    Example: regard attend "Le chat dort." --kind cross --lens
    """
    from dataclasses import replace

    from regard.decoding.logit_lens import LENS_TOKENS

    if png:
        from regard.plots.optional_matplotlib import require_matplotlib

        require_matplotlib("--png needs")
    model = model or default_model(source_language, target_language)
    loaded = for_languages(load_model(model, device), source_language, target_language)
    loaded.require("attend")
    observed = loaded.observe(text, target, lens=LENS_TOKENS if lens else 0)
    attention = replace(observed.attention, model=Path(model).resolve().name)
    attention = attention if kind is None else attention.only(kind)
    for name, attention_map in attention.maps.items():
        try:
            attention_map.open(layer, head)  # report a wrong layer or head before anything is written
        except RegardError as error:
            raise RegardError(f"{name}: {error}") from None
    if not (png or html or json):
        from regard.plots.attention_view import show_attention
        from regard.plots.console import console

        show_attention(console(), attention, layer, head)
    if png:
        from regard.plots.figures import attention_png

        _write(png, attention_png(attention, layer, head))
    if html:
        from regard.decoding.attention_explanations import explanation_data
        from regard.page import attention_page

        shown = replace(observed, attention=attention)
        explained = explanation_data(shown, loaded.require_tokenizer(), loaded.special.end)
        data = {**attention.to_json(), **explained, "open": {"layer": layer, "head": head}}
        _write(html, attention_page(data).encode())
    if json:
        from json import dumps

        _write(json, dumps(attention.to_json(), ensure_ascii=False, allow_nan=False).encode())


def _write(path: Path, content: bytes) -> None:
    from regard.atomic_files import write_file

    write_file(path, content)
    typer.echo(f"{path}  {len(content) / 1000:,.0f} kB")


COMMANDS: list[Callable[..., None]] = [attend]
