"""A teacher's own probes, of which students see no more than the points.

They are in a file like `probes.py`: each public function is a probe, and `POINTS = {"wide_heads": 2}` may set points,
1 by default. In reports they are called hidden_1, hidden_2, … and their values have no names. Errors that they cause in
a solution are shown, because a student must be able to correct them. The file is `hidden.py` in an assignment's folder,
or is given to `regard check --hidden`.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from regard.config import check_type, did_you_mean
from regard.course.assignment_files import import_file
from regard.errors import RegardError

HIDDEN_FILE = "hidden.py"
HIDDEN_NAME = "hidden_"
"""How the names of hidden probes begin in reports."""
DEFAULT_POINTS = 1

AnyProbe = Callable[[Mapping[str, Any]], dict[str, Tensor]]


def public_functions(module: ModuleType) -> dict[str, AnyProbe]:
    """The public functions that a module defines, in their order."""
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }


def read_hidden_probes(path: Path, first_number: int = 1) -> dict[str, tuple[AnyProbe, float]]:
    """The probes of a teacher's file, by the names that reports use, each with its points."""
    module = import_file(f"regard_hidden_probes_{abs(hash(path.resolve()))}", path)
    functions = public_functions(module)
    if not functions:
        raise RegardError(f"{path} has no probes: each public function is one")
    points = getattr(module, "POINTS", {})
    check_type(f"{path}: POINTS", points, dict)
    for name, number in points.items():
        if name not in functions:
            raise RegardError(f"{path}: POINTS has {name!r}, which is not a probe: {did_you_mean(name, functions)}")
        check_type(f"{path}: POINTS[{name!r}]", number, int | float)
    return {
        f"{HIDDEN_NAME}{number}": (_concealed(function), points.get(name, DEFAULT_POINTS))
        for number, (name, function) in enumerate(functions.items(), first_number)
    }


def _concealed(probe: AnyProbe) -> AnyProbe:
    """A probe without its description and the names of its values."""

    @wraps(probe)
    def run(names: Mapping[str, Any]) -> dict[str, Tensor]:
        return {f"value {number}": value for number, value in enumerate(probe(names).values(), 1)}

    run.__doc__ = "A test that is not shown."
    return run
