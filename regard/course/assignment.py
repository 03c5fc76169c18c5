"""An assignment: a folder with a starter, a reference solution, known mistakes, and probes that test a solution.

assignment.toml   title, names that a solution must define, points, sizes used in shape comments
starter.py        what the student starts from: docstrings and gaps
reference.py      a correct solution
variants.toml     each known mistake, as a few edits of the reference
probes.py         functions that run a solution and return the values to compare
mistakes.toml     optional: the texts about mistakes of this assignment only
hidden.py         optional: a teacher's own probes, which students do not see
notebook.py       optional: the story in which a notebook presents the starter
solutions/*.py    optional: correct solutions in other styles
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.config import check_type, did_you_mean
from regard.course.assignment_files import check_settings, import_file, read_text, read_toml, read_variant_tables
from regard.course.hidden_probes import HIDDEN_FILE, HIDDEN_NAME, public_functions, read_hidden_probes
from regard.errors import RegardError

ASSIGNMENTS_FOLDER = Path(__file__).parent / "assignments"
"""The folder of the bundled assignments."""

NAMES_IN_FILES = {"stage_descriptions": "says"}
"""Fields of an assignment that have another name in its file."""
FIELDS_OF_NAMES = {name: field for field, name in NAMES_IN_FILES.items()}

Names = Mapping[str, Any]
"""The names that a solution's file defines, with their values."""
Probe = Callable[[Names], dict[str, Tensor]]
"""A function that runs a solution and returns named values, which are the same for every correct solution."""


@dataclass(frozen=True)
class Mistake:
    """A known misconception, as it is explained to a student."""

    id: str
    title: str
    """What the code does wrong, in a few words."""
    why: str
    """The consequence, in one or two sentences."""
    question: str
    """A question that leads to the mistake without giving the answer away."""
    fix: str = ""
    """What to change, in one sentence. It is the last hint."""
    part: str = ""
    """The part of the Transformer that it concerns."""
    deduction: int | float = 2
    """Points that it costs, unless the assignment says otherwise."""


@dataclass(frozen=True, eq=False)  # compared by identity, which is fast: pairs of variants are looked up often
class Variant:
    """The reference with one deliberate mistake."""

    mistake: str
    """The id of the mistake that this variant makes."""
    edits: tuple[tuple[str, str], ...]
    """Pairs of a text that occurs exactly once in the reference and its replacement."""

    def applied_to(self, source: str) -> str:
        """The source with this mistake; a RegardError if the text of an edit does not occur exactly once."""
        for old, new in self.edits:
            if (count := source.count(old)) != 1:
                raise RegardError(
                    f"variant {self.mistake} replaces {old!r}, which must occur once in the source but occurs "
                    f"{count} times"
                )
            source = source.replace(old, new)
        return source


@dataclass(frozen=True)
class Assignment:
    """The contents of an assignment's folder."""

    folder: Path
    title: str
    defines: tuple[str, ...]
    """Names that a solution defines at the top level, by which the assignment of a file is recognised."""
    points: Mapping[str, int | float]
    """Points for each probe."""
    stages: tuple[str, ...]
    """Variables of the reference in the order in which they are computed, stage by stage."""
    sizes: Mapping[str, int]
    """Dimension names for shape comments, with their sizes in the example."""
    stage_descriptions: Mapping[str, str] = field(default_factory=dict)
    """A plain-English description of each stage, for students who have not seen the reference."""
    forbidden: tuple[str, ...] = ()
    """Full names of functions and classes of torch that a solution must not call."""
    style_points: int | float = 0
    """Points for a file without style remarks."""
    deductions: Mapping[str, int | float] = field(default_factory=dict)
    """Points that mistakes cost, by their ids, where they differ from the catalogue's."""
    progress_credit: int | float = 0.5
    """Share of the points that an unknown mistake leaves, if all steps of the example but the last are correct."""
    shape_deduction: int | float = 0
    """Points that wrong or missing shape comments cost."""
    brevity_points: int | float = 0
    """Additional points for a correct solution within `brevity_statements` and `brevity_lines`."""
    brevity_statements: int = 0
    """Maximum number of statements in each `forward`; 0 for no limit."""
    brevity_lines: int = 0
    """Maximum number of lines of code in each function; 0 for no limit."""
    edge_cases: tuple[str, ...] = ()
    """Probes of special cases that a solution may handle correctly although another mistake would affect them."""
    release: date | None = None
    """When students may see the reference, as a date with or without a time; None for always."""
    hidden: tuple[Path, ...] = ()
    """Files with a teacher's own probes. They are not a setting in the assignment's file."""

    def describe_stage(self, stage: str) -> str:
        """The description of a stage, or the variable's name if it has none."""
        return self.stage_descriptions.get(stage, stage)

    @property
    def name(self) -> str:
        """The name of the assignment, which is its folder's."""
        return self.folder.name

    @property
    def max_points(self) -> float:
        """The total number of points that a solution can get, without those for brevity."""
        return float(sum(self.points.values()) + self.style_points)

    @cached_property
    def reference(self) -> str:
        """The source of a correct solution."""
        return read_text(self.folder / "reference.py")

    @cached_property
    def starter(self) -> str:
        """The source that the student starts from."""
        return read_text(self.folder / "starter.py")

    @property
    def story(self) -> Path:
        """The file that tells the story of the assignment's notebook, which may not exist."""
        return self.folder / "notebook.py"

    @property
    def solutions(self) -> list[Path]:
        """The files with correct solutions in other styles, if there are any."""
        return sorted((self.folder / "solutions").glob("*.py"))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The reference with each of the known mistakes."""
        tables = read_variant_tables(self.folder / "variants.toml")
        return tuple(Variant(mistake, tuple(edits)) for mistake, edits in tables)

    @cached_property
    def probes(self) -> dict[str, Probe]:
        """The public functions of `probes.py`, in their order. The one called `example` is shown to the student."""
        return public_functions(import_file(f"regard_probes_{self.name.replace('-', '_')}", self.folder / "probes.py"))

    def with_hidden(self, path: Path) -> "Assignment":
        """The assignment with the probes of a teacher's file, and their points, in addition."""
        probes = self.probes
        hidden = read_hidden_probes(path, 1 + sum(name.startswith(HIDDEN_NAME) for name in probes))
        points = {name: points for name, (_, points) in hidden.items()}
        extended = replace(self, points={**self.points, **points}, hidden=(*self.hidden, path))
        vars(extended)["probes"] = {**probes, **{name: probe for name, (probe, _) in hidden.items()}}
        return extended


def load_assignments(course: Path = ASSIGNMENTS_FOLDER) -> list[Assignment]:
    """All assignments of a course, in the course's order; a RegardError if the folder has none."""
    paths = list(course.glob("*/assignment.toml")) if course.is_dir() else []
    if not paths:
        raise RegardError(f"{course} contains no assignments: each one is a subfolder with an assignment.toml file")
    paths.sort(key=lambda path: (_order(path), path.parent.name))
    return [read_assignment(path.parent) for path in paths]


def _order(path: Path) -> float:
    order = read_toml(path).get("order", 0)
    check_type(f"{path}: order", order, int | float)
    return float(order)


def load_assignment(name: str, course: Path = ASSIGNMENTS_FOLDER) -> Assignment:
    """The assignment with this name; a RegardError that suggests a similar name if there is none."""
    by_name = {assignment.name: assignment for assignment in load_assignments(course)}
    if name not in by_name:
        raise RegardError(f"unknown assignment {name!r}: {did_you_mean(name, list(by_name))}")
    return by_name[name]


def read_assignment(folder: Path) -> Assignment:
    """The assignment in this folder; a RegardError that names the file and the key if a setting is wrong."""
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in read_toml(folder / "assignment.toml").items()
        if key != "order"
    }
    check_settings(folder / "assignment.toml", settings, Assignment, NAMES_IN_FILES)
    assignment = Assignment(folder, **{FIELDS_OF_NAMES.get(key, key): value for key, value in settings.items()})
    hidden = folder / HIDDEN_FILE
    return assignment.with_hidden(hidden) if hidden.is_file() else assignment
