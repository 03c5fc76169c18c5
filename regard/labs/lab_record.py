"""A lab run as data: the JSON file that the terminal output, the Markdown, the HTML and the web page are made from.

The figure is a file of its own, named in the record.
"""

import ast
import inspect
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from regard.errors import RegardError
from regard.formatting import duration
from regard.labs.lab import Claim, ResultTable
from regard.untrusted_files import read_json

FULL_SUFFIX = "-full"
"""Ending of a record's name if the lab's full form was run."""


@dataclass(frozen=True)
class LabSize:
    """A parameter of an experiment, its value in a run, and its meaning."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class LabRecord:
    """Everything that a lab run produced, except for the figure."""

    name: str
    """Name of the run's files: the lab's name, followed by `-full` for its full form."""
    question: str
    about: tuple[str, ...]
    """Paragraphs that describe the experiment; a list item starts with "- "."""
    picture: str
    """File name of the figure, in the same folder."""
    tables: tuple[ResultTable, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    sizes: tuple[LabSize, ...]
    command: str
    """Command that runs this experiment again."""
    regard_version: str
    torch_version: str
    seconds: float
    date: str
    """Day on which the experiment was run, such as 2026-11-19."""
    commit: str | None
    """Commit of Regard's source; None if it was not run from its repository."""

    @property
    def holds(self) -> bool:
        """Whether the measurement confirmed every claim."""
        return all(claim.holds for claim in self.claims)

    @property
    def confirmed(self) -> str:
        """Number of confirmed claims, as a phrase."""
        count = sum(claim.holds for claim in self.claims)
        return f"{count} of {len(self.claims)} conclusions confirmed"

    @property
    def environment(self) -> str:
        """Versions of Regard and PyTorch, the time that the run took, and its date."""
        regard = f"Regard {self.regard_version}" + (f" (commit {self.commit})" if self.commit else "")
        return f"{regard} and PyTorch {self.torch_version} in {duration(self.seconds)} on {self.date}"

    def json_text(self) -> str:
        """Return the content of the record's JSON file."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"


def read_record(path: Path) -> LabRecord:
    """Read a record from its JSON file and validate it."""
    record: LabRecord = _parse(LabRecord, read_json(path), str(path))
    if (record.name, record.picture) != (path.stem, f"{path.stem}.png"):
        raise RegardError(f"{path}: name and picture must be {path.stem!r} and '{path.stem}.png'")
    return record


def _parse(kind: Any, value: Any, location: str) -> Any:
    """Convert parsed JSON to a dataclass, a tuple or a scalar of type `kind`; any other structure is an error."""
    if is_dataclass(kind):
        types = get_type_hints(kind)
        if not isinstance(value, dict) or set(value) != set(types):
            raise RegardError(f"{location}: expected an object with the keys {', '.join(types)}")
        values = {name: _parse(types[name], value[name], f"{location}: {name}") for name in types}
        try:
            return kind(**values)  # type: ignore[operator]
        except RegardError as error:
            raise RegardError(f"{location}: {error}") from None
    if get_origin(kind) is UnionType:  # a value that may be missing
        return None if value is None else _parse(get_args(kind)[0], value, location)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_parse(get_args(kind)[0], item, location) for item in value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        expected = "list" if get_origin(kind) is tuple else kind.__name__
        raise RegardError(f"{location}: expected {expected}, got {type(value).__name__}")
    return value


def described_sizes(sizes: Any) -> tuple[LabSize, ...]:
    """List the fields of a lab's `Sizes`, with their values as `--set` takes them and their docstrings."""
    meanings = _field_docstrings(type(sizes))
    return tuple(
        LabSize(field.name, size_text(getattr(sizes, field.name)), meanings.get(field.name, ""))
        for field in fields(sizes)
    )


def size_text(value: Any) -> str:
    """Format a size as `--set` takes it.

    >>> [size_text(value) for value in (3, (0.5, 2.0), True)]
    ['3', '0.5,2.0', 'true']
    """
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def sizes_table(sizes: Sequence[LabSize]) -> ResultTable:
    """Return the sizes as a table."""
    return ResultTable(("size", "value", "meaning"), tuple((size.name, size.value, size.meaning) for size in sizes))


def _field_docstrings(kind: type[Any]) -> dict[str, str]:
    """Read the string below each field from the source of a dataclass."""
    (body,) = (node.body for node in ast.parse(dedent(inspect.getsource(kind))).body if isinstance(node, ast.ClassDef))
    return {
        node.target.id: " ".join(str(below.value.value).split())
        for node, below in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }
