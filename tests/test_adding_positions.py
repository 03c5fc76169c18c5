"""The guide on adding a kind of positions: its blocks, applied to a copy of the package, give a kind that works."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_runs import PETIT_PAIRS, TINY

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs/how-to/add-positions.md").read_text(encoding="utf-8")
EDIT = re.compile(r"^In `([^`]+)`:\n\n```diff\n(.*?)^```", re.M | re.S)
NEW_FILE = re.compile(r"^Create `([^`]+)`:\n\n```python\n(.*?)^```", re.M | re.S)
COPIED_TESTS = ("conftest.py", "__init__.py", "model/__init__.py", "model/test_model.py", "model/test_cache.py")
RUN_COMMANDS = """
import json, pathlib, sys, pytest, regard
from regard.cli import app
assert pathlib.Path(regard.__file__).is_relative_to(pathlib.Path.cwd())
for name, *arguments in json.loads(sys.argv[1]):
    if name == "pytest":
        assert pytest.main(arguments) == 0
    else:
        app(arguments, standalone_mode=False)
"""


def apply_edit(text: str, diff: str) -> str:
    """Replace the lines of a diff without line numbers: those with "-" or " " by those with "+" or " "."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(before) == 1, f"the package does not have these lines once:\n{before}"
    return text.replace(before, after)


def package_with_the_guides_kind(folder: Path) -> None:
    """Copy the package and the tests that the guide runs, and apply the guide's blocks."""
    ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
    shutil.copytree(ROOT / "regard", folder / "regard", ignore=ignored)
    shutil.copytree(ROOT / "tests/support", folder / "tests/support", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests/model").mkdir()
    for name in COPIED_TESTS:
        shutil.copy(ROOT / "tests" / name, folder / "tests" / name)
    for path, diff in EDIT.findall(GUIDE):
        file = folder / path
        file.write_text(apply_edit(file.read_text(encoding="utf-8"), diff), encoding="utf-8")
    for path, text in NEW_FILE.findall(GUIDE):
        (folder / path).write_text(text, encoding="utf-8")


def run_in(folder: Path, commands: list[list[str]]) -> str:
    """The output of commands of pytest and Regard, in one process that imports the copied package."""
    environment = os.environ | {"PYTHONPATH": str(folder), "REGARD_CHECK_SHAPES": "0"}
    program = [sys.executable, "-c", RUN_COMMANDS, json.dumps(commands)]
    result = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_every_block_of_code_is_applied() -> None:
    assert len(EDIT.findall(GUIDE)) == GUIDE.count("```diff") == 3
    assert len(NEW_FILE.findall(GUIDE)) == GUIDE.count("```python") == 1


def test_an_edit_of_lines_that_have_changed_is_noticed() -> None:
    assert apply_edit("a\nb\nc\n", " a\n-b\n+B\n") == "a\nB\nc\n"
    with pytest.raises(AssertionError, match="does not have these lines once"):
        apply_edit("a\nb\n", "-c\n+C\n")


@pytest.mark.slow
def test_the_guides_kind_works(tmp_path: Path) -> None:
    """The commands of the page, in order: its own tests with the shared ones, a training run, and `regard verify`."""
    package_with_the_guides_kind(tmp_path)
    (tests,) = re.findall(r"^ {4}(pytest .*)$", GUIDE, re.M)
    (train,) = re.findall(r"^ {6}(regard train (?:.*\\\n)*.*)$", GUIDE, re.M)
    (verify,) = re.findall(r"^ {4}(regard verify .*)$", GUIDE, re.M)
    settings = TINY | {"data.petit": PETIT_PAIRS, "train.steps": 2, "train.warmup": 1, "train.validate_every": 2}
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    commands = [
        [*shlex.split(tests), "-q"],
        [*shlex.split(train.replace("\\\n", " ").replace("$positions", "kerple")), *options],
        [*shlex.split(verify), "--no-compile", "--cases", "2"],
    ]
    output = run_in(tmp_path, commands)
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert int(passed[1]) >= 30
    assert "cached = uncached" in output
