"""`regard course test`: an author's slips give clear errors."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.course.assignment import ASSIGNMENTS_FOLDER, load_assignments
from regard.course.author_checks import PartResult, examine_assignment
from tests.support.example_course import write_example_course

Edit = Callable[[Path], None]


def replacing(name: str, old: str, new: str) -> Edit:
    def edit(course: Path) -> None:
        path = course / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    return edit


def writing(name: str, content: str | bytes) -> Edit:
    def edit(course: Path) -> None:
        (course / name).parent.mkdir(exist_ok=True)
        (course / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return edit


def removing(name: str) -> Edit:
    return lambda course: (course / name).unlink()


def first_problem(folder: Path) -> tuple[str, str]:
    """The first part with a problem. The parts after it, of which the last starts a process, are not examined."""
    for part in examine_assignment(folder):
        if part.problems:
            return part.title, part.problems[0]
    raise AssertionError("there is no problem")


TOML, PROBES, VARIANTS = "average/assignment.toml", "average/probes.py", "average/variants.toml"
REFERENCE, STARTER = "average/reference.py", "average/starter.py"
SLIPS = {
    "missing file": (removing(STARTER), "files", r"starter\.py is missing"),
    "latin-1": (writing(STARTER, b"# \xe9\n"), "files", r"starter\.py is not encoded in UTF-8"),
    "bad toml": (replacing(TOML, "order = 1", "order = "), "files", r"assignment\.toml is not valid TOML: .* line 1"),
    "misspelt key": (replacing(TOML, "title", "titel"), "files", "has no key 'titel': did you mean 'title'"),
    "missing key": (replacing(TOML, 'defines = ["running_mean"]\n', ""), "files", "has no defines"),
    "wrong type": (replacing(TOML, "example = 2", 'example = "2"'), "files", r"points\.example='2' has type str"),
    "not a table": (replacing(TOML, "[sizes]\nbatch = 2\nseq = 3\nwidth = 4\n", "sizes = 3\n"), "files", "sizes"),
    "syntax of a probe": (replacing(PROBES, "def longer(names)", "def longer(names"), "files", r"probes\.py, line 11"),
    "import of a probe": (writing(PROBES, "import nothing_at_all\n"), "files", r"probes\.py, line 1: ModuleNotFound"),
    "no variants": (writing(VARIANTS, ""), "files", "has no variants"),
    "variant without id": (writing(VARIANTS, "[[variant]]\nedits = []\n"), "files", "variant 1 has no mistake"),
    "edit of three texts": (replacing(VARIANTS, '"sums"]', '"sums", "x"]'), "files", "variant 2, not-divided: edits"),
    "mistake without text": (replacing("mistakes.toml", "why = ", "# "), "files", "mean-over-batch has no why"),
    "no example": (replacing(PROBES, "def example", "def short"), "reference", "no probe called example"),
    "failing probe": (
        replacing(PROBES, 'names["running_mean"](inputs', 'names["mean"](inputs'),
        "reference",
        r"probes\.py, in the probe example: KeyError",
    ),
    "failing reference": (replacing(REFERENCE, "s / counts", "s / count"), "reference", r"reference\.py, line 10"),
    "random probe": (
        replacing(PROBES, "x.grad}", 'x.grad * len(vars(longer).setdefault("calls", [1]).append(1) or longer.calls)}'),
        "reference",
        "probe longer gives other values each time",
    ),
    "probe without points": (replacing(TOML, "longer = 2\n", ""), "points", "no entry for the probe longer"),
    "points without probe": (replacing(TOML, "longer = 2", "longer = 2\nlast = 1"), "points", "last, which is not a"),
    "unknown stage": (replacing(TOML, '"counts", ', '"count", '), "stages", "the stage count is not a tensor"),
    "starter without gap": (
        replacing(STARTER, 'raise NotImplementedError("write running_mean")', "return x"),
        "starter",
        "has no gap",
    ),
    "starter of another name": (replacing(STARTER, "def running_mean", "def mean"), "starter", "does not define"),
    "text that is not there": (replacing(VARIANTS, "sums / counts", "sums / count "), "2 variants", "occurs 0 times"),
    "unnoticed variant": (
        replacing(VARIANTS, '["sums / counts", "sums"]', '["sums / counts", "sums / counts + 0"]'),
        "2 variants",
        "variant 2, not-divided: no probe notices it",
    ),
    "two names for one mistake": (
        lambda course: replacing(VARIANTS, "[[variant]]\nmistake = \"not", TWIN)(course),
        "3 variants",
        "variant 2, mean-over-batch: gives the same values as not-divided",
    ),
    "wrong solution": (
        writing("average/solutions/mine.py", "def running_mean(x):\n    return x.cumsum(dim=1)\n"),
        "1 other solutions",
        r"mine\.py should pass, but has the mistake not-divided",
    ),
    "bad notebook": (writing("average/notebook.py", "# %% [markdwn]\n"), "notebook", r"notebook\.py, line 1"),
    "notebook that breaks the solution": (
        writing("average/notebook.py", '# %% starter="running_mean"\n\n# %%\nrunning_mean = None\n'),
        "notebook",
        "should pass, but",
    ),
}  # fmt: skip
TWIN = '[[variant]]\nmistake = "mean-over-batch"\nedits = [["sums / counts", "sums"]]\n\n[[variant]]\nmistake = "not'


@pytest.fixture(scope="module")
def example_course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_example_course(tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_reported(slip: str, example_course: Path, tmp_path: Path) -> None:
    edit, part, message = SLIPS[slip]
    course = shutil.copytree(example_course, tmp_path / "course")
    edit(course)
    title, problem = first_problem(course / "average")
    assert title == part
    assert re.search(message, problem), problem


@pytest.mark.slow
def test_the_command_tests_a_course(example_course: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["course", "test", str(example_course)])
    assert done.exit_code == 0, done.output
    assert "✓ 2 variants" in done.output
    course = shutil.copytree(example_course, tmp_path / "course")
    removing(REFERENCE)(course)
    done = CliRunner().invoke(app, ["course", "test", str(course / "average")])
    assert done.exit_code == 1
    assert "✗ files" in done.output
    assert "reference.py is missing" in done.output.replace("\n", "")
    assert CliRunner().invoke(app, ["course", "test", str(tmp_path)]).exit_code != 0


@pytest.mark.slow
def test_points_that_the_reference_does_not_get_are_reported(example_course: Path, tmp_path: Path) -> None:
    course = shutil.copytree(example_course, tmp_path / "course")
    replacing(REFERENCE, "import torch", "import os\nimport torch")(course)
    *_, last = examine_assignment(course / "average")
    assert isinstance(last, PartResult)
    assert "gets 0 of 1 points for style" in last.problems[0]


@pytest.mark.long
@pytest.mark.parametrize("name", [assignment.name for assignment in load_assignments()])
def test_the_bundled_assignments_have_no_slips(name: str) -> None:
    assert not [problem for part in examine_assignment(ASSIGNMENTS_FOLDER / name) for problem in part.problems]
