"""Packages for Gradescope, nbgrader and Docker, run as these systems would run them."""

import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.course.assignment import load_assignment
from regard.course.nbgrader_notebook import BEGIN, END, as_nbgrader_notebook, check_part
from tests.support.example_course import write_example_course

RIGHT = Path(__file__).parent / "solutions" / "self-attention" / "bmm.py"


def regard(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def run_autograder(root: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """Run a package that was unpacked to root/source as Gradescope does, and return its results."""
    (root / "submission").mkdir()
    for name, text in files.items():
        (root / "submission" / name).write_text(text)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(root)}
    subprocess.run(["bash", root / "run_autograder"], check=True, env=environment, cwd="/", timeout=300)
    results: dict[str, Any] = json.loads((root / "results" / "results.json").read_text())
    return results


@pytest.mark.slow
def test_a_gradescope_package_grades_an_upload_of_several_files(tmp_path: Path) -> None:
    done = regard("course", "package", "self-attention", "--gradescope", tmp_path / "autograder.zip", "--hint", 2)
    assert done.exit_code == 0, done.output
    root = tmp_path / "autograder"
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        archive.extractall(root / "source")
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert all(modes[name] & stat.S_IXUSR for name in ("setup.sh", "run_autograder"))
    assert (tmp_path / "autograder.zip").stat().st_size < 5_000_000
    assert not list((root / "source").rglob("*.safetensors"))
    (root / "source" / "run_autograder").rename(root / "run_autograder")
    wrong = RIGHT.read_text().replace(" * self.hidden**-0.5", "")
    results = run_autograder(root, {"attention.py": wrong, "zz_notes.py": "answer = 42\n"})
    of = load_assignment("self-attention")
    assert results["score"] == pytest.approx(sum(test["score"] for test in results["tests"]))
    assert 0 < results["score"] < of.max_points
    assert "no-scaling" in results["output"]
    assert {"name", "score", "max_score", "status", "output", "visibility"} <= set(results["tests"][0])


def test_scripts_of_packages_are_complete(tmp_path: Path) -> None:
    done = regard("course", "package", "self-attention", "--docker", tmp_path / "image")
    assert done.exit_code == 0, done.output
    dockerfile = (tmp_path / "image" / "Dockerfile").read_text()
    assert "{{" not in dockerfile
    for source in re.findall(r"^COPY (\S+)", dockerfile, re.MULTILINE):
        assert (tmp_path / "image" / source).exists()
    assert (tmp_path / "image" / "course" / "self-attention" / "reference.py").is_file()
    requirements = (tmp_path / "image" / "requirements.txt").read_text().split("\n")
    assert any(line.startswith("torch") for line in requirements)
    assert any(line.startswith("ruff") for line in requirements)
    assert not any(re.match("pytest|matplotlib", line) for line in requirements)
    regard("course", "package", "self-attention", "--gradescope", tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        for name in ("setup.sh", "run_autograder"):
            script = archive.read(name)
            assert b"{{" not in script
            subprocess.run(["bash", "-n"], input=script, check=True)


def test_packages_are_not_written_over_files(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("mine")
    done = regard("course", "package", "self-attention", "--gradescope", tmp_path / "a.zip")
    assert "already exists" in str(done.exception)
    assert (tmp_path / "a.zip").read_text() == "mine"
    assert "must be a .zip file" in str(regard("course", "package", "self-attention", "--gradescope", "a").exception)
    assert "nothing to write" in str(regard("course", "package", "self-attention").exception)
    assert "unknown assignment" in str(regard("course", "package", "self", "--docker", tmp_path / "d").exception)


SCHEMA_REQUIRED = {"schema_version", "grade", "locked", "solution"}
SCHEMA_KEYS = {*SCHEMA_REQUIRED, "task", "grade_id", "points", "checksum", "cell_type"}
"""Keys of nbgrader's schema, version 3: github.com/jupyter/nbgrader, nbgrader/nbgraderformat/v3.json."""


@pytest.mark.parametrize("name", ["self-attention", "kv-cache"])
def test_the_notebook_for_nbgrader_follows_its_schema(name: str) -> None:
    of = load_assignment(name)
    cells = json.loads(as_nbgrader_notebook(of))["cells"]
    marked = [cell["metadata"]["nbgrader"] for cell in cells if cell["cell_type"] == "code"]
    for entry in marked:
        assert SCHEMA_REQUIRED <= set(entry) <= SCHEMA_KEYS
        assert entry["schema_version"] == 3
        assert re.fullmatch(r"[a-zA-Z0-9_\-]+", entry["grade_id"])
        assert ("points" in entry) == entry["grade"]
        assert not (entry["solution"] and entry["locked"])
    assert len({entry["grade_id"] for entry in marked}) == len(marked)
    assert sum(entry.get("points", 0) for entry in marked) == sum(of.points.values())
    for cell in cells:
        text = "".join(cell["source"])
        is_solution = cell["metadata"].get("nbgrader", {}).get("solution", False)
        assert is_solution == (BEGIN in text)
        assert text.count(BEGIN) == text.count(END)


def run_cells(document: str) -> list[tuple[str, float]]:
    """Run the code cells in one namespace, as a kernel does: the errors of test cells, with the points lost."""
    names: dict[str, Any] = {"__name__": "__main__"}
    errors = []
    for cell in json.loads(document)["cells"]:
        entry = cell["metadata"].get("nbgrader", {})
        if cell["cell_type"] != "code" or "matplotlib" in "".join(cell["source"]):
            continue
        try:
            exec("".join(cell["source"]), names)
        except Exception as error:
            if entry["grade"]:
                errors.append((f"{type(error).__name__}: {error}", entry["points"]))
    return errors


@pytest.mark.slow
def test_the_test_cells_of_nbgrader_give_points(tmp_path: Path) -> None:
    course = write_example_course(tmp_path)
    of = load_assignment("average", course)
    document = as_nbgrader_notebook(of, course)
    assert run_cells(document) == []
    wrong = run_cells(document.replace("sums / counts", "sums"))
    assert sum(points for _, points in wrong) == sum(of.points.values())
    assert "Two sequences of three tokens. The values are not as expected." in wrong[0][0]
    released = re.sub(rf'"( *){BEGIN}.*?{END}', r'"\1raise NotImplementedError()', document, flags=re.DOTALL)
    assert "cumsum" not in released
    assert all("this part still has to be written" in message for message, _ in run_cells(released))
    with pytest.raises(ValueError, match="has no part 'nothing'"):
        check_part("average", "nothing", {}, str(course))
