"""Notebooks: the percent format is read, stories run with a correct solution filled in, and checking skips pictures."""

import json
from pathlib import Path
from typing import Any

import pytest

from regard.course.assignment import Assignment, load_assignments
from regard.course.check import check
from regard.course.notebook_writer import as_notebook, fill_in, read_percent_cells
from regard.course.observe import _blocks_to_run
from regard.course.solution_file import read_solution
from regard.course.unfinished import is_untouched
from tests.support.matplotlib_backend import drawing_to_memory

STORIES = [assignment for assignment in load_assignments() if assignment.story.is_file()]
PERCENT = """# %% [markdown]
# # Title
#
# Text with `code`.

# %%
import torch

x = 1

# %% starter="second"
# %%
print(x)
"""
SOURCE = """'''The file.'''

import math


def first():
    return 1


# two
def second():
    return 2


end = 3
"""


def test_every_assignment_has_a_story() -> None:
    assert load_assignments() == STORIES


def notebook_of(assignment: Assignment, source: str) -> Any:
    return json.loads(as_notebook(source, assignment.story))


def test_cells_are_read_and_the_starter_is_inserted() -> None:
    cells = fill_in(read_percent_cells(PERCENT, Path("notebook.py")), SOURCE, Path("notebook.py"))
    assert [cell.kind for cell in cells] == ["markdown", "code", "code", "code"]
    assert cells[0].text == "# Title\n\nText with `code`."
    assert cells[1].text == "import torch\n\nx = 1"
    starter = "import math\n\n\ndef first():\n    return 1\n\n\n# two\ndef second():\n    return 2\n\n\nend = 3"
    assert (cells[2].text, cells[2].starter) == (starter, "second")
    assert cells[3].text == "print(x)"


def test_a_starter_can_be_spread_over_several_cells() -> None:
    text = '# %% starter="first"\n# %% [markdown]\n# And now:\n# %% starter="second"\n'
    cells = fill_in(read_percent_cells(text, Path("notebook.py")), SOURCE, Path("notebook.py"))
    assert [cell.text.split("\n")[-1] for cell in cells] == ["    return 1", "And now:", "end = 3"]


def test_an_indented_comment_after_a_definition_belongs_to_it() -> None:
    source = "def first():\n    return 1\n    # done\n\n\n# two\ndef second():\n    return 2\n"
    text = '# %% starter="first"\n# %% starter="second"\n'
    cells = fill_in(read_percent_cells(text, Path("notebook.py")), source, Path("notebook.py"))
    assert [cell.text.split("\n")[0] for cell in cells] == ["def first():", "# two"]
    assert cells[0].text.endswith("# done")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no cells"),
        ("x = 1\n", "line 1: 'x = 1' is not in a cell"),
        ("\n# A comment\n# %%\n", "line 2: '# A comment' is not in a cell"),
        ("# %% [markdown]\n# Text\nx = 1\n", "line 3: 'x = 1' must start with '#'"),
        ("# %% [raw]\n", r"line 1: '# %% \[raw\]' is not a known kind of cell"),
        ('# %% starter="second" tags=["a"]\n', "line 1: .* is not a known kind of cell"),
        ('# %% starter="second"\n\nx = 1\n', "line 2: the cell of the starter must be empty"),
        ("# %%\nx = 1\n", "has no cell for the student's code"),
        ('# %% starter="third"\n', "line 1: the starter does not define third"),
        ('# %% starter="second"\n# %% starter="first"\n', "line 2: the starter does not define first, or an earlier"),
    ],
)
def test_a_malformed_story_is_refused_with_its_line(text: str, message: str) -> None:
    path = Path("notebook.py")
    with pytest.raises(ValueError, match=rf"^notebook\.py.* ?{message}"):
        fill_in(read_percent_cells(text, path), SOURCE, path)


@pytest.mark.parametrize("assignment", STORIES, ids=lambda assignment: assignment.name)
def test_a_story_is_a_valid_notebook_with_the_starter_in_it(assignment: Assignment, tmp_path: Path) -> None:
    """The structure that format 4.4 of notebooks requires."""
    notebook = notebook_of(assignment, assignment.starter)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 4)
    for cell in notebook["cells"]:
        is_code = cell["cell_type"] == "code"
        assert is_code or cell["cell_type"] == "markdown"
        assert set(cell) == {"cell_type", "metadata", "source"} | ({"execution_count", "outputs"} if is_code else set())
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        assert cell["source"]
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    solution = read_solution(path)
    assert is_untouched(solution.source, assignment.starter)
    assert solution.syntax_error is None
    kinds = [cell["cell_type"] for cell in notebook["cells"]]
    assert kinds[0] == "markdown"
    assert min(kinds.count("markdown"), kinds.count("code")) >= 4
    assert any("plt." in "".join(cell["source"]) for cell in notebook["cells"])


@pytest.mark.slow
@pytest.mark.parametrize("assignment", STORIES, ids=lambda assignment: assignment.name)
def test_the_cells_of_a_story_run_with_the_reference_filled_in(assignment: Assignment) -> None:
    notebook = notebook_of(assignment, assignment.reference)
    names: dict[str, object] = {"__name__": "notebook"}
    with drawing_to_memory() as figures:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert len(figures) >= 2


@pytest.mark.slow
def test_a_notebook_is_checked_like_a_file(tmp_path: Path) -> None:
    assignment = STORIES[0]
    path = tmp_path / "mine.ipynb"
    path.write_text(as_notebook(assignment.reference, assignment.story), encoding="utf-8")
    report = check(path)
    assert (report.assignment.name, report.passed, report.is_started) == (assignment.name, True, True)
    assert (report.run.notes, report.run.printed) == ([], "")


def test_cells_that_draw_or_try_out_are_not_run_when_a_notebook_is_checked() -> None:
    cells = [
        "import torch\nimport matplotlib.pyplot as plt",
        "scale = 2",
        "plt.plot([1])\nplt.show()",
        "def first(x):\n    return x * scale",
        "x = first(3)\nprint(x)",
        "helper = first",
        "import other\nother.setup()",
        "first.__wrapped__ = len",
        "setattr(first, 'a', 1)",
        "def second(x):\n    return helper(x)",
        "second(3)",
    ]
    starts = [1 + sum(len(cell.split("\n")) for cell in cells[:index]) for index in range(len(cells))]
    run = [text for _, text in _blocks_to_run("\n".join(cells), starts, ("first", "second"))]
    assert run == [cells[index] for index in (0, 1, 3, 5, 6, 7, 8, 9)]
