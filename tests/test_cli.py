"""The command as a person runs it: in a process of its own."""

import re
import subprocess
import sys

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


def test_demo_shows_shapes_attention_and_proof() -> None:
    done = regard("demo")
    assert done.returncode == 0, done.stderr
    assert "decoder.layers.1.cross_attention" in done.stdout
    assert "[1, 9, 64]" in done.stdout
    differences = re.findall(r"^  .* (\d\.\de[+-]\d\d)$", done.stdout, re.M)
    assert len(differences) == 2
    assert all(float(difference) < 1e-4 for difference in differences)
    assert "\x1b[" not in done.stdout  # plain lines when not a terminal
