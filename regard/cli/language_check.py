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
    from regard.decoding.language_guess import language_warning, other_language

    warning = language_warning(texts, source_language)
    if warning is None:
        return False
    remedy = f"; {_remedy(other_language(texts, source_language))}" if bundled else ""
    typer.echo(f"regard: warning: {warning}{remedy}", err=True)
    return True


def warn_of_rows(model: str, bundled: bool, texts: list[str]) -> None:
    """Warn if the first rows of a job are in another language. The model itself is loaded by the workers, later."""
    from regard.interop.load import find_model
    from regard.untrusted_files import read_json

    config = find_model(model) / "config.json"
    about = read_json(config).get("about") if config.is_file() else None
    languages = about.get("languages") if isinstance(about, dict) else None
    if isinstance(languages, list) and languages and isinstance(languages[0], str):
        warn_of_language(texts, languages[0], bundled)


def _remedy(language: str | None) -> str:
    """How to choose a bundled model for another source language, if there is one."""
    try:
        pair = bundled_languages(bundled_translator(source=language))
    except RegardError:
        pair = None
    if pair is None:
        return "no bundled model translates from that language: see regard models"
    return f"use --from {pair[0]} --to {pair[1]}"
