"""Commands on one model."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[str, typer.Argument(help="A run, a model's folder (Regard's or Hugging Face's) or a GGUF file.")],
    folder: Annotated[Path, typer.Argument(help="A folder, which is made.")],
    to: Annotated[str, typer.Option(help="huggingface or ctranslate2.")] = "huggingface",
    dtype: Annotated[
        str, typer.Option(help="float32, float16, bfloat16; for ctranslate2 also int8, int16, int8_float16 …")
    ] = "float32",
) -> None:
    """Write a model for another engine: Hugging Face's transformers (and what reads its folders), or CTranslate2.

    Example: regard export runs/fr-en fr-en-ct2 --to ctranslate2 --dtype int8
    """
    from regard.api import load
    from regard.interop.export import export as write

    write(load(model), folder, to, dtype)  # type: ignore[arg-type]  # checked there
    size = sum(file.stat().st_size for file in folder.iterdir())
    typer.echo(f"{folder}: {size / 1e6:,.1f} MB for {to}, {dtype}; README.md in it says how it is loaded")


COMMANDS = [export]
