"""The command as a person runs it: in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest


def regard(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "regard", *arguments], capture_output=True, text=True, timeout=120)


def test_help_names_the_commands() -> None:
    done = regard("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout


def test_version() -> None:
    assert regard("--version").stdout.strip() == "regard 0.1.0"


@pytest.mark.parametrize("command", ["demo"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"regard {command}" in regard(command, "--help").stdout


def test_an_unknown_command_says_so() -> None:
    done = regard("dmeo")
    assert done.returncode == 2
    assert "demo" in done.stderr


def test_demo_leaves_a_folder_of_ones_own_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = regard("demo", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "name another by --out" in done.stderr
    assert done.stdout == ""
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
