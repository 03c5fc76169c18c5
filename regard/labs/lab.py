"""The definition of a lab: a question, a measurement, a figure, and claims that the measurement confirms or refutes.

A lab is a module of this package, named after the lab. It has:

- a docstring: the question on the first line, followed by a description of the experiment;
- `Sizes`: a frozen dataclass with the experiment's parameters, each with a docstring below it;
- `run(sizes) -> LabResult`: the measurement.

A lab may also have `FULL_SIZES`, the sizes of a longer form of the experiment that `--full` selects.
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
from regard.plots.optional_matplotlib import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = (
    *("scaling", "copy", "average", "one-head", "two-heads", "nonlinear", "mask", "heads", "positions"),
    *("residual", "complexity", "rnn", "kv-cache", "align", "prune", "smoothing", "schedule", "ablation", "pretrain"),
)
"""Names of all labs, in the order in which a course asks their questions."""


@dataclass(frozen=True)
class Claim:
    """A conclusion with the figures it is based on, and whether the measurement confirms it."""

    text: str
    holds: bool


@dataclass(frozen=True)
class ResultTable:
    """A table of measurements, formatted for people."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise RegardError(f"a table of {len(self.columns)} columns has a row of another length")


@dataclass(frozen=True)
class LabResult:
    """The outcome of a lab: tables, claims, and a function that draws the figure."""

    tables: tuple[ResultTable, ...]
    claims: tuple[Claim, ...]
    draw: "Callable[[Figure], None]"
    """Function that draws the results on an empty figure."""
    figure_size: tuple[float, float] = (9.0, 4.0)
    """Width and height of the figure in inches."""
    notes: tuple[str, ...] = ()
    """Remarks on how the results were obtained and what they do not show."""

    @property
    def holds(self) -> bool:
        """Whether the measurement confirms every claim."""
        return all(claim.holds for claim in self.claims)


@dataclass(frozen=True)
class Lab:
    """A lab, ready to run."""

    name: str
    question: str
    about: str
    """Description of the experiment: the lab's docstring without the question."""
    sizes: Any
    """Instance of the lab's `Sizes`."""
    run: Callable[[Any], LabResult]
    full_sizes: str = ""
    """Sizes of the lab's full form as name=value, separated by spaces; empty if it has none."""

    def with_sizes(self, changes: Sequence[str]) -> "Lab":
        """Return the same lab with some sizes changed, each given as name=value."""
        sizes = self.sizes
        defaults = {field.name: getattr(sizes, field.name) for field in fields(sizes)}
        for change in changes:
            name, equals, value = change.partition("=")
            if name not in defaults:
                raise RegardError(f"the lab {self.name} has no size {name!r}: {did_you_mean(name, defaults)}")
            if not equals:
                raise RegardError(f"{change!r} has no value: write {name}=VALUE")
            parsed = _parse_size(name, value, defaults[name])
            _check_range(name, parsed)
            sizes = replace(sizes, **{name: parsed})
        return replace(self, sizes=sizes)


def questions() -> dict[str, str]:
    """Return each lab's question by name, without importing the labs."""
    docstrings = {name: ast.get_docstring(ast.parse(_file(name).read_text(encoding="utf-8"))) for name in NAMES}
    return {name: (text or "").partition("\n")[0] for name, text in docstrings.items()}


def load_lab(name: str) -> Lab:
    """Import the lab of this name, with its default sizes."""
    if name not in NAMES:
        raise RegardError(f"unknown lab {name!r}: {did_you_mean(name, NAMES)}")
    require_matplotlib("the labs need")  # to draw their figures
    module = import_module(f"regard.labs.{_file(name).stem}")
    question, _, about = (module.__doc__ or "").strip().partition("\n")
    return Lab(name, question, about.strip(), module.Sizes(), module.run, getattr(module, "FULL_SIZES", ""))


def _file(name: str) -> Path:
    return Path(__file__).with_name(f"{name.replace('-', '_')}.py")


def _parse_size(name: str, value: str, default: Any) -> Any:
    """Parse a size as the type of its default: a number, several numbers, a string, or true/false."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(default, tuple):
            return tuple(type(default[0])(item) for item in value.split(","))
        return type(default)(value)
    except (KeyError, ValueError):
        expected = "numbers separated by commas" if isinstance(default, tuple) else f"a value like {default}"
        raise RegardError(f"{name}={value}: expected {expected}") from None


def _check_range(name: str, value: Any) -> None:
    """Raise an error unless integers are at least 1, and the seed and all other numbers are finite and at least 0."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        minimum = 1 if isinstance(number, int) and name != "seed" else 0
        if not minimum <= number < math.inf:
            raise RegardError(f"{name}={number:g}: expected a number of at least {minimum}")
