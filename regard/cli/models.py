"""`regard models`: the bundled models."""

from collections.abc import Callable
from typing import Any

import typer

from regard import models as bundle
from regard.cli.shared_options import JsonLines
from regard.models import BUNDLED_MODELS, bundled_folder, bundled_models


def models(as_json: JsonLines = False) -> None:
    """List the bundled models with their tasks, languages, sizes and scores.

    --json adds all scores with their signatures, the SHA-256 of the weights, and the folder, which contains the model's
    card (README.md).

    Example: regard models

    Example: regard models --json
    """
    if as_json:
        import json

        for name in bundled_models():
            typer.echo(json.dumps(_description(name), ensure_ascii=False))
    else:
        _print_table()
    for name in BUNDLED_MODELS:
        bundled_folder(name)  # a missing model raises an error that says what to do


def _description(name: str) -> dict[str, Any]:
    from dataclasses import asdict

    from regard.storage.metadata import strings_of, test_scores_of

    about = bundle.bundled_metadata(name)
    return {
        "name": name,
        "task": bundle.bundled_task(name),
        "languages": strings_of(about, "languages"),
        "parameters": bundle.bundled_parameters(name),
        "bytes": bundle.bundled_size(name),
        "sha256": bundle.bundled_weights_digest(name),
        "folder": str(bundled_folder(name)),
        "tests": [asdict(test) for test in test_scores_of(about)],
    }


def _print_table() -> None:
    from rich.table import Table

    from regard.plots.console import console

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("", "task", "params", "MB", "scores"):
        table.add_column(column, justify="right" if column in ("params", "MB") else "left")
    for name in bundled_models():
        millions, megabytes = bundle.bundled_parameters(name) / 1e6, bundle.bundled_size(name) / 1e6
        scores = "\n".join(_scores(bundle.bundled_metadata(name)))
        table.add_row(name, bundle.bundled_task(name), f"{millions:.1f} M", f"{megabytes:.1f}", scores)
    console().print(table)


def _scores(about: dict[str, Any]) -> list[str]:
    """The first figure of each test set, which is BLEU for a translator. Only a part of a test set is described."""
    from regard.storage.metadata import test_scores_of

    return [f"{test.figures[0].brief}: {test.set_name}" for test in test_scores_of(about)]


COMMANDS: list[Callable[..., None]] = [models]
