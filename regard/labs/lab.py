"""What a lab is: a question, a measurement, a picture, and claims that the measurement bears out or not.

A lab is a module of this package with the name of its file. It has

- a docstring: the question in its first line, below it what is set up;
- `Sizes`, a frozen dataclass: what can be made larger or smaller, each field with its meaning below it;
- `run(sizes) -> Result`: the measurement.
"""

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import did_you_mean
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = (
    *("scaling", "copy", "average", "one-head", "two-heads", "nonlinear", "mask", "heads", "positions"),
    *("residual", "complexity", "rnn", "kv-cache", "align", "prune", "smoothing", "schedule", "ablation"),
)
"""in the order in which a course asks"""


@dataclass(frozen=True)
class Claim:
    """A conclusion, with the figures it rests on, and whether they bear it out this time."""

    says: str
    holds: bool


@dataclass(frozen=True)
class Table:
    """What was measured, in words and numbers for people."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


@dataclass(frozen=True)
class Result:
    """What a lab found."""

    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    draw: "Callable[[Figure], None]"
    """draws the picture on an empty figure"""
    size: tuple[float, float] = (9.0, 4.0)
    """of the picture, in inches"""
    notes: tuple[str, ...] = ()
    """what should be known of the figures: where they were measured, what they do not say"""

    @property
    def holds(self) -> bool:
        """Whether every claim is borne out."""
        return all(claim.holds for claim in self.claims)


@dataclass(frozen=True)
class Lab:
    """A lab, ready to be run."""

    name: str
    question: str
    set_up: str
    sizes: Any
    """an instance of its `Sizes`"""
    run: Callable[[Any], Result]
    full: str = ""
    """the sizes of its long form, if it has one, each as name=value"""

    def sized(self, changes: Sequence[str]) -> "Lab":
        """The same lab in other sizes, each given as name=value."""
        sizes = self.sizes
        known = {field.name: getattr(sizes, field.name) for field in fields(sizes)}
        for change in changes:
            name, equals, value = change.partition("=")
            if name not in known:
                raise RegardError(f"the lab {self.name} has no size {name!r}: {did_you_mean(name, known)}")
            if not equals:
                raise RegardError(f"{change!r}: a size is given as {name}=VALUE")
            sizes = replace(sizes, **{name: _possible(_like(known[name], value, name), name)})
        return replace(self, sizes=sizes)


def questions() -> dict[str, str]:
    """What each lab asks, read without running any of it."""
    asked = {name: ast.get_docstring(ast.parse(_file(name).read_text(encoding="utf-8"))) for name in NAMES}
    return {name: (text or "").partition("\n")[0] for name, text in asked.items()}


def lab(name: str) -> Lab:
    """The lab of this name, in its usual sizes."""
    if name not in NAMES:
        raise RegardError(f"there is no lab {name!r}: {did_you_mean(name, NAMES)}")
    module = import_module(f"regard.labs.{_file(name).stem}")
    question, _, set_up = (module.__doc__ or "").strip().partition("\n")
    return Lab(name, question, set_up.strip(), module.Sizes(), module.run, getattr(module, "FULL", ""))


def _file(name: str) -> Path:
    return Path(__file__).with_name(f"{name.replace('-', '_')}.py")


def _like(usual: Any, value: str, name: str) -> Any:
    """A value of the kind that the size usually is: a number, several of them, a text, true or false."""
    try:
        if isinstance(usual, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(usual, tuple):
            return tuple(type(usual[0])(each) for each in value.split(","))
        return type(usual)(value)
    except (KeyError, ValueError):
        what = "numbers parted by commas" if isinstance(usual, tuple) else f"such as {usual}"
        raise RegardError(f"{name}={value}: it must be {what}") from None


def _possible(given: Any, name: str) -> Any:
    """The same, if there can be so many: whole numbers begin with 1, all others and the seed with 0."""
    for number in given if isinstance(given, tuple) else (given,):
        least = int(isinstance(number, int) and name != "seed")
        if isinstance(number, int | float) and not isinstance(number, bool) and not least <= number < math.inf:
            raise RegardError(f"{name}={number:g}: it must be a number from {least} on")
    return given
