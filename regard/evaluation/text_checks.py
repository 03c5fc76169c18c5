"""What every score asks of its texts before it counts anything."""

from collections.abc import Sequence, Sized

from regard.errors import RegardError


def check_texts(**sides: Sequence[str]) -> None:
    """A ValueError unless each side is a list of texts, and all have equally many, at least one."""
    for name, texts in sides.items():
        if texts is None or isinstance(texts, str):
            raise RegardError(f"{name} must be a list of texts, and this is {'none' if texts is None else 'one text'}")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise RegardError(f"{name}[{i}] must be a text, and this is a {type(text).__name__}: {text!r}")
    check_lengths(**sides)


def check_lengths(**sides: Sized) -> None:
    """A ValueError unless all sides have equally many items, at least one."""
    (first, items), *others = sides.items()
    if not len(items):
        raise RegardError(f"{first} is empty: there is nothing to score")
    for name, other in others:
        if len(other) != len(items):
            raise RegardError(f"{len(items):,} {first} but {len(other):,} {name}: each line must have its counterpart")
