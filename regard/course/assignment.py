"""An assignment is a folder: what a student is given, a right answer, the known ways to go wrong, what is looked at.

assignment.toml   title, the names that a solution defines, points, the words of shape comments
starter.py        what the student is given: docstrings and gaps
reference.py      a right answer
variants.toml     each misconception as a few edits of the reference
probes.py         functions that put a solution to work and return what they saw
"""

import importlib.util
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from regard.config import did_you_mean
from regard.errors import RegardError

HERE = Path(__file__).parent / "assignments"

Names = Mapping[str, Any]
"""what a solution's file defines"""
Probe = Callable[[Names], dict[str, Tensor]]
"""what is seen of a solution, by name; the same numbers for every right one, however it is written"""


@dataclass(frozen=True)
class Mistake:
    """A known misconception, as a person is told of it."""

    id: str
    title: str
    """what the code does, in a few words"""
    why: str
    """what comes of it, in a sentence or two"""
    question: str
    """what to ask oneself: it leads to the mistake without giving the answer away"""


@dataclass(frozen=True, eq=False)  # told apart by what they are, not by their texts: pairs of them are looked up often
class Variant:
    """The reference with one mistake made on purpose."""

    mistake: str
    """the id of what it shows"""
    edits: tuple[tuple[str, str], ...]
    """texts of the reference, each found there once, and what stands in their place"""

    def applied_to(self, source: str) -> str:
        """The reference with this mistake made; a ValueError when an edit's text is not there once."""
        for old, new in self.edits:
            if (count := source.count(old)) != 1:
                raise RegardError(f"the variant {self.mistake} replaces {old!r}, which stands there {count} times")
            source = source.replace(old, new)
        return source


@dataclass(frozen=True)
class Assignment:
    """A folder of an assignment, read."""

    folder: Path
    title: str
    defines: tuple[str, ...]
    """names that a solution defines at its top, by which a file is known"""
    points: Mapping[str, int | float]
    """for each probe"""
    stages: tuple[str, ...]
    """the reference's variables in the order in which they come about, stage by stage"""
    sizes: Mapping[str, int]
    """the words of shape comments, and how large each is in the example"""
    says: Mapping[str, str] = field(default_factory=dict)
    """the stages in plain words, for who does not know the reference's variables"""
    style_points: int | float = 0
    """for a file without style remarks"""
    brevity_points: int | float = 0
    """for a right solution whose longest function has at most `brevity_lines` lines of code"""
    brevity_lines: int = 0

    def said(self, stage: str) -> str:
        """A stage in plain words; its name where there are none."""
        return self.says.get(stage, stage)

    @property
    def name(self) -> str:
        """How it is called: as its folder."""
        return self.folder.name

    @cached_property
    def reference(self) -> str:
        """The right answer's source."""
        return (self.folder / "reference.py").read_text(encoding="utf-8")

    @cached_property
    def starter(self) -> str:
        """What the student is given."""
        return (self.folder / "starter.py").read_text(encoding="utf-8")

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The known ways to go wrong."""
        told = tomllib.loads((self.folder / "variants.toml").read_text(encoding="utf-8"))
        return tuple(
            Variant(each["mistake"], tuple((old, new) for old, new in each["edits"])) for each in told["variant"]
        )

    @cached_property
    def probes(self) -> dict[str, Probe]:
        """What is looked at: the public functions of `probes.py`, in their order; `example` is the one told about."""
        module = _module(f"regard_probes_{self.name.replace('-', '_')}", self.folder / "probes.py")
        own = {name: each for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
        return {name: each for name, each in own.items() if callable(each) and not name.startswith("_")}


def assignments(folder: Path = HERE) -> list[Assignment]:
    """All assignments of a course, in its order; a ValueError where there is none."""
    if not folder.is_dir() or not any(folder.glob("*/assignment.toml")):
        raise RegardError(f"{folder} holds no assignment: each is a folder in it, with an assignment.toml")
    found = sorted(folder.glob("*/assignment.toml"), key=lambda path: (_toml(path).get("order", 0), path.parent.name))
    return [read(path.parent) for path in found]


def read(folder: Path) -> Assignment:
    """The assignment of a folder."""
    told = _toml(folder / "assignment.toml")
    told.pop("order", None)
    for name in ("defines", "stages"):
        told[name] = tuple(told[name])
    return Assignment(folder, **told)


def assignment(name: str, folder: Path = HERE) -> Assignment:
    """The assignment of this name; a ValueError that knows the others when there is none."""
    known = {each.name: each for each in assignments(folder)}
    if name not in known:
        raise RegardError(f"there is no assignment {name!r}: {did_you_mean(name, list(known))}")
    return known[name]


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RegardError(f"{path} cannot be imported: is it a Python file?")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
