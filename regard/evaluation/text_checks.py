"""Checks of the texts that a score is computed on."""

from collections.abc import Collection, Mapping, Sequence, Set, Sized

from regard.config import did_you_mean
from regard.errors import RegardError
from regard.formatting import quoted


def check_texts(**sides: Sequence[str]) -> None:
    """Raise a `RegardError` unless each side is a list of strings, and all have the same length, at least one."""
    for name, texts in sides.items():
        check_list(name, texts, "strings")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise RegardError(f"{name}[{i}] must be a string, not {type(text).__name__}: {text!r}")
    check_lengths(**sides)


def check_list(name: str, items: object, content: str) -> None:
    """Raise a `RegardError` unless `items` is a list or a similar collection. `content` says what it should hold."""
    if isinstance(items, Collection) and not isinstance(items, str | bytes | Mapping | Set):
        return
    actual = f"{type(items).__name__}: {quoted(items)}"
    if items is None or isinstance(items, str):
        actual = "None" if items is None else "a single string"
    raise RegardError(f"{name} must be a list of {content}, not {actual}")


def check_known(kind: str, where: str, label: str, known: Sequence[str]) -> None:
    """Raise a `RegardError` if a label, which the error calls a `kind`, is not one of the model's."""
    if label not in known:
        raise RegardError(f"{where}: unknown {kind} {label!r}: {did_you_mean(str(label), known)}")


def check_lengths(**sides: Sized) -> None:
    """Raise a `RegardError` unless all sides have the same length, at least one."""
    (first, items), *others = sides.items()
    if not len(items):
        raise RegardError(f"{first} is empty: there is nothing to score")
    for name, other in others:
        if len(other) != len(items):
            raise RegardError(f"{len(items):,} {first} but {len(other):,} {name}: both must have the same length")
