"""Warn on stderr if texts are in another language than the one that a model translates from."""

from collections.abc import Iterable, Iterator

import typer

from regard.errors import RegardError
from regard.models import bundled_languages, bundled_translator

SAMPLED_LINES = 32
"""Number of lines by which the language of a file is judged."""


def watch_language(lines: Iterable[str], source_language: str | None, single: bool, bundled: bool) -> Iterator[str]:
    """Pass lines on and warn at most once.

    With `single`, each line is judged by itself; otherwise the first lines of a file are judged together. `bundled`
    says that the model was chosen by --from and --to, so that these can choose another one.
    """
    sample: list[str] = []
    judged = source_language is None
    for line in lines:
        if not judged:
            sample.append(line)
            if single or len(sample) == SAMPLED_LINES:
                judged = warn_of_language(sample, source_language, bundled) or not single
                sample = []
        yield line
    if sample and not judged:
        warn_of_language(sample, source_language, bundled)


def warn_of_language(texts: list[str], source_language: str | None, bundled: bool) -> bool:
    """Print a warning if the texts are clearly in another language, and return whether it was printed."""
    from regard.decoding.language_guess import describe_other_language, other_language

    language = other_language(texts, source_language)
    if language is None or source_language is None:
        return False
    remedy = f"; {_remedy(language)}" if bundled else ""
    typer.echo(f"regard: warning: {describe_other_language(language, source_language)}{remedy}", err=True)
    return True


def warn_of_rows(model: str, source_language: str | None, bundled: bool, texts: list[str]) -> None:
    """Warn if the first rows of a job are in another language. The model itself is loaded by the workers, later.

    `source_language` is that of --from; without it, the language is that of the model's metadata.
    """
    from regard.decoding.language_guess import first_language
    from regard.interop.load import find_model
    from regard.untrusted_files import read_json

    config = find_model(model) / "config.json"
    about = read_json(config).get("about") if config.is_file() else None
    warn_of_language(texts, source_language or first_language(about if isinstance(about, dict) else {}), bundled)


def _remedy(language: str) -> str:
    """How to choose a bundled model for another source language or script, if there is one."""
    try:
        pair = bundled_languages(bundled_translator(source=language))
    except RegardError:
        pair = None
    if pair is None:
        return "no bundled model translates from it: see regard models"
    return f"use --from {pair[0]} --to {pair[1]}"
