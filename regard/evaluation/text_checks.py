"""Checks of the texts that a score is computed on."""

from collections.abc import Sequence, Sized

from regard.errors import RegardError


def check_texts(**sides: Sequence[str]) -> None:
    """Raise a `RegardError` unless each side is a list of strings, and all have the same length, at least one."""
    for name, texts in sides.items():
        if texts is None or isinstance(texts, str):
            actual = "None" if texts is None else "a single string"
            raise RegardError(f"{name} must be a list of strings, not {actual}")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise RegardError(f"{name}[{i}] must be a string, not {type(text).__name__}: {text!r}")
    check_lengths(**sides)


def check_lengths(**sides: Sized) -> None:
    """Raise a `RegardError` unless all sides have the same length, at least one."""
    (first, items), *others = sides.items()
    if not len(items):
        raise RegardError(f"{first} is empty: there is nothing to score")
    for name, other in others:
        if len(other) != len(items):
            raise RegardError(f"{len(items):,} {first} but {len(other):,} {name}: both must have the same length")
