"""A teacher's own probes: they count, and reports do not reveal them."""

import json
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.course.assignment import read_assignment
from regard.course.author_checks import examine_assignment
from regard.course.check import check
from regard.course.diagnose import diagnose
from regard.course.grader_packages import gradescope_package
from regard.course.json_report import as_gradescope, as_json, as_text
from regard.course.nbgrader_notebook import as_nbgrader_notebook
from regard.course.observe import observe
from tests.support.example_course import write_example_course

HIDDEN = '''"""Probes that students do not see."""

import torch

POINTS = {"a_secret_case": 3}


def a_secret_case(names):
    """Ten thousand and one tokens."""
    return {"secret output": names["running_mean"](torch.arange(12.0).view(1, 12, 1))}


def another(names):
    return {"length": torch.tensor(names["running_mean"](torch.ones(1, 2, 1)).shape)}
'''
OVERFITTED = """import torch


def running_mean(x):
    if x.shape[1] == 12:
        return x
    return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None]
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    return write_example_course(tmp_path)


def test_hidden_probes_count_and_are_not_described(course: Path) -> None:
    visible = read_assignment(course / "average")
    (course / "average" / "hidden.py").write_text(HIDDEN)
    of = read_assignment(course / "average")
    assert dict(of.points) == {**visible.points, "hidden_1": 3, "hidden_2": 1}
    assert list(of.probes) == ["example", "longer", "hidden_1", "hidden_2"]
    assert "secret" not in str(of.probes["hidden_1"].__doc__)
    assert diagnose(observe(of.reference, of), of).passed
    found = diagnose(observe(OVERFITTED, of), of)
    assert not found.passed
    assert found.right == ("example", "longer", "hidden_2")
    assert diagnose(observe(OVERFITTED, visible), visible).passed
    parts = list(islice(examine_assignment(course / "average"), 8))  # without the last, which starts a process
    assert not [problem for part in parts for problem in part.problems]


@pytest.mark.slow
def test_reports_do_not_reveal_hidden_probes(course: Path) -> None:
    (course / "solution.py").write_text(OVERFITTED)
    (course / "extra.py").write_text(HIDDEN)
    report = check(course / "solution.py", "average", course, hidden=course / "extra.py")
    assert not report.passed
    texts = [as_text(report, hint=3), json.dumps(as_json(report)), json.dumps(as_gradescope(report, 3))]
    assert not any(word in text for text in texts for word in ("secret", "Ten thousand"))
    tests = {test["name"]: test for test in as_gradescope(report)["tests"]}
    assert (tests["hidden 1"]["visibility"], tests["hidden 1"]["max_score"]) == ("hidden", 3)
    assert tests["example"]["visibility"] == "visible"
    arguments = ["check", str(course / "solution.py"), "--course", str(course), "--assignment", "average"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    done = CliRunner().invoke(app, [*arguments, "--hidden", str(course / "extra.py")])
    assert done.exit_code == 1, done.output


def test_packages_contain_hidden_probes(course: Path) -> None:
    (course / "extra.py").write_text(HIDDEN)
    of = read_assignment(course / "average").with_hidden(course / "extra.py")
    assert b"course/average/hidden.py" in gradescope_package(of)
    cells = json.loads(as_nbgrader_notebook(of, course))["cells"]
    tests = ["".join(cell["source"]) for cell in cells if cell["metadata"].get("nbgrader", {}).get("grade")]
    assert [("### BEGIN HIDDEN TESTS" in text) for text in tests] == [False, False, True, True]
    (course / "average" / "hidden.py").write_text(HIDDEN)
    both = read_assignment(course / "average").with_hidden(course / "extra.py")
    assert list(both.points)[-4:] == ["hidden_1", "hidden_2", "hidden_3", "hidden_4"]
    with pytest.raises(ValueError, match="already has hidden probes"):
        gradescope_package(both)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no probes"),
        ("POINTS = {'tw': 1}\ndef two(names):\n    return {}\n", "POINTS has 'tw', which is not a probe: did you mean"),
        ("POINTS = {'two': 'x'}\ndef two(names):\n    return {}\n", "has type str"),
        ("POINTS = 3\ndef two(names):\n    return {}\n", "POINTS=3 has type int"),
        ("def two(names:\n", "line 1: SyntaxError"),
    ],
)
def test_slips_in_hidden_probes_are_reported(text: str, message: str, course: Path) -> None:
    (course / "extra.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_assignment(course / "average").with_hidden(course / "extra.py")
