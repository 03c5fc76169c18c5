"""`regard models`: the bundled models."""

import re
from collections.abc import Callable
from typing import Any

from regard.models import BUNDLED_MODELS, bundled_folder, bundled_models

_WHOLE_SET = re.compile(r"(, \w+)?, all [\d,]+ lines$")  # the language and number of lines of a complete test set


def models() -> None:
    """List the bundled models with their languages, sizes and scores.

    Example: regard models
    """
    from rich.table import Table

    from regard import models as bundle
    from regard.plots.console import console
    from regard.storage.metadata import strings_of

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("", "languages", "parameters", "MB", "scores"):
        table.add_column(column, justify="right" if column in ("parameters", "MB") else "left")
    for name in bundled_models():
        about = bundle.bundled_metadata(name)
        languages = " → ".join(strings_of(about, "languages"))
        parameters, megabytes = f"{bundle.bundled_parameters(name):,}", f"{bundle.bundled_size(name) / 1e6:.1f}"
        table.add_row(name, languages, parameters, megabytes, "\n".join(_scores(about)))
    console().print(table)
    for name in BUNDLED_MODELS:
        bundled_folder(name)  # a missing model raises an error that says what to do


def _scores(about: dict[str, Any]) -> list[str]:
    """The first figure of each test set, which is BLEU for a translator. Only a part of a test set is described."""
    from regard.storage.metadata import test_scores_of

    first_figures = ((test.figures[0], test.set) for test in test_scores_of(about))
    return [f"{figure.name} {figure.value:.1f}: {_WHOLE_SET.sub('', test_set)}" for figure, test_set in first_figures]


COMMANDS: list[Callable[..., None]] = [models]
